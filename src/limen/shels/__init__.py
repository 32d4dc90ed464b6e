"""SHELS in PyTorch: the network of the paper, as a scikit-learn estimator."""

from limen.shels.accommodation import Lesson
from limen.shels.estimator import SHELSClassifier
from limen.shels.inputs import InputFormat
from limen.shels.network import NetworkConfig, SHELSNetwork
from limen.shels.scores import ClassFeatures
from limen.shels.training import TrainingDivergedError

__all__ = [
    "ClassFeatures",
    "InputFormat",
    "Lesson",
    "NetworkConfig",
    "SHELSClassifier",
    "SHELSNetwork",
    "TrainingDivergedError",
]
