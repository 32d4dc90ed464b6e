"""What makes a cut good: objectives as functions of known and novel accuracy.

Every objective here grows (or stays) when either accuracy grows. `search_eta` relies on that to
skip most of the sorting; an objective of your own is a plain function and need not be monotone.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
ObjectiveFunction: TypeAlias = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Objective:
    """A named objective with its settings, ready to be given as ``objective=``.

    Made by `known_rate` and `cost`. For an objective of your own pass a plain function of
    (known_accuracy, novel_accuracy) instead.

    Attributes
    ----------
    name : str
    settings : tuple of (str, float)
        What it was made with.
    """

    name: str
    settings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in _FORMULAS:
            raise ValueError(unknown_name("objective", self.name, _FORMULAS))

    def function(self, novel_share: float) -> ObjectiveFunction:
        """What to maximise, where `novel_share` is the weight of the novel points in the search."""
        formula = _FORMULAS[self.name]
        return partial(formula, share=novel_share, **dict(self.settings))


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
    return Objective("known_rate", (("keep", _checked("share", share, 0.0, 1.0)),))


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
    expected = _checked("novel_share", novel_share, 0.0, 1.0)
    settings = (("per_miss", expected * miss), ("per_alarm", (1 - expected) * false_alarm))
    return Objective("cost", settings)


def _total(known: Floats, novel: Floats, share: float) -> Floats:  # noqa: ARG001
    return (known + novel) / 2


def _gmean(known: Floats, novel: Floats, share: float) -> Floats:  # noqa: ARG001
    return np.sqrt(known * novel)


def _pooled(known: Floats, novel: Floats, share: float) -> Floats:
    return (1 - share) * known + share * novel


def _f1(known: Floats, novel: Floats, share: float) -> Floats:
    caught, false_alarms = share * novel, (1 - share) * (1 - known)
    with np.errstate(divide="ignore"):
        # 2 / (1 + q / caught) rounds monotonically in both accuracies; the usual form does not.
        return 2 / (1 + (false_alarms + share) / caught)


def _known_rate(known: Floats, novel: Floats, share: float, keep: float) -> Floats:  # noqa: ARG001
    # Weighted sums round, so the share may be missed by an ulp without being missed.
    return np.where(known >= keep - 1e-12, novel, known - keep)


def _cost(
    known: Floats,
    novel: Floats,
    share: float,  # noqa: ARG001
    per_miss: float,
    per_alarm: float,
) -> Floats:
    return -(per_alarm * (1 - known) + per_miss * (1 - novel))


_FORMULAS: Mapping[str, Callable[..., Floats]] = {
    "gmean": _gmean,
    "total": _total,
    "pooled": _pooled,
    "f1": _f1,
    "known_rate": _known_rate,
    "cost": _cost,
}
_WITH_SETTINGS = ("known_rate", "cost")


def resolve_objective(objective: str | Objective | ObjectiveFunction) -> Objective | None:
    """The objective of that name; None for a plain function, of which nothing is known."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, str):
        if objective in _WITH_SETTINGS:
            raise ValueError(
                f"objective={objective!r} needs its settings: pass limen.{objective}(...)"
            )
        return Objective(objective)
    if callable(objective):
        return None
    raise TypeError(
        "objective must be a name, an objective made by limen.known_rate or limen.cost, or a "
        f"function of (known_accuracy, novel_accuracy), got {type(objective).__name__}"
    )


def unknown_name(parameter: str, given: object, options: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest that does.

    >>> unknown_name("colour", "rde", ["red", "blue"])
    "unknown colour 'rde'. Did you mean 'red'? Known: red, blue."
    >>> unknown_name("row", "x", map(str, range(46)))[-33:]
    '7, 8, 9, 10, 11, ... (46 in all).'
    """
    options = list(options)
    near = difflib.get_close_matches(str(given), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    shown = options if len(options) <= 24 else [*options[:12], f"... ({len(options)} in all)"]
    return f"unknown {parameter} {given!r}.{hint} Known: {', '.join(shown)}."


def _checked(name: str, value: float, low: float, high: float) -> float:
    if not isinstance(value, Real) or not (low <= value <= high and math.isfinite(value)):
        bound = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise ValueError(f"{name} must be a finite number, {bound}, got {value!r}")
    return float(value)
