"""SHELS in PyTorch: the network of the paper, as a scikit-learn estimator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limen.shels.accommodation import Lesson
    from limen.shels.estimator import SHELSClassifier
    from limen.shels.inputs import InputFormat
    from limen.shels.network import NetworkConfig, SHELSNetwork
    from limen.shels.scores import ClassFeatures
    from limen.shels.training import TrainingDivergedError

# Names that need torch load it when first used: settings and scores do without.
_LAZY = {
    "ClassFeatures": "limen.shels.scores",
    "InputFormat": "limen.shels.inputs",
    "Lesson": "limen.shels.accommodation",
    "NetworkConfig": "limen.shels.network",
    "SHELSClassifier": "limen.shels.estimator",
    "SHELSNetwork": "limen.shels.network",
    "TrainingDivergedError": "limen.shels.training",
}

__all__ = [
    "ClassFeatures",
    "InputFormat",
    "Lesson",
    "NetworkConfig",
    "SHELSClassifier",
    "SHELSNetwork",
    "TrainingDivergedError",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
