"""A cut for every class, all made together from what was met as novel.

Where classes are crowded, a class to come lies close, and a strict cut is worth the known points it
costs; where a class stands alone it is not. One cut for all must be wrong for some. Direction: a
point is known if its strangeness is below the cut of the class it is most similar to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limen.objectives import Floats
from limen.selection import SHIFTS, AnyObjective, Evidence, combine, resolved_for, spread, telling

BY_CLASS = "by-class"  # the name of this rule
_CUTS = 200  # that are tried for a class
_BORROWED = 10  # points of all classes that help to say what is usual for one
_ROUNDS = 20


def class_cuts(
    evidence: Sequence[Evidence],
    known: ArrayLike,
    labels: ArrayLike,
    classes: ArrayLike,
    objective: AnyObjective = "gmean",
) -> Floats:
    r"""The cut of each class, (C,), that together serve classes like those met best.

    Each class met as novel counts once as it was met, its points landing on the known classes on
    which they landed, and once as one that lands on any one of the known classes instead, each as
    likely: few classes are met, and where the next will land nobody knows. Of a class that was not
    known then, what was met says nothing: for that share of the classes it counts as landing there
    too. As with the rule ``"robust"`` each stands for classes that are nearer or farther by about
    one deviation. With :math:`K_c(t)` the share of all known points that are of class c, right, and
    below t (a class of few points borrows from all), :math:`N_{jc}(t)` the share of class j that
    lands on c at or above t, and :math:`A_j` those of the C classes that were known when j was met,
    the cuts maximise

    .. math:: \sum_j \Big[ \frac{|A_j|}{C} f\big(\textstyle\sum_c K_c(t_c), \sum_c N_{jc}(t_c)\big)
       + \frac{1}{C} \sum_d (1 + [d \notin A_j])\,
       f\big(\textstyle\sum_c K_c(t_c), \sum_c N_{jc}(t_d)\big) \Big]

    one class after the other, from the single cut of ``"robust"``, until none changes.

    Parameters
    ----------
    evidence : sequence of Evidence
        Those made with `won` and `known_then` say where a class landed; others count as landing
        anywhere.
    known : array-like of shape (n,)
        Strangeness of known points by the model in use, inf where the class is wrong.
    labels : array-like of shape (n,)
        Their classes.
    classes : array-like of shape (C,)
    objective : str, objective or callable

    Examples
    --------
    What is near lands on b, what is far on a: b is the stricter of the two.

    >>> from limen.selection import Evidence
    >>> known, labels = [0.0, 1.0, 2.0, 3.0] * 2, ["a"] * 4 + ["b"] * 4
    >>> near = Evidence.of(known, [1.4, 1.5, 1.6], won=["b"] * 3, known_then=["a", "b"])
    >>> far = Evidence.of(known, [7.0, 8.0, 9.0], won=["a"] * 3, known_then=["a", "b"])
    >>> a, b = class_cuts([near, far, far], known, labels, ["a", "b"])
    >>> bool(b < a)
    True
    """
    pieces = telling(evidence)
    strangeness, of = np.asarray(known, dtype=float), np.asarray(labels)
    names = np.asarray(classes).tolist()
    finite = strangeness[np.isfinite(strangeness)]
    cuts = np.unique(np.concatenate([finite, *(piece.cuts for piece in pieces)]))
    cuts = cuts[spread(cuts.size, _CUTS)]
    usual = np.stack([_usual(strangeness, of == c, cuts) for c in names])
    worth = [
        _worth(piece, cuts, names, resolved_for(objective, piece.share), usual) for piece in pieces
    ]
    one = combine(evidence, "robust", objective)
    if not any(piece.informative for piece in pieces):
        return np.full(len(names), one)
    chosen = np.full(len(names), np.searchsorted(cuts, one).clip(0, cuts.size - 1))
    for _ in range(_ROUNDS):
        before = chosen.copy()
        for c in range(len(names)):
            values = np.sum([value(chosen, c) for value in worth], axis=0)
            if values[chosen[c]] < values.max() - 1e-9 * abs(values.max()):
                chosen[c] = int(values.argmax())
        if np.array_equal(before, chosen):
            break
    found: Floats = cuts[chosen]
    return found


def _worth(
    piece: Evidence,
    cuts: Floats,
    names: list[Any],
    function: Callable[[Floats, Floats], Floats],
    usual: Floats,
) -> Callable[[NDArray[np.intp], int], Floats]:
    """What every cut of one class is worth to a piece, given the cuts of the other classes."""
    landed = _landed(piece, cuts, names)
    if landed is None:
        caught = np.mean([piece.accuracies(cuts - shift)[1] for shift in SHIFTS], axis=0)
    else:
        caught = landed.sum(axis=0)
    columns = np.arange(len(names))
    then = np.array([landed is not None and name in piece.known_then for name in names], float)

    def value(chosen: NDArray[np.intp], c: int) -> Floats:
        others = columns != c
        known = usual[others, chosen[others]].sum() + usual[c]
        novel = np.tile(caught[chosen], (cuts.size, 1))  # were it to land on each class alone
        novel[:, c] = caught
        elsewhere = function(np.repeat(known[:, None], len(names), axis=1), novel)
        total: Floats = (elsewhere * (2.0 - then)).mean(axis=1)
        if landed is not None:
            as_met = function(known, landed[others, chosen[others]].sum() + landed[c])
            total += then.mean() * as_met
        return total

    return value


def _usual(strangeness: Floats, mine: NDArray[np.bool_], cuts: Floats) -> Floats:
    """The share of all points that are of one class and below each cut.

    Strangeness is in units of each class, so that a class of few points may look at the others.
    """
    own, every = _below(strangeness[mine], cuts), _below(strangeness, cuts) / len(strangeness)
    count = np.count_nonzero(mine)
    share: Floats = (own + _BORROWED * every) / (count + _BORROWED) * count / len(strangeness)
    return share


def _landed(piece: Evidence, cuts: Floats, names: list[Any]) -> Floats | None:
    """Of all points of a piece, the share that lands on each class and is caught, (C, cuts)."""
    if not len(piece.won):
        return None
    counts = []
    for name in names:
        mine = piece.strangeness[piece.won == name]
        below = np.mean([_below(mine, cuts - shift) for shift in SHIFTS], axis=0)
        counts.append(len(mine) - below)
    return np.stack(counts) / len(piece.won)


def _below(points: Floats, cuts: Floats) -> Floats:
    """How many of the points are below each cut."""
    counts: Floats = np.searchsorted(np.sort(points), cuts, side="left").astype(float)
    return counts
