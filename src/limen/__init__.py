"""limen: where to put the threshold, when you have never seen what is coming.

The parts for scores from anywhere need numpy only. `OpenSetClassifier` and `LeaveOneClassOut`
bring in scikit-learn when first used, so that importing limen stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from limen._version import __version__
from limen.calibration import ClassStatistics, DegenerateClassWarning
from limen.continual import ContinualEta, EtaEvidence
from limen.objectives import Objective, cost, known_rate
from limen.threshold import EtaChoice, EtaCurve, eta_curve, search_eta

if TYPE_CHECKING:
    from limen.alarm import NoveltyAlarm
    from limen.folds import FoldError, LeaveOneClassOut, UninformativeClassWarning
    from limen.open_set import OpenSetClassifier, load
    from limen.storage import ModelFileError

_LAZY = {
    "FoldError": "limen.folds",
    "LeaveOneClassOut": "limen.folds",
    "ModelFileError": "limen.storage",
    "NoveltyAlarm": "limen.alarm",
    "OpenSetClassifier": "limen.open_set",
    "UninformativeClassWarning": "limen.folds",
    "load": "limen.open_set",
}

__all__ = [
    "ClassStatistics",
    "ContinualEta",
    "DegenerateClassWarning",
    "EtaChoice",
    "EtaCurve",
    "EtaEvidence",
    "FoldError",
    "LeaveOneClassOut",
    "ModelFileError",
    "NoveltyAlarm",
    "Objective",
    "OpenSetClassifier",
    "UninformativeClassWarning",
    "__version__",
    "cost",
    "eta_curve",
    "known_rate",
    "load",
    "search_eta",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
