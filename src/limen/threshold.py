"""Where to put the cut: an exact search over strangeness, and an eta that improves with evidence.

Direction: strangeness is high for unfamiliar inputs. A point is known if its strangeness is below
eta and novel otherwise; a tie is novel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from limen._intervals import Intervals, cuts_within, every_cut, narrow, sides
from limen.objectives import Floats, Objective, ObjectiveFunction, resolve_objective

_CURVE_POINTS = 2000


@dataclass(frozen=True)
class EtaChoice:
    """The best cut found by `search_eta`.

    Attributes
    ----------
    eta : float
        The cut, always finite: known if strangeness < eta, novel otherwise.
    value : float
        The objective at the cut.
    known_accuracy, novel_accuracy : float
        Share of known points below the cut, and of novel points at or above it.
    interval : tuple of float
        ``(low, high)``: every cut with low < cut <= high decides alike on the data searched.
        An end may be infinite.
    """

    eta: float
    value: float
    known_accuracy: float
    novel_accuracy: float
    interval: tuple[float, float]

    @property
    def informative(self) -> bool:
        """Whether the cut tells known from novel better than chance."""
        return self.known_accuracy + self.novel_accuracy > 1


class EtaCurve(NamedTuple):
    """Both accuracies at every cut, for plotting; three arrays of one length, cuts ascending."""

    eta: Floats
    known_accuracy: Floats
    novel_accuracy: Floats


def search_eta(
    known: ArrayLike,
    novel: ArrayLike,
    objective: str | Objective | ObjectiveFunction = "gmean",
    *,
    known_weight: ArrayLike | None = None,
    novel_weight: ArrayLike | None = None,
) -> EtaChoice:
    r"""Find the cut that best separates known from novel strangeness, exactly.

    Every possible cut is considered, also "call everything known" and "call everything novel":

    .. math:: \eta^* = \arg\max_\eta f\big(P(z'_{known} < \eta),\; P(z'_{novel} \ge \eta)\big)

    All cuts between two neighbouring scores decide alike: the middle is taken, of the widest such
    interval on a tie. Where the best cut lies outside all scores it is put next to the outermost;
    that interval has no end, so it is the widest: where no cut is better than calling everything
    known, everything is.

    Parameters
    ----------
    known : array-like of shape (n,)
        Strangeness of known points (higher = stranger). Infinite values are legal: a known point
        at ``inf`` is wrong at every cut.
    novel : array-like of shape (m,)
        Strangeness of novel points.
    objective : str, objective or callable, default="gmean"
        ``"gmean"``, ``"total"`` (balanced), ``"pooled"``, ``"f1"`` (of novel), an objective made
        by `known_rate` or `cost`, or a vectorised function of (known_accuracy, novel_accuracy).
    known_weight, novel_weight : array-like, optional
        Non-negative weights; a weight of two counts like the same point twice.

    Returns
    -------
    EtaChoice

    Notes
    -----
    The named objectives grow with both accuracies. So counting the scores in bins bounds what a
    cut inside each bin can reach, and only bins that can hold the best cut are sorted. A function
    of your own may have any shape: then everything is sorted once.

    Examples
    --------
    >>> from limen import search_eta
    >>> choice = search_eta(known=[0.1, 0.4, 1.0], novel=[0.8, 2.0, 3.0, 4.0], objective="total")
    >>> choice.eta, choice.known_accuracy, choice.novel_accuracy, choice.interval
    (1.5, 1.0, 0.75, (1.0, 2.0))
    """
    resolved = resolve_objective(objective)
    known_side, novel_side = sides(known, novel, known_weight, novel_weight)
    weighted = known_side.weight is not None or novel_side.weight is not None
    tie = 1e-12 if weighted else 2e-15  # relative; rounding of sums of weights, or of one formula

    if resolved is not None:
        function = resolved.function(novel_side.total / (known_side.total + novel_side.total))
        known_side, novel_side = narrow(known_side, novel_side, function, tie)
    else:
        assert callable(objective)
        function = objective
    best: EtaChoice | None = None
    for intervals in every_cut(known_side, novel_side):
        choice = _best_of(intervals, function, tie)
        if best is None or _better(choice, best, tie):
            best = choice
    assert best is not None
    return best


def eta_curve(known: ArrayLike, novel: ArrayLike) -> EtaCurve:
    """Known and novel accuracy at every cut, thinned to at most 2,000 points, ends kept.

    Parameters
    ----------
    known, novel : array-like of shape (n,), (m,)
        Strangeness (higher = stranger).

    Examples
    --------
    >>> from limen import eta_curve
    >>> curve = eta_curve(known=[1.0, 2.0], novel=[3.0])
    >>> curve.known_accuracy, curve.novel_accuracy
    (array([0. , 0.5, 1. , 1. ]), array([1., 1., 1., 0.]))
    """
    blocks = list(every_cut(*sides(known, novel, None, None)))
    cuts = np.concatenate([cuts_within(block.edges) for block in blocks])
    known_accuracy = np.concatenate([block.known_accuracy for block in blocks])
    novel_accuracy = np.concatenate([block.novel_accuracy for block in blocks])
    count = min(cuts.size, _CURVE_POINTS)
    kept = np.linspace(0, cuts.size - 1, count).round().astype(np.intp)
    return EtaCurve(cuts[kept].astype(np.float64), known_accuracy[kept], novel_accuracy[kept])


def _evaluate(function: ObjectiveFunction, known: Floats, novel: Floats) -> Floats:
    value = np.asarray(function(known, novel), dtype=np.float64)
    if value.shape != known.shape:
        raise ValueError(
            "objective must return one value per cut: it was given arrays of shape "
            f"{known.shape} and returned shape {value.shape}"
        )
    if np.isnan(value).any():
        raise ValueError(f"objective returned {np.isnan(value).sum()} NaN for {value.size} cuts")
    return value


def _best_of(intervals: Intervals, function: ObjectiveFunction, tie: float) -> EtaChoice:
    edges, known_accuracy, novel_accuracy = intervals
    value = _evaluate(function, known_accuracy, novel_accuracy)
    tied = np.flatnonzero(value >= _nearly(value.max(), tie))
    chosen = tied[np.argmax(_width(edges[tied], edges[tied + 1]))]
    low, high = edges[chosen : chosen + 2]
    return EtaChoice(
        eta=float(cuts_within(edges[chosen : chosen + 2])[0]),
        value=float(value[chosen]),
        known_accuracy=float(known_accuracy[chosen]),
        novel_accuracy=float(novel_accuracy[chosen]),
        interval=(float(low), float(high)),
    )


def _better(choice: EtaChoice, best: EtaChoice, tie: float) -> bool:
    if choice.value < _nearly(best.value, tie) or best.value < _nearly(choice.value, tie):
        return choice.value > best.value
    return bool(_width(*choice.interval) > _width(*best.interval))


def _nearly(value: Any, tie: float) -> Any:
    return value - tie * abs(value) if np.isfinite(value) else value


def _width(low: Any, high: Any) -> Any:
    """Open intervals are the widest; where nothing can be told, all is known rather than novel."""
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.where(np.isinf(low), np.finfo(np.float64).max, np.subtract(high, low))
    return np.where(np.isinf(high), np.inf, width)
