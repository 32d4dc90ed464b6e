"""Stage one: hold out each known class in turn and find the cut that would have caught it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import assert_all_finite, column_or_1d

from limen.accommodation import classes_of
from limen.calibration import ClassStatistics, Floats
from limen.coding import fit_any
from limen.objectives import Objective, ObjectiveFunction, unknown_name
from limen.rows import take
from limen.selection import Evidence, weigh
from limen.similarity import Similarity, similarities_of
from limen.threshold import EtaChoice


class LeaveOneClassOut(BaseCrossValidator):
    """Cross-validation in which each test set is all points of one class.

    One split per class, in sorted order of the labels; the train set is every other class.

    Examples
    --------
    >>> from limen import LeaveOneClassOut
    >>> y = ["b", "a", "c", "a"]
    >>> for train, held_out in LeaveOneClassOut().split(y, y):
    ...     print(train, held_out)
    [0 2] [1 3]
    [1 2 3] [0]
    [0 1 3] [2]
    """

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002
        """How many classes there are in `y`."""
        return len(self._classes(y))

    def _iter_test_masks(
        self,
        X: Any = None,  # noqa: ARG002
        y: Any = None,
        groups: Any = None,  # noqa: ARG002
    ) -> Iterator[NDArray[np.bool_]]:
        classes = self._classes(y)
        if len(classes) < 2:
            raise ValueError(f"y must hold at least 2 classes to leave one out, got {len(classes)}")
        labels = column_or_1d(y)
        for label in classes:
            yield labels == label

    @staticmethod
    def _classes(y: Any) -> NDArray[Any]:
        if y is None:
            raise ValueError("y is needed: its classes are what is left out")
        labels = column_or_1d(y)
        if labels.dtype.kind == "f":
            assert_all_finite(labels, input_name="y")
        return np.unique(labels)


def cheaper_of(estimator: Any, params: Any) -> Any:
    """A copy of the estimator for the trainings with a class held out, with other parameters."""
    copy = clone(estimator, safe=False)
    if params is None:
        return copy
    if not isinstance(params, Mapping):
        raise TypeError(
            f"fold_params must map names of parameters to values, such as {{'epochs': 2}}, got "
            f"{params!r}"
        )
    known = copy.get_params() if hasattr(copy, "get_params") else {}
    for name in params:
        if str(name).partition("__")[0] not in known:  # what is behind __ is for a part to judge
            parameter = f"parameter of {type(copy).__name__} in fold_params"
            raise ValueError(unknown_name(parameter, name, known))
    return copy.set_params(**params) if params else copy


@dataclass(frozen=True)
class Fold:
    """What one class, met as novel, teaches about one similarity."""

    evidence: Evidence
    choice: EtaChoice | None  # None where no known point is classified correctly
    novel: Floats  # strangeness of the novel points
    won: NDArray[Any]  # the class each of them is most similar to

    def taken_for(self, eta: float) -> dict[Any, float]:
        """Known class -> share of the novel points that are taken for it, most first."""
        labels, counts = np.unique(self.won[self.novel < eta], return_counts=True)
        shares = dict(zip(labels.tolist(), (counts / len(self.novel)).tolist(), strict=True))
        return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def run_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    held_out: NDArray[np.intp],
    calibration: NDArray[np.bool_],
    training: NDArray[np.bool_],
    candidates: Mapping[str, Similarity],
    objective: str | Objective | ObjectiveFunction,
) -> dict[str, Fold]:
    """Train `estimator` without one class and search, by each similarity, what would catch it."""
    others = np.ones(len(y), dtype=bool)
    others[held_out] = False
    label = y[held_out[:1]].tolist()[0]
    try:
        estimator = fit_any(estimator, take(X, training & others), y[training & others])
        classes = classes_of(estimator, y[training & others])
        known = similarities_of(estimator, take(X, calibration & others), candidates, classes)
        novel = similarities_of(estimator, take(X, held_out), candidates, classes)
        y_known = y[calibration & others]
        folds = {}
        for name in candidates:
            statistics = ClassStatistics(classes).update(known[name], y_known)
            stands_for = others.sum() / len(y_known)
            folds[name] = judge_fold(
                statistics, known[name], y_known, novel[name], objective, stands_for, label
            )
        return folds
    except Exception as error:
        raise FoldError(f"with class {label!r} held out: {error}") from error


def judge_fold(
    statistics: ClassStatistics,
    known: Floats,
    y_known: NDArray[Any],
    novel: Floats,
    objective: str | Objective | ObjectiveFunction,
    stands_for: float,
    label: Any,
    *,
    discovered: bool = False,
) -> Fold:
    """The cut that would have caught the novel points, from similarities alone.

    Each known point stands for so many: where some are held out to calibrate, the rest count too.
    """
    correct = statistics.classes[np.argmax(known, axis=1)] == y_known
    known_strangeness = np.where(correct, statistics.strangeness(known), np.inf)
    novel_strangeness, won = statistics.strangeness(novel), statistics.classes[novel.argmax(axis=1)]
    evidence, choice = weigh(
        known_strangeness,
        novel_strangeness,
        objective,
        stands_for=stands_for,
        discovered=discovered,
        label=label,
        won=won,
        known_then=statistics.classes.tolist(),
    )
    return Fold(evidence, choice, novel_strangeness, won)


def check_evidence(evidence: Mapping[str, Sequence[Evidence]]) -> None:
    """Refuse similarities none of which says anything, for any class held out."""
    if not any(piece.known.max() > 0 for pieces in evidence.values() for piece in pieces):
        raise ValueError(
            "no calibration point was classified correctly with any class held out, so nothing "
            "says what is usual: check the estimator on these classes alone"
        )


def warn_uninformative(labels: Sequence[Any]) -> None:
    """Say of each class that it has no say in eta."""
    for label in labels:
        warnings.warn(
            f"class {label!r} cannot be told from the known ones at any cut by these scores, so "
            "it has no say in eta: try another estimator or similarity",
            UninformativeClassWarning,
            stacklevel=4,
        )


class UninformativeClassWarning(UserWarning):
    """A class cannot be told from the known ones at any cut, so it has no say in eta."""


class FoldError(ValueError, TypeError):
    """A training with one class held out failed; the message says which class.

    It is both, so that whoever catches what scikit-learn raises on bad data catches it here too.
    """
