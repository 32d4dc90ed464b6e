"""Every cut there is: the intervals between neighbouring scores, in which all cuts decide alike.

Private to `limen.threshold`. Direction: a score below the cut is known, at or above it novel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limen.objectives import Floats, ObjectiveFunction

Scores: TypeAlias = NDArray[np.floating[Any]]

_BINS = 1 << 14  # their counts stay in the second-level cache
_CHUNK = 1 << 16
_SMALL = 1 << 17  # below this a sort is cheaper than another round of bins
_SAMPLE = 1 << 12
_BIN_COUNT = 1 << 10


@dataclass(frozen=True)
class Side:
    """The scores of one kind among which a cut is still sought, and what lies outside them."""

    name: str  # "known": right where below the cut; "novel": right where not
    scores: Scores
    weight: Floats | None
    total: float
    settled: float = 0.0  # weight of the points outside that are right at every cut considered
    ordered: bool = False

    def restrict(self, inside: NDArray[np.bool_] | slice, settled: float) -> Side:
        weight = None if self.weight is None else self.weight[inside]
        return replace(self, scores=self.scores[inside], weight=weight, settled=settled)

    def right(self, weight: Floats) -> Floats:
        """Weight that is right with 0, 1, ... all of these ascending weights below the cut."""
        if self.name == "known":
            return self.settled + np.append(0.0, np.cumsum(weight))
        return self.settled + np.append(np.cumsum(weight[::-1])[::-1], 0.0)

    def accuracy(self, right: Floats) -> Floats:
        return np.minimum(right / self.total, 1.0)  # sums of weights round


def sides(
    known: ArrayLike,
    novel: ArrayLike,
    known_weight: ArrayLike | None,
    novel_weight: ArrayLike | None,
) -> tuple[Side, Side]:
    known, novel = _as_scores("known", known), _as_scores("novel", novel)
    # One precision for both, so that eta can be compared in the precision the scores came in.
    dtype = np.result_type(known, novel)
    return (
        _as_side("known", known.astype(dtype, copy=False), known_weight),
        _as_side("novel", novel.astype(dtype, copy=False), novel_weight),
    )


def _as_scores(name: str, given: ArrayLike) -> Scores:
    scores = np.asarray(given)
    if scores.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got an array of shape {scores.shape}")
    if scores.size == 0:
        raise ValueError(f"{name} is empty: the search needs at least 1 score of each kind, got 0")
    if scores.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got {scores.size} of {scores.dtype}")
    return scores if scores.dtype == np.float32 else scores.astype(np.float64, copy=False)


def _as_side(name: str, scores: Scores, given_weight: ArrayLike | None) -> Side:
    weight = None
    total: float = scores.size
    lowest, highest = scores.min(), scores.max()
    if np.isnan(lowest):
        raise ValueError(f"{name} holds {np.isnan(scores).sum()} NaN among {scores.size} scores")
    if given_weight is not None:
        weight = np.asarray(given_weight, dtype=np.float64)
        if weight.shape != scores.shape:
            raise ValueError(
                f"{name}_weight must have one weight per score, shape {scores.shape}, "
                f"got {weight.shape}"
            )
        wrong = int(np.count_nonzero(~(weight >= 0) | np.isinf(weight)))
        if wrong:
            raise ValueError(
                f"{name}_weight must be finite and not negative, got {wrong} that are not"
            )
        total = float(weight.sum())
        if total == 0:
            raise ValueError(f"{name}_weight sums to 0: no {name} point would count")
        present = weight > 0
        scores, weight = scores[present], weight[present]
    side = Side(name, scores, weight, total)
    limit = np.finfo(scores.dtype).max
    if max(-lowest, highest) < limit:
        return side
    # No finite cut reaches past an infinite score: -inf is always known, +inf always novel.
    always = scores <= -limit if name == "known" else scores >= limit
    settled = float(np.count_nonzero(always) if weight is None else weight[always].sum())
    return side.restrict(np.abs(scores) < limit, settled)


def narrow(known: Side, novel: Side, function: ObjectiveFunction, tie: float) -> tuple[Side, Side]:
    """Drop the scores around which a monotone objective cannot have its best cut.

    The scores are counted in bins of equal width; where these leave too much (tails so heavy that
    one bin holds nearly all), they are sorted and counted in bins of equal count.
    """
    while (size := known.scores.size + novel.scores.size) > _SMALL:
        bins = _equal_width(known, novel)
        if bins is not None:
            known_bins, novel_bins, known_right, novel_right = bins
            first, last = _promising(known, known_right, novel, novel_right, function, tie)
            known_inside = (known_bins >= first) & (known_bins <= last)
            novel_inside = (novel_bins >= first) & (novel_bins <= last)
            if np.count_nonzero(known_inside) + np.count_nonzero(novel_inside) <= size // 2:
                known = known.restrict(known_inside, known_right[first])
                novel = novel.restrict(novel_inside, novel_right[last + 1])
                continue
        return _narrow_ordered(known, novel, function, tie)
    return known, novel


def _promising(
    known: Side,
    known_right: Floats,
    novel: Side,
    novel_right: Floats,
    function: ObjectiveFunction,
    tie: float,
) -> tuple[int, int]:
    """First and last bin that can hold the best cut, from the weight that is right at each edge.

    A cut on an edge is exact; one inside a bin has at most the known accuracy of the upper edge and
    the novel accuracy of the lower one.
    """
    known_accuracy, novel_accuracy = known.accuracy(known_right), novel.accuracy(novel_right)
    reached = function(known_accuracy, novel_accuracy).max()
    bound = function(known_accuracy[1:], novel_accuracy[:-1])
    candidates = np.flatnonzero(bound >= reached - tie * abs(reached))
    return int(candidates[0]), int(candidates[-1])


def _equal_width(
    known: Side, novel: Side
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], Floats, Floats] | None:
    """The bin of every score and the weight right at every edge; None if there is no width."""
    samples = [s.scores[:: s.scores.size // _SAMPLE + 1] for s in (known, novel)]
    low, high = np.quantile(np.concatenate(samples), [0.001, 0.999])
    with np.errstate(all="ignore"):
        scale = (_BINS - 1) / (high - low)
    if not (np.isfinite(scale) and scale > 0):
        return None
    dtype = known.scores.dtype.type
    known_bins, known_counts = _count(known, dtype(low), dtype(scale))
    novel_bins, novel_counts = _count(novel, dtype(low), dtype(scale))
    return known_bins, novel_bins, known.right(known_counts), novel.right(novel_counts)


def _count(side: Side, low: Any, scale: Any) -> tuple[NDArray[np.uint16], Floats]:
    """Each score's bin, monotone in the score, and the weight in each bin."""
    bins = np.empty(side.scores.size, np.uint16)
    counts = np.zeros(_BINS)
    for start in range(0, bins.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        with np.errstate(over="ignore"):
            offset = side.scores[part] - low
            offset *= scale
        np.clip(offset, 0, _BINS - 1, out=offset)  # the outermost bins take all beyond them
        index = offset.astype(np.intp)
        bins[part] = index
        weight = None if side.weight is None else side.weight[part]
        counts += np.bincount(index, weights=weight, minlength=_BINS)
    return bins, counts


def _narrow_ordered(
    known: Side, novel: Side, function: ObjectiveFunction, tie: float
) -> tuple[Side, Side]:
    known, novel = _ordered(known), _ordered(novel)
    edges = np.unique(np.concatenate([known.scores[::_BIN_COUNT], novel.scores[::_BIN_COUNT]]))
    places = [np.append(np.searchsorted(s.scores, edges), s.scores.size) for s in (known, novel)]
    right = [_right_at(s, place) for s, place in zip((known, novel), places, strict=True)]
    first, last = _promising(known, right[0], novel, right[1], function, tie)
    known_inside, novel_inside = (slice(place[first], place[last + 1]) for place in places)
    return (
        known.restrict(known_inside, right[0][first]),
        novel.restrict(novel_inside, right[1][last + 1]),
    )


class Intervals(NamedTuple):
    """Neighbouring intervals in which all cuts decide alike; interval i has edges i and i + 1."""

    edges: Scores
    known_accuracy: Floats
    novel_accuracy: Floats


def every_cut(known: Side, novel: Side) -> Iterator[Intervals]:
    """All intervals from -inf to inf, a block that fits the cache at a time."""
    known, novel = _ordered(known), _ordered(novel)
    known_scores, novel_scores = known.scores, novel.scores
    # The accuracies with 0, 1, ... all scores of a kind below the cut.
    known_accuracy = known.accuracy(known.right(_weight(known)))
    novel_accuracy = novel.accuracy(novel.right(_weight(novel)))
    inner = np.unique(np.concatenate([known_scores[::_CHUNK], novel_scores[::_CHUNK]]))
    borders = np.concatenate([[-np.inf], inner, [np.inf]]).astype(inner.dtype)
    known_start, known_stop = _inside(known_scores, borders)
    novel_start, novel_stop = _inside(novel_scores, borders)
    for block in range(borders.size - 1):
        known_part = known_scores[known_start[block] : known_stop[block]]
        novel_part = novel_scores[novel_start[block] : novel_stop[block]]
        scores = np.concatenate([known_part, novel_part])
        order = np.argsort(scores, kind="stable")  # two sorted runs: a merge, not a sort
        scores = scores[order]
        # How many scores of each kind lie at or under each distinct score, and under the first.
        last = np.flatnonzero(np.append(scores[1:] != scores[:-1], scores.size > 0))
        count = np.append(0, last + 1)
        known_count = np.append(0, np.cumsum(order < known_part.size)[last])
        yield Intervals(
            np.concatenate([borders[block : block + 1], scores[last], borders[block + 1 :][:1]]),
            known_accuracy[known_start[block] + known_count],
            novel_accuracy[novel_start[block] + count - known_count],
        )


def _right_at(side: Side, place: NDArray[np.intp]) -> Floats:
    """Weight that is right with so many of the ordered scores below the cut."""
    if side.weight is not None:
        return side.right(side.weight)[place]
    below = place if side.name == "known" else side.scores.size - place
    return side.settled + below.astype(np.float64)


def _ordered(side: Side) -> Side:
    if side.ordered:
        return side
    if side.weight is None:
        return replace(side, scores=np.sort(side.scores), ordered=True)
    order = np.argsort(side.scores, kind="stable")
    return replace(side, scores=side.scores[order], weight=side.weight[order], ordered=True)


def _weight(side: Side) -> Floats:
    return np.ones(side.scores.size) if side.weight is None else side.weight


def _inside(scores: Scores, borders: Scores) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Start and stop of the scores strictly between each two neighbouring borders."""
    return np.searchsorted(scores, borders[:-1], "right"), np.searchsorted(scores, borders[1:])


def cuts_within(edges: Scores) -> Scores:
    """A finite cut in each interval low < cut <= high: the middle, or next to its finite end."""
    low, high = edges[:-1], edges[1:]
    with np.errstate(invalid="ignore", over="ignore"):
        middle = low / 2 + high / 2
    middle = np.where((middle > low) & (middle <= high), middle, high)  # neighbouring floats
    middle = np.where(np.isinf(low), high, middle)
    middle = np.where(np.isinf(high), np.nextafter(low, high), middle)
    return np.where(np.isinf(low) & np.isinf(high), edges.dtype.type(0), middle)
