"""Data sets by name, and a user's own."""

from limen.datasets.catalog import NAMES, at_hand, load
from limen.datasets.dataset import Dataset, DatasetError
from limen.datasets.fetch import data_folder
from limen.datasets.own import read

__all__ = ["NAMES", "Dataset", "DatasetError", "at_hand", "data_folder", "load", "read"]
