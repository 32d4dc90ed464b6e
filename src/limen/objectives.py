"""What makes a cut good: objectives as functions of known and novel accuracy.

Every objective here grows (or stays) when either accuracy grows. `search_eta` relies on that to
skip most of the sorting; an objective of your own is a plain function and need not be monotone.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
ObjectiveFunction: TypeAlias = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Objective:
    """A named objective, ready to be given as ``objective=``.

    Parameters
    ----------
    name : str
        Shown in messages and stored with a model.
    build : callable
        ``build(novel_share)`` returns the function ``f(known_accuracy, novel_accuracy)`` to
        maximise, vectorised over arrays. ``novel_share`` is the weight of the novel points among
        all points of the search.
    settings : dict
        What the objective was made with, so that it can be stored.
    """

    name: str
    build: Callable[[float], ObjectiveFunction] = field(compare=False, repr=False)
    settings: Mapping[str, float] = field(default_factory=dict)


def known_rate(share: float) -> Objective:
    """The best novel accuracy among the cuts that keep at least `share` of the known points.

    Where no cut keeps that many (known points at infinite strangeness), the cut that keeps the
    most is chosen and ``value`` is negative: by how much the share was missed.

    Examples
    --------
    >>> from limen import known_rate, search_eta
    >>> search_eta([1, 2, 3, 4], [2.5, 6, 7], objective=known_rate(0.75)).eta
    5.0
    """
    share = _checked("share", share, 0.0, 1.0)

    def objective(known: Floats, novel: Floats) -> Floats:
        # Weighted sums round, so the share may be missed by an ulp without being missed.
        return np.where(known >= share - 1e-12, novel, known - share)

    return Objective("known_rate", lambda _: objective, {"share": share})


def cost(*, miss: float, false_alarm: float, novel_share: float) -> Objective:
    """Minus the expected cost per input, where `novel_share` of what comes will be novel.

    Parameters
    ----------
    miss : float
        Cost of calling a novel point known.
    false_alarm : float
        Cost of calling a known point novel.
    novel_share : float
        Expected share of novel points in use, between 0 and 1.

    Examples
    --------
    >>> from limen import cost, search_eta
    >>> rare = cost(miss=10, false_alarm=1, novel_share=0.01)
    >>> round(search_eta([1, 2, 3, 4], [2.5, 5, 6], objective=rare).value, 3)
    -0.033
    """
    miss = _checked("miss", miss, 0.0, math.inf)
    false_alarm = _checked("false_alarm", false_alarm, 0.0, math.inf)
    novel_share = _checked("novel_share", novel_share, 0.0, 1.0)
    per_miss, per_alarm = novel_share * miss, (1 - novel_share) * false_alarm

    def objective(known: Floats, novel: Floats) -> Floats:
        return -(per_alarm * (1 - known) + per_miss * (1 - novel))

    return Objective(
        "cost",
        lambda _: objective,
        {"miss": miss, "false_alarm": false_alarm, "novel_share": novel_share},
    )


def _total(_: float) -> ObjectiveFunction:
    return lambda known, novel: (known + novel) / 2


def _gmean(_: float) -> ObjectiveFunction:
    return lambda known, novel: np.sqrt(known * novel)


def _pooled(novel_share: float) -> ObjectiveFunction:
    return lambda known, novel: (1 - novel_share) * known + novel_share * novel


def _f1(novel_share: float) -> ObjectiveFunction:
    def objective(known: Floats, novel: Floats) -> Floats:
        caught = novel_share * novel
        false_alarms = (1 - novel_share) * (1 - known)
        with np.errstate(divide="ignore"):
            # 2 / (1 + q / caught) rounds monotonically in both accuracies; the usual form does not.
            return 2 / (1 + (false_alarms + novel_share) / caught)

    return objective


OBJECTIVES: Mapping[str, Objective] = {
    "gmean": Objective("gmean", _gmean),
    "total": Objective("total", _total),
    "pooled": Objective("pooled", _pooled),
    "f1": Objective("f1", _f1),
}
FACTORIES: Mapping[str, Callable[..., Objective]] = {"known_rate": known_rate, "cost": cost}


def resolve_objective(objective: str | Objective | ObjectiveFunction) -> Objective | None:
    """The objective of that name; None for a plain function, of which nothing is known."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, str):
        if objective in OBJECTIVES:
            return OBJECTIVES[objective]
        if objective in FACTORIES:
            raise ValueError(
                f"objective={objective!r} needs its settings: pass limen.{objective}(...)"
            )
        raise ValueError(unknown_name("objective", objective, [*OBJECTIVES, *FACTORIES]))
    if callable(objective):
        return None
    raise TypeError(
        "objective must be a name, an objective made by limen.known_rate or limen.cost, or a "
        f"function of (known_accuracy, novel_accuracy), got {type(objective).__name__}"
    )


def unknown_name(parameter: str, given: object, options: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest that does."""
    options = list(options)
    near = difflib.get_close_matches(str(given), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {parameter} {given!r}.{hint} Known: {', '.join(options)}."


def _checked(name: str, value: float, low: float, high: float) -> float:
    if not (low <= value <= high and math.isfinite(value)):
        bound = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise ValueError(f"{name} must be a finite number, {bound}, got {value!r}")
    return float(value)
