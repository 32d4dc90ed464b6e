"""An eta that starts from held-out classes and improves with every class discovered."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Self, TypeAlias

from limen.objectives import unknown_name

Rule: TypeAlias = Callable[[Sequence[float], Sequence[float]], float]


def halving(folds: Sequence[float], discoveries: Sequence[float]) -> float:
    """The paper's rule: mean over the folds, then half way to each discovery in turn."""
    value = mean(folds, ())
    for eta in discoveries:
        value = (value + eta) / 2
    return value


def mean(folds: Sequence[float], discoveries: Sequence[float]) -> float:
    """Every fold and every discovery counts alike."""
    evidence = [*folds, *discoveries]
    return math.fsum(evidence) / len(evidence)


RULES: Mapping[str, Rule] = {"halving": halving, "mean": mean}
GIVEN = "given"  # no rule: whoever adds evidence says what follows from it


@dataclass(frozen=True)
class EtaEvidence:
    """One piece of evidence: where it came from, what it asked for, and eta after it."""

    source: str
    label: str | int | float | None
    eta: float
    value: float


class ContinualEta:
    """The cut in use, and how it came about.

    Parameters
    ----------
    rule : {"halving", "mean", "given"}, default="halving"
        How evidence is combined. ``"halving"``: the mean over the held-out classes, then half way
        to what each discovered class asks for. ``"mean"``: the mean of all evidence so far.
        ``"given"``: by someone else, who passes the `value` to use with each piece.

    Attributes
    ----------
    value : float
        The eta to use now.
    history : list of EtaEvidence
        Every piece of evidence, oldest first; ``source`` is ``"held out"`` or ``"discovered"``.

    Examples
    --------
    >>> from limen import ContinualEta
    >>> eta = ContinualEta(rule="halving").start([1.2, 0.9, 1.5])
    >>> round(eta.update(1.0, label="zebra").value, 6)
    1.1
    >>> eta.history[-1].source, eta.history[-1].label
    ('discovered', 'zebra')
    >>> ContinualEta.from_json(eta.to_json()).value == eta.value
    True
    """

    def __init__(self, rule: str = "halving") -> None:
        if rule not in RULES and rule != GIVEN:
            raise ValueError(unknown_name("rule", rule, [*RULES, GIVEN]))
        self.rule = rule
        self.history: list[EtaEvidence] = []

    def start(
        self, fold_etas: Iterable[float] | Mapping[Any, float], *, value: float | None = None
    ) -> Self:
        """Begin anew with the etas of the held-out classes, plain or as {label: eta}."""
        named = dict(
            fold_etas.items() if hasattr(fold_etas, "items") else enumerate(list(fold_etas))
        )
        if not named:
            raise ValueError("fold_etas is empty: start needs the eta of at least 1 held-out class")
        etas = {label: _finite("fold_etas", eta) for label, eta in named.items()}
        start = self._value(list(etas.values()), [], value)
        self.history = [
            EtaEvidence("held out", _plain(label), eta, start) for label, eta in etas.items()
        ]
        return self

    def update(
        self,
        eta: float,
        label: str | int | float | None = None,
        *,
        value: float | None = None,
    ) -> Self:
        """Take in what a discovered class asks for. Do so before the class is learnt."""
        discoveries = [*self._etas("discovered"), _finite("eta", eta)]
        now = self._value(self._started(), discoveries, value)
        self.history.append(EtaEvidence("discovered", _plain(label), discoveries[-1], now))
        return self

    @property
    def value(self) -> float:
        self._started()
        return self.history[-1].value

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as plain values."""
        return {"rule": self.rule, "history": [asdict(entry) for entry in self.history]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        restored = cls(state["rule"])
        for entry in state["history"]:
            checked = {name: _finite(name, entry[name]) for name in ("eta", "value")}
            restored.history.append(EtaEvidence(**{**entry, **checked}))
        return restored

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        try:
            return cls.from_dict(json.loads(text))
        except (TypeError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"text is not a stored ContinualEta: {error!r}") from error

    def __repr__(self) -> str:
        state = f"value={self.value:.4g}, {len(self.history)} pieces" if self.history else "empty"
        return f"ContinualEta(rule={self.rule!r}: {state})"

    def _value(
        self, folds: Sequence[float], discoveries: Sequence[float], given: float | None
    ) -> float:
        if (given is None) is (self.rule == GIVEN):
            raise ValueError("value goes with rule='given', and with no other")
        return RULES[self.rule](folds, discoveries) if given is None else _finite("value", given)

    def _etas(self, source: str) -> list[float]:
        return [entry.eta for entry in self.history if entry.source == source]

    def _started(self) -> list[float]:
        folds = self._etas("held out")
        if not folds:
            raise ValueError("no evidence yet: call start(fold_etas) with the held-out classes")
        return folds


def _finite(name: str, eta: float) -> float:
    if not isinstance(eta, Real) or not math.isfinite(eta):
        raise ValueError(
            f"{name} must be finite numbers, got {eta!r} (of a choice, pass choice.eta)"
        )
    return float(eta)


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label
