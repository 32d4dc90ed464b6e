"""What is usual for each class: mean and spread of its similarity, and strangeness against them.

Direction: similarity is high for familiar inputs, strangeness is high for unfamiliar ones.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[Any]
Moments: TypeAlias = tuple[Floats, Floats, Floats, Floats]


class DegenerateClassWarning(UserWarning):
    """A class has too few correctly classified points to say what is usual for it."""


class ClassStatistics:
    r"""Mean and standard deviation of each class's own similarity, over its correct points.

    With :math:`s_c(x)` the similarity of x to class c, :math:`\mu_c` and :math:`\sigma_c` are the
    mean and the (population) standard deviation of :math:`s_c` over the points of class c whose
    highest similarity is :math:`s_c`. They turn a similarity into a strangeness and eta into a
    threshold per class:

    .. math:: z'(x) = \frac{\mu_k - s_k(x)}{\sigma_k},\; k = \arg\max_c s_c(x)
       \qquad th_c = \mu_c - \eta\,\sigma_c

    A point is known if z' < eta, which is to say if its best similarity exceeds that class's
    threshold.

    Where a class cannot be judged, a `DegenerateClassWarning` says so and predictions stay defined:

    - one correct point, or no spread: the spread is borrowed, the pooled standard deviation of the
      classes that have one (1.0 if none has);
    - no correct point: mean and threshold are ``inf``, so whatever the class wins is novel.

    Build one with `from_scores`; `update` and `add_class` change it in place and return it,
    `merge` returns a new one.

    Attributes
    ----------
    classes : ndarray of shape (C,)
        Labels, in the order of the similarity columns.
    count : ndarray of shape (C,)
        Correct points seen of each class.
    mean, std : ndarray of shape (C,)
        What is usual for each class, as above.
    leeway : ndarray of shape (C,)
        How much stranger a point may be on each class than eta says, 0 unless set by `allowing`.

    Examples
    --------
    >>> import numpy as np
    >>> from limen import ClassStatistics
    >>> similarity = np.array([[4.0, 0.0], [2.0, 1.0], [0.0, 5.0], [1.0, 7.0]])
    >>> stats = ClassStatistics.from_scores(similarity, ["cat", "cat", "dog", "dog"])
    >>> stats.mean, stats.std
    (array([3., 6.]), array([1., 1.]))
    >>> stats.strangeness([[0.5, 0.2], [0.0, 6.5]])
    array([ 2.5, -0.5])
    >>> stats.thresholds(eta=2.0)
    array([1., 4.])
    """

    def __init__(self, classes: ArrayLike) -> None:
        self.classes: Labels = np.asarray(classes)
        if self.classes.ndim != 1 or np.unique(self.classes).size != self.classes.size:
            raise ValueError(
                f"classes must be a list of distinct labels, got shape {self.classes.shape} with "
                f"{np.unique(self.classes).size} distinct"
            )
        # Per class: how many, a score near the mean, the mean's distance from it, and the sum of
        # squared deviations from the mean. A small spread about a large mean keeps its digits so.
        self.count: Floats = np.zeros(self.classes.size)
        self._anchor: Floats = np.zeros(self.classes.size)
        self._offset: Floats = np.zeros(self.classes.size)
        self._squares: Floats = np.zeros(self.classes.size)
        self.leeway: Floats = np.zeros(self.classes.size)

    @classmethod
    def from_scores(
        cls, similarity: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None
    ) -> Self:
        """Statistics of the correctly classified points.

        Parameters
        ----------
        similarity : array-like of shape (n, C)
            Similarity to each class (higher = more familiar).
        y : array-like of shape (n,)
            True labels.
        classes : array-like of shape (C,), optional
            The label of each column. Default: the sorted distinct labels in `y` if there are C of
            them, else 0 to C - 1.
        """
        scores = _as_similarity(similarity)
        labels = np.asarray(y)
        if classes is None:
            distinct = np.unique(labels)
            classes = distinct if distinct.size == scores.shape[1] else np.arange(scores.shape[1])
        statistics = cls(classes).update(scores, labels)
        statistics.warn_if_degenerate()
        return statistics

    def update(self, similarity: ArrayLike, y: ArrayLike) -> Self:
        """Take in more points, in place."""
        scores = self._check(similarity)
        column = self._columns(y, len(scores))
        best = scores[np.arange(len(scores)), column] if len(scores) else np.empty(0)
        correct = np.argmax(scores, axis=1) == column if len(scores) else np.empty(0, bool)
        if not np.isfinite(best[correct]).all():
            raise ValueError(
                "similarity must be finite where a point is classified correctly, got "
                f"{np.count_nonzero(~np.isfinite(best[correct]))} infinite"
            )
        return self._absorb(_moments(best[correct], column[correct], self.classes.size))

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics of both sets of points together, as if computed at once."""
        if not np.array_equal(self.classes, other.classes):
            raise ValueError(
                "other must have the same classes in the same order: "
                f"{self.classes.tolist()} here, {other.classes.tolist()} there"
            )
        merged = ClassStatistics(self.classes)
        for part in (self, other):
            merged._absorb((part.count, part._anchor, part._offset, part._squares))
        return merged

    def add_class(self, label: Any, scores: ArrayLike = ()) -> Self:
        """Append a class, in place.

        Parameters
        ----------
        label : scalar
            Its label. Its similarity column is the last one.
        scores : array-like of shape (n,), optional
            Similarity to the new class of its correctly classified points.
        """
        if np.ndim(label) or isinstance(label, str) != isinstance(self.classes.tolist()[0], str):
            raise ValueError(
                f"label must be one label of the kind of {self.classes.tolist()}, got {label!r}"
            )
        if label in self.classes.tolist():
            raise ValueError(f"label {label!r} exists already")
        own = np.asarray(scores, dtype=np.float64)
        if own.ndim != 1 or not np.isfinite(own).all():
            raise ValueError(f"scores must be a finite 1-D array, got shape {own.shape}")
        self.classes = np.append(self.classes, np.asarray([label]))
        self.leeway = np.append(self.leeway, 0.0)
        mine = (self.count, self._anchor, self._offset, self._squares)
        added = _moments(own, np.zeros(own.size, dtype=np.intp), 1)
        self.count, self._anchor, self._offset, self._squares = (
            np.append(old, new[0]) for old, new in zip(mine, added, strict=True)
        )
        return self

    @classmethod
    def from_moments(
        cls, classes: ArrayLike, count: ArrayLike, mean: ArrayLike, std: ArrayLike
    ) -> Self:
        """From what is known of each class already; where the count is 0 the rest does not count.

        >>> ClassStatistics.from_moments(["cat", "dog"], [5, 9], [3.0, 6.0], [1.0, 2.0]).std
        array([1., 2.])
        """
        statistics = cls(classes)
        seen = np.asarray(count, dtype=np.float64)
        statistics.count = seen
        statistics._anchor = np.where(seen > 0, mean, 0.0)
        statistics._squares = np.where(seen > 0, seen * np.square(std), 0.0)
        return statistics

    def carried(self, before: ClassStatistics, after: ClassStatistics) -> ClassStatistics:
        """What is usual once the model has changed, told from a few points that were kept.

        The mean of a class moves as far as that of the kept points, its deviation grows by the
        same factor: better than the kept points alone, as both models agree on much of what makes
        them unusual.

        Parameters
        ----------
        before, after : ClassStatistics
            Of the kept points, scored by the old and by the new model. Classes that only `after`
            has are taken from there; so are those that `before` could not judge.
        """
        place = {label: column for column, label in enumerate(self.classes.tolist())}
        count, mean, std = after.count.copy(), after.mean, after.std
        for column, label in enumerate(after.classes.tolist()):
            mine = place.get(label)
            if mine is None or min(before.count[mine], after.count[column], self.count[mine]) < 2:
                continue
            count[column] = self.count[mine]
            mean[column] = self.mean[mine] + after.mean[column] - before.mean[mine]
            std[column] = self.std[mine] * after.std[column] / before.std[mine]
        return ClassStatistics.from_moments(after.classes, count, mean, std)

    @property
    def mean(self) -> Floats:
        return np.where(self.count > 0, self._anchor + self._offset, np.inf)

    @property
    def std(self) -> Floats:
        spread = self._spread()
        judged = spread > 0
        borrowed = 1.0
        if judged.any():
            borrowed = np.sqrt(self._squares[judged].sum() / self.count[judged].sum())
        return np.where(judged, spread, borrowed)

    def strangeness(self, similarity: ArrayLike) -> Floats:
        """How many deviations the best similarity lies below what is usual for that class.

        Parameters
        ----------
        similarity : array-like of shape (n, C)

        Returns
        -------
        ndarray of shape (n,)
            Higher = stranger; known if below eta, novel otherwise.
        """
        scores = self._check(similarity)
        winner = np.argmax(scores, axis=1)
        best = np.take_along_axis(scores, winner[:, None], axis=1)[:, 0]
        below: Floats = (self._anchor[winner] - best) + self._offset[winner]
        usual = below / self.std[winner] - self.leeway[winner]
        return np.where(self.count[winner] > 0, usual, np.inf)

    def thresholds(self, eta: float) -> Floats:
        """The similarity each class demands: ``mean - (eta + leeway) * std``, shape (C,)."""
        threshold: Floats = self.mean - (eta + self.leeway) * self.std
        return threshold

    def allowing(self, leeway: ArrayLike) -> Self:
        """The same with a leeway for each class, (C,), in deviations: a cut of its own.

        >>> stats = ClassStatistics.from_moments(["cat", "dog"], [5, 9], [3.0, 6.0], [1.0, 2.0])
        >>> stats.allowing([0.0, 0.5]).thresholds(eta=1.0)
        array([2., 3.])
        """
        given = np.asarray(leeway, dtype=np.float64)
        if given.shape != self.classes.shape or not np.isfinite(given).all():
            raise ValueError(f"leeway must be one finite number a class, got {given!r}")
        allowed = copy.deepcopy(self)
        allowed.leeway = given
        return allowed

    def degenerate(self) -> dict[Any, str]:
        """The classes that cannot be judged, each with the reason."""
        spread = self._spread()
        reasons = {}
        for label, count, width in zip(self.classes.tolist(), self.count, spread, strict=True):
            if count == 0:
                reasons[label] = "no correctly classified point: whatever it wins is novel"
            elif count == 1:
                reasons[label] = "one correctly classified point: its spread is borrowed"
            elif width == 0:
                reasons[label] = "no spread among its scores: the spread is borrowed"
        return reasons

    def warn_if_degenerate(self) -> None:
        """Warn with `DegenerateClassWarning` of each class that cannot be judged."""
        for label, reason in self.degenerate().items():
            warnings.warn(f"class {label!r} has {reason}", DegenerateClassWarning, stacklevel=3)

    def to_dict(self) -> dict[str, list[Any]]:
        """The state as plain lists, for JSON."""
        return {
            "classes": self.classes.tolist(),
            "count": self.count.tolist(),
            "anchor": self._anchor.tolist(),
            "offset": self._offset.tolist(),
            "squares": self._squares.tolist(),
            "leeway": self.leeway.tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        statistics = cls(state["classes"])
        names = ("count", "anchor", "offset", "squares")
        moments = [np.asarray(state[name], np.float64) for name in names]
        if any(part.shape != statistics.classes.shape for part in moments):
            raise ValueError(f"{', '.join(names)} must have one value per class")
        statistics.count, statistics._anchor, statistics._offset, statistics._squares = moments
        return statistics.allowing(state.get("leeway", statistics.leeway))

    def __repr__(self) -> str:
        return f"ClassStatistics({self.classes.size} classes, {self.count.sum():.0f} points)"

    def _absorb(self, moments: Moments) -> Self:
        # Chan et al. (1979): exact combination of counts, means and sums of squared deviations.
        count, anchor, offset, squares = moments
        self._anchor = np.where(self.count > 0, self._anchor, anchor)
        total = self.count + count
        share = np.divide(count, total, out=np.zeros_like(total), where=total > 0)
        step = np.where(count > 0, (anchor - self._anchor) + offset - self._offset, 0.0)
        self._squares = self._squares + squares + step**2 * self.count * share
        self._offset = self._offset + step * share
        self.count = total
        return self

    def _spread(self) -> Floats:
        count = np.maximum(self.count, 1)
        spread: Floats = np.sqrt(self._squares / count)
        # Rounding of n equal scores leaves a spread of a few ulps: that is none.
        noise = 4 * np.finfo(np.float64).eps * np.abs(self._anchor)
        return np.where((self.count > 1) & (spread > noise), spread, 0.0)

    def _check(self, similarity: ArrayLike) -> Floats:
        scores = _as_similarity(similarity)
        if scores.shape[1] != self.classes.size:
            raise ValueError(
                f"similarity must have one column per class, {self.classes.size}, "
                f"got shape {scores.shape}"
            )
        return scores

    def _columns(self, y: ArrayLike, length: int) -> NDArray[np.intp]:
        labels = np.asarray(y)
        if labels.shape != (length,):
            raise ValueError(f"y must have shape ({length},), got {labels.shape}")
        order = np.argsort(self.classes, kind="stable")
        place = np.searchsorted(self.classes, labels, sorter=order)
        column = order[np.minimum(place, order.size - 1)]
        strangers = labels[self.classes[column] != labels]
        if strangers.size:
            raise ValueError(
                f"y holds {strangers.size} labels that are not among the classes "
                f"{self.classes.tolist()}, for example {strangers[:1].tolist()[0]!r}"
            )
        return column


def _as_similarity(similarity: ArrayLike) -> Floats:
    scores = np.asarray(similarity, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"similarity must have shape (n, C), got {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"similarity holds {np.isnan(scores).sum()} NaN among {scores.size}")
    return scores


def _moments(scores: Floats, column: NDArray[np.intp], size: int) -> Moments:
    """Count, anchor, offset of the mean and sum of squares of each column."""
    count = np.bincount(column, minlength=size).astype(np.float64)
    anchor = np.zeros(size)
    present, first = np.unique(column, return_index=True)
    anchor[present] = scores[first]
    apart = scores - anchor[column]
    divisor = np.maximum(count, 1)
    offset = np.bincount(column, weights=apart, minlength=size) / divisor
    deviation = (apart - offset[column]) ** 2
    squares = np.bincount(column, weights=deviation, minlength=size).astype(np.float64)
    return count, anchor, offset, squares
