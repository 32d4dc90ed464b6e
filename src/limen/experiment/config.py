"""What a run is: every setting, resolved, and told apart from how it is carried out."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from limen.datasets import NAMES
from limen.objectives import unknown_name

OBJECTIVES = ("gmean", "total")
POLICIES = ("shels", "cheating", "ours", "rate95")
ACCOMMODATIONS = ("soft-freeze", "replay", "prototype")


class ConfigError(ValueError):
    """A setting is wrong; the message says which and what would be right."""


@dataclass(frozen=True)
class RunConfig:
    """All that decides what a run finds. Where numbers are None, the preset decides.

    Attributes
    ----------
    dataset : str
        A name, or the path of one's own data.
    novel : str, optional
        Another data set: all classes of `dataset` are known, this one is novel.
    preset : {"paper", "small", "smoke"}
    known : int
        Classes known at the start.
    per_class, test_per_class : int, optional
        Training and test images of each class; None: all.
    epochs, batch_size, lr, alpha, beta, score
        Of SHELS.
    accommodation, accommodation_epochs, accommodation_lr
        How a new class is learnt.
    policy_detects : bool
        A class is learnt only if the batch alarm fires at the cut of `ours`.
    objective : {"gmean", "total"}
        What `ours` seeks where it decides (`policy_detects`), and what is shown first. Every run
        records both.
    alarm_batch, alarm_level
        Inputs in a batch and level of its test, with `policy_detects`.
    """

    dataset: str
    novel: str | None = None
    preset: str = "paper"
    known: int = 5
    per_class: int | None = None
    test_per_class: int | None = None
    epochs: int = 10
    batch_size: int = 32
    lr: float = 1e-4
    alpha: float = 1e-3
    beta: float = 3000.0
    score: str = "dot"
    accommodation: str = "soft-freeze"
    accommodation_epochs: int = 8
    accommodation_lr: float = 5e-5
    policy_detects: bool = False
    objective: str = "gmean"
    alarm_batch: int = 100
    alarm_level: float = 0.01

    @classmethod
    def resolve(cls, settings: Mapping[str, Any]) -> Self:
        """The preset of the data set, with `settings` (None: not given) on top, all checked.

        >>> RunConfig.resolve({"dataset": "mnist", "preset": "small"}).epochs
        6
        """
        given = {name: value for name, value in settings.items() if value is not None}
        names = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                raise ConfigError(unknown_name("setting", name, names))
        if "dataset" not in given:
            raise ConfigError(f"dataset is needed: one of {', '.join(NAMES)}")
        for name, allowed in _CHOICES.items():
            own = name in ("dataset", "novel") and Path(str(given.get(name))).exists()
            if name in given and given[name] not in allowed and not own:
                raise ConfigError(unknown_name(name, given[name], allowed))
        dataset, preset = given["dataset"], given.get("preset", "paper")
        resolved = {**_paper(dataset), **_PRESETS[preset](_paper(dataset), dataset), **given}
        if "lr" in given and "accommodation_lr" not in given:
            resolved["accommodation_lr"] *= given["lr"] / _paper(dataset)["lr"]
        config = cls(**{**resolved, "preset": preset})
        config._check()
        return config

    def _check(self) -> None:
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), _KINDS[str(field.type)]
            if isinstance(value, bool) is not (bool in kinds) or not isinstance(value, kinds):
                raise ConfigError(f"{field.name} must be {field.type}, got {value!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be above 0, got {value!r}")
        if self.known < 3:
            raise ConfigError(
                f"known must be at least 3, got {self.known}: holding one out leaves 2"
            )
        if self.novel == self.dataset:
            raise ConfigError("novel must be another data set than dataset")
        if self.novel and self.policy_detects:
            raise ConfigError("policy_detects needs a stream of classes: it does not go with novel")

    def identity(self) -> dict[str, Any]:
        """What two runs must share to be the same run: all but what is only shown."""
        facts = dataclasses.asdict(self)
        if not self.policy_detects:
            for name in ("objective", "alarm_batch", "alarm_level"):
                del facts[name]
        return facts

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def read_settings(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, as flags would give them."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return {name.replace("-", "_"): value for name, value in settings.items()}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """One line for each setting that differs; empty where none does."""
    absent = "(none)"
    names = [name for name in {**old, **new} if old.get(name, absent) != new.get(name, absent)]
    return "\n".join(
        f"  {name}: {old.get(name, absent)} there, {new.get(name, absent)} now" for name in names
    )


def _paper(dataset: str) -> dict[str, Any]:
    """What the paper trains with; sets it does not use are trained like the nearest one."""
    lr = 1e-3 if dataset == "digits" else 1e-4
    rate = {"mnist": 0.1}.get(dataset, 0.5)
    return {"epochs": _EPOCHS.get(dataset, 35), "lr": lr, "accommodation_lr": lr * rate}


def _small(paper: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """A sixth of the images and six tenths of the epochs: a tenth of the work."""
    per_class = 100 if dataset == "digits" else 1000
    return {"per_class": per_class, "epochs": max(1, round(0.6 * paper["epochs"]))}


def _smoke(paper: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds: enough to see everything run, not enough to mean anything."""
    return {
        "per_class": 40,
        "test_per_class": 20,
        "epochs": 2,
        "lr": 1e-3,
        "accommodation_epochs": 1,
        "accommodation_lr": 1e-3 * paper["accommodation_lr"] / paper["lr"],
    }


_EPOCHS = {"digits": 40, "mnist": 10, "fashion-mnist": 20}  # others as CIFAR-10
_PRESETS: Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "paper": lambda _paper, _dataset: {},
    "small": _small,
    "smoke": lambda paper, _dataset: _smoke(paper),
}
_CHOICES = {
    "dataset": NAMES,
    "novel": NAMES,
    "preset": tuple(_PRESETS),
    "objective": OBJECTIVES,
    "accommodation": ACCOMMODATIONS,
    "score": ("dot", "cosine", "prototype", "mahalanobis", "knn", "energy", "msp"),
}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "bool": (bool,),
}
_POSITIVE = (
    *("known", "per_class", "test_per_class", "epochs", "batch_size", "lr"),
    *("accommodation_epochs", "accommodation_lr", "alarm_batch"),
)
