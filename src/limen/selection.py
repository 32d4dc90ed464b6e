"""Which score and which cut: chosen together, by what held-out and discovered classes have shown.

Each class met as novel leaves a piece of evidence: known and novel accuracy at every cut. A rule
turns pieces into one cut; a rule, and a score, is as good as the cut that the other pieces give is
for the piece left out. Direction: a point is known if its strangeness is below the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limen.continual import RULES
from limen.objectives import (
    Floats,
    Objective,
    ObjectiveFunction,
    resolve_objective,
    unknown_name,
)
from limen.threshold import EtaChoice, eta_curve, search_eta

AnyObjective: TypeAlias = str | Objective | ObjectiveFunction
Combine: TypeAlias = Callable[[Sequence["Evidence"], AnyObjective], float]

_POINTS = 400  # of a curve
_CANDIDATES = 2000  # cuts that are tried
SHIFTS = [NormalDist().inv_cdf((place + 0.5) / 7) for place in range(7)]  # in deviations


@dataclass(frozen=True)
class Evidence:
    """What one class, met while it was novel, says of every cut.

    Attributes
    ----------
    cuts, known, novel : ndarray of shape (n,)
        Both accuracies at ascending cuts.
    eta : float
        The cut it asks for itself.
    share : float
        Of all its points, how many are novel.
    informative : bool
        Whether any cut tells known from novel better than chance. A piece that is not has no say in
        a combined cut, but a score or rule is judged on it all the same.
    discovered : bool
        Whether the class was discovered, or held out.
    label : object
    strangeness, won : ndarray of shape (m,)
        Of some of its points, strangeness and the known class each is most similar to; empty if
        that was not recorded.
    known_then : tuple
        The classes that were known when it was met.
    """

    cuts: Floats
    known: Floats
    novel: Floats
    eta: float
    share: float
    informative: bool = True
    discovered: bool = False
    label: Any = None
    strangeness: Floats = field(default_factory=lambda: np.empty(0))
    won: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    known_then: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls,
        known: ArrayLike,
        novel: ArrayLike,
        objective: AnyObjective = "gmean",
        **facts: Any,
    ) -> Evidence:
        """From strangeness of known points (inf where the class is wrong) and of novel points.

        `facts` are those of `weigh`.
        """
        return weigh(known, novel, objective, **facts)[0]

    def value(self, eta: Any, objective: AnyObjective, shift: float = 0.0) -> Any:
        """The objective at one or many cuts, were the class stranger by `shift` than it is."""
        known, novel = self.accuracies(eta)[0], self.accuracies(eta - shift)[1]
        return resolved_for(objective, self.share)(known, novel)

    def accuracies(self, eta: Any) -> tuple[Floats, Floats]:
        """Known and novel accuracy at one or many cuts, linear between those recorded."""
        # np.interp overflows where cuts nearly touch.
        left = np.clip(np.searchsorted(self.cuts, eta, side="right") - 1, 0, self.cuts.size - 2)
        below, above = self.cuts[left], self.cuts[left + 1]
        gap = np.asarray(above - below)
        into = np.clip(eta, below, above) - below
        part = np.divide(into, gap, out=np.ones_like(gap), where=gap > 0)
        known = self.known[left] + part * (self.known[left + 1] - self.known[left])
        return known, self.novel[left] + part * (self.novel[left + 1] - self.novel[left])


def weigh(
    known: ArrayLike,
    novel: ArrayLike,
    objective: AnyObjective = "gmean",
    *,
    stands_for: float = 1.0,
    discovered: bool = False,
    label: Any = None,
    won: ArrayLike | None = None,
    known_then: Sequence[Any] = (),
) -> tuple[Evidence, EtaChoice | None]:
    """The evidence of one class, and the cut it asks for; None if no known point is right.

    Parameters
    ----------
    known : array-like of shape (n,)
        Strangeness of known points, inf where the class is wrong: such a point is wrong at any cut.
    novel : array-like of shape (m,)
        Strangeness of the class met as novel.
    objective : str, objective or callable
    stands_for : float
        How many points each known one stands for: those that calibrate stand for all.
    discovered : bool
    label : object
    won : array-like of shape (m,), optional
        The known class that each novel point is most similar to.
    known_then : sequence
        The classes known when it was met.
    """
    known, novel = np.asarray(known, dtype=float), np.asarray(novel, dtype=float)
    right = np.isfinite(known)
    weight = None if stands_for == 1 else np.full(np.count_nonzero(right), stands_for)
    choice = None
    if right.any():
        choice = search_eta(known[right], novel, objective, known_weight=weight)
    curve = eta_curve(known, novel)
    kept = spread(curve.eta.size, _POINTS)
    landed = {}
    if won is not None:
        some = np.argsort(novel, kind="stable")[spread(novel.size, _POINTS)]
        landed = {"strangeness": novel[some], "won": np.asarray(won)[some]}
    piece = Evidence(
        cuts=curve.eta[kept],
        known=curve.known_accuracy[kept],
        novel=curve.novel_accuracy[kept],
        eta=choice.eta if choice else 1.0,
        share=novel.size / (known.size * stands_for + novel.size),
        informative=choice is not None and choice.informative,
        discovered=discovered,
        label=label,
        known_then=tuple(known_then),
        **landed,
    )
    return piece, choice


def resolved_for(objective: AnyObjective, share: float) -> ObjectiveFunction:
    """The objective as a function of known and novel accuracy, where `share` is novel."""
    resolved = resolve_objective(objective)
    function = resolved.function(share) if resolved is not None else objective
    assert callable(function)
    return function


def telling(evidence: Sequence[Evidence]) -> Sequence[Evidence]:
    """The pieces that have a say in a cut: all, if none tells known from novel."""
    if not evidence:
        raise ValueError("evidence is empty: at least 1 class must have been held out")
    return [piece for piece in evidence if piece.informative] or evidence


def halving(evidence: Sequence[Evidence], objective: AnyObjective) -> float:  # noqa: ARG001
    """The paper's: the mean of the held-out classes, then half way to each discovery in turn."""
    folds = [piece.eta for piece in evidence if not piece.discovered]
    found = [piece.eta for piece in evidence if piece.discovered]
    return RULES["halving"](folds, found) if folds else RULES["halving"](found[:1], found[1:])


def mean(evidence: Sequence[Evidence], objective: AnyObjective) -> float:  # noqa: ARG001
    """Every piece counts alike."""
    return RULES["mean"]([piece.eta for piece in evidence], [])


def median(evidence: Sequence[Evidence], objective: AnyObjective) -> float:  # noqa: ARG001
    """One odd class cannot swing it."""
    return float(np.median([piece.eta for piece in evidence]))


def consensus(evidence: Sequence[Evidence], objective: AnyObjective) -> float:
    """The cut that is best for all pieces together, by the mean of their objectives.

    A piece with a flat optimum hardly cares and has little say; one with a sharp optimum has much.
    """
    cuts = np.unique(np.concatenate([piece.cuts for piece in evidence]))
    return _best(cuts, np.sum([piece.value(cuts, objective) for piece in evidence], axis=0))


def robust(evidence: Sequence[Evidence], objective: AnyObjective) -> float:
    """As consensus, but for classes like these rather than for these very ones.

    A class to come may lie nearer to the known ones than those met, or farther: each piece stands
    for classes whose strangeness is shifted by about one deviation, as a normal distribution is.
    """
    cuts = np.unique(np.add.outer(np.concatenate([piece.cuts for piece in evidence]), SHIFTS))
    cuts = cuts[spread(cuts.size, _CANDIDATES)]  # of many classes there would be too many
    values = [piece.value(cuts, objective, shift) for piece in evidence for shift in SHIFTS]
    return _best(cuts, np.sum(values, axis=0))


def _best(cuts: Floats, values: Floats) -> float:
    """The middle of the best cuts, or the first where they do not lie together."""
    best = np.flatnonzero(values >= values.max() - 1e-12 * abs(values.max()))
    return float((cuts[best[0]] + cuts[best[-1]]) / 2) if _unbroken(best) else float(cuts[best[0]])


COMBINATIONS: Mapping[str, Combine] = {
    "halving": halving,
    "mean": mean,
    "median": median,
    "consensus": consensus,
    "robust": robust,
}


@dataclass(frozen=True)
class Selection:
    """A score, a rule and a cut, and what made them the choice.

    Attributes
    ----------
    score, rule : str
    eta : float
        The cut for that score by that rule, from all evidence.
    expected : float
        Mean objective over the pieces, each at the cut that the others give.
    table : dict
        ``(score, rule) -> expected``, for every pair considered.
    """

    score: str
    rule: str
    eta: float
    expected: float
    table: Mapping[tuple[str, str], float]


def combine(
    evidence: Sequence[Evidence], rule: str = "consensus", objective: AnyObjective = "gmean"
) -> float:
    """One cut from all evidence.

    Parameters
    ----------
    evidence : sequence of Evidence
        In the order in which it came.
    rule : {"halving", "mean", "median", "consensus", "robust"}
    objective : str, objective or callable

    Examples
    --------
    >>> from limen.selection import Evidence, combine
    >>> sharp = Evidence.of(known=[0.0, 0.9], novel=[1.1, 2.0])
    >>> flat = Evidence.of(known=[0.0, 0.5], novel=[9.5, 10.0])
    >>> combine([sharp, flat], "mean")
    3.0
    >>> combine([sharp, flat], "consensus")
    1.0
    """
    if rule not in COMBINATIONS:
        raise ValueError(unknown_name("rule", rule, COMBINATIONS))
    return COMBINATIONS[rule](telling(evidence), objective)


def expected_value(
    evidence: Sequence[Evidence], rule: str, objective: AnyObjective = "gmean"
) -> float:
    """Mean objective over the pieces, each at the cut that the others give by `rule`."""
    cuts = _by_the_others(evidence, rule, objective)
    pairs = zip(evidence, cuts, strict=True)
    return float(np.mean([piece.value(cut, objective) for piece, cut in pairs]))


def expected_accuracies(
    evidence: Sequence[Evidence], rule: str, objective: AnyObjective = "gmean"
) -> tuple[float, float]:
    """Known and novel accuracy, mean over the pieces, each at the cut that the others give."""
    cuts = _by_the_others(evidence, rule, objective)
    both = [piece.accuracies(cut) for piece, cut in zip(evidence, cuts, strict=True)]
    known, novel = np.mean(both, axis=0)
    return float(known), float(novel)


def _by_the_others(evidence: Sequence[Evidence], rule: str, objective: AnyObjective) -> list[float]:
    """For each piece the cut of all others; of a single one, its own."""
    if len(evidence) < 2:
        return [combine(evidence, rule, objective)]
    others = [[*evidence[:place], *evidence[place + 1 :]] for place in range(len(evidence))]
    return [combine(pieces, rule, objective) for pieces in others]


def select(
    evidence: Mapping[str, Sequence[Evidence]],
    objective: AnyObjective = "gmean",
    rules: Sequence[str] = tuple(COMBINATIONS),
) -> Selection:
    """The score and rule that would have done best for each class, judged by the others.

    Parameters
    ----------
    evidence : mapping
        Score name -> evidence gathered with that score; the same classes for every score.
    objective : str, objective or callable
    rules : sequence of str
        Those to choose from. Of equally good ones the first is taken.
    """
    if not evidence:
        raise ValueError("evidence is empty: at least 1 score is needed")
    table = {
        (score, rule): expected_value(pieces, rule, objective)
        for score, pieces in evidence.items()
        for rule in rules
    }
    score, rule = max(table, key=lambda pair: table[pair])
    eta = combine(evidence[score], rule, objective)
    return Selection(score, rule, eta, table[score, rule], table)


def spread(size: int, most: int) -> NDArray[np.intp]:
    """At most so many places, from the first to the last."""
    return np.linspace(0, size - 1, min(size, most)).round().astype(int)


def _unbroken(places: Any) -> bool:
    return bool(places[-1] - places[0] == len(places) - 1)
