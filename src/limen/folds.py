"""Stage one: hold out each known class in turn and find the cut that would have caught it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import assert_all_finite, column_or_1d

from limen.accommodation import classes_of
from limen.calibration import ClassStatistics, Floats
from limen.coding import fit_any
from limen.objectives import Objective, ObjectiveFunction
from limen.rows import take
from limen.similarity import Similarity, similarity_of
from limen.threshold import EtaChoice, search_eta


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


@dataclass(frozen=True)
class Fold:
    """What one held-out class taught, with the scores that taught it."""

    choice: EtaChoice | None  # None where no known point is classified correctly
    known: Floats  # strangeness of all known points; inf where the class is wrong
    novel: Floats

    @property
    def evidence(self) -> float | None:
        """The eta it asks for; None where no cut tells known from novel better than chance."""
        return self.choice.eta if self.choice and self.choice.informative else None

    def accuracy(self, eta: float) -> tuple[float, float]:
        """Known and novel accuracy at another cut."""
        return float(np.mean(self.known < eta)), float(np.mean(self.novel >= eta))


def run_fold(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    held_out: NDArray[np.intp],
    calibration: NDArray[np.bool_],
    training: NDArray[np.bool_],
    how: Similarity,
    objective: str | Objective | ObjectiveFunction,
) -> Fold:
    """Train `estimator` without one class and search the cut that would have caught it."""
    others = np.ones(len(y), dtype=bool)
    others[held_out] = False
    try:
        estimator = fit_any(estimator, take(X, training & others), y[training & others])
        classes = classes_of(estimator, y[training & others])
        known = similarity_of(estimator, take(X, calibration & others), how, classes)
        novel = similarity_of(estimator, take(X, held_out), how, classes)
        y_known = y[calibration & others]
        statistics = ClassStatistics(classes).update(known, y_known)
        stands_for = others.sum() / len(y_known)
        return judge_fold(statistics, known, y_known, novel, objective, stands_for)
    except Exception as error:
        label = y[held_out[0]].item()
        raise FoldError(f"with class {label!r} held out: {error}") from error


def judge_fold(
    statistics: ClassStatistics,
    known: Floats,
    y_known: NDArray[Any],
    novel: Floats,
    objective: str | Objective | ObjectiveFunction,
    stands_for: float,
) -> Fold:
    """The cut that would have caught the novel points, from similarities alone.

    Each known point stands for so many: where some are held out to calibrate, the rest count too.
    """
    correct = statistics.classes[np.argmax(known, axis=1)] == y_known
    known_strangeness = np.where(correct, statistics.strangeness(known), np.inf)
    novel_strangeness = statistics.strangeness(novel)
    if not correct.any():
        return Fold(None, known_strangeness, novel_strangeness)
    choice = search_eta(
        known_strangeness[correct],
        novel_strangeness,
        objective,
        known_weight=None if stands_for == 1 else np.full(correct.sum(), stands_for),
    )
    return Fold(choice, known_strangeness, novel_strangeness)


def expected_accuracy(folds: Sequence[Fold], eta: float) -> tuple[float, float]:
    """Mean known and novel accuracy, each fold judged at the mean cut of the others.

    Where no other fold has anything to say, at `eta`.
    """
    accuracies = []
    for fold in folds:
        others = [f.evidence for f in folds if f is not fold and f.evidence is not None]
        accuracies.append(fold.accuracy(float(np.mean(others)) if others else eta))
    known, novel = np.mean(accuracies, axis=0)
    return float(known), float(novel)


def evidence_of(folds: dict[Any, Fold]) -> dict[Any, float]:
    """The eta of each fold that has something to say; of all, if none has."""
    told = {label: fold.evidence for label, fold in folds.items() if fold.evidence is not None}
    warn_uninformative([label for label in folds if label not in told])
    told = told or {label: fold.choice.eta for label, fold in folds.items() if fold.choice}
    if not told:
        raise ValueError(
            "no calibration point was classified correctly with any class held out, so nothing "
            "says what is usual: check the estimator on these classes alone"
        )
    return told


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
