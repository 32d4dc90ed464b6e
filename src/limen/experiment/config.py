"""What a run is: every setting, resolved, and told apart from how it is carried out."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from limen.datasets import NAMES
from limen.objectives import unknown_name

OBJECTIVES = ("gmean", "total")
POLICIES = ("shels", "cheating", "ours", "limen", "rate95")  # limen: in runs of its own method
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
    method : {"paper", "limen"}
        The paper's: one score, calibrated on training points, folds at full cost, soft freezing.
        limen's: the score is chosen too, calibration on held-out points, cheap folds, replay.
    scale, augment, schedule, norm
        Of SHELS, where limen departs from the paper.
    calibration : float
        Share of every class kept out of training to say what is usual; 0: the training points do.
    fold_epochs : int, optional
        For the models with a class held out; None: as `epochs`.
    fold_per_class : int, optional
        Training images of each class for these; None: all.
    accommodation_steps : int, optional
        For replay, instead of epochs.
    memory : int, optional
        Training images of each known class that replay can draw on; None: all.
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
    method: str = "paper"
    scale: float = 1.0
    augment: str | None = None
    schedule: str = "constant"
    norm: bool = False
    calibration: float = 0.0
    fold_epochs: int | None = None
    fold_per_class: int | None = None
    accommodation_steps: int | None = None
    memory: int | None = None
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
        cls._check_kinds(given)
        dataset, preset = given["dataset"], given.get("preset", "paper")
        usual = {**_paper(dataset), **_PRESETS[preset](_paper(dataset), dataset)}
        if given.get("method") == "limen":
            usual |= _limen(dataset, usual)
        lesson = {}
        rate = _RATES.get(dataset, 0.5)
        accommodation = str(given.get("accommodation", usual.get("accommodation")))
        if accommodation in _LESSONS:
            rate, lesson = 1.0, _LESSONS[accommodation]
        lesson = {**lesson, "accommodation_lr": rate * given.get("lr", usual["lr"])}
        config = cls(**{**usual, **lesson, **given, "preset": preset})
        config._check()
        return config

    @classmethod
    def _check_kinds(cls, given: Mapping[str, Any]) -> None:
        for field in dataclasses.fields(cls):
            value, kinds = given.get(field.name), _KINDS[str(field.type)]
            if value is None:
                continue
            if isinstance(value, bool) is not (bool in kinds) or not isinstance(value, kinds):
                raise ConfigError(f"{field.name} must be {field.type}, got {value!r}")

    def _check(self) -> None:
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and not lowest <= value < math.inf:
                least = "above 0" if lowest == _ABOVE else f"at least {lowest}"
                raise ConfigError(f"{name} must be {least}, got {value!r}")
        if not 0 <= self.calibration < 1:
            raise ConfigError(f"calibration must lie between 0 and 1, got {self.calibration!r}")
        if self.method == "limen" and self.calibration == 0:
            raise ConfigError("method limen needs calibration points: give calibration above 0")
        if not 0 < self.alarm_level < 1:
            raise ConfigError(f"alarm_level must lie between 0 and 1, got {self.alarm_level!r}")
        if self.method == "limen" and self.policy_detects:
            raise ConfigError("policy_detects goes with the paper's method only, so far")
        if self.novel == self.dataset:
            raise ConfigError("novel must be another data set than dataset")
        if self.novel and self.policy_detects:
            raise ConfigError("policy_detects needs a stream of classes: it does not go with novel")

    def settings(self) -> dict[str, Any]:
        """Every setting by name."""
        return dataclasses.asdict(self)


def identity(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must share to be the same run: all but what is only shown.

    Settings that did not exist yet when a run was stored had their default.
    """
    fields = dataclasses.fields(RunConfig)
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    settings = {**defaults, **stored}
    shown = {"class_names"}
    if not settings["policy_detects"]:
        shown |= {"objective", "alarm_batch", "alarm_level"}
    return {name: value for name, value in settings.items() if name not in shown}


def read_settings(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, as flags would give them."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
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
    return {"epochs": _EPOCHS.get(dataset, 35), "lr": lr}


def _small(paper: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """A sixth of the images and six tenths of the epochs: a tenth of the work."""
    per_class = 100 if dataset == "digits" else 1000
    return {"per_class": per_class, "epochs": max(1, round(0.6 * paper["epochs"]))}


def _limen(dataset: str, usual: Mapping[str, Any]) -> dict[str, Any]:
    """limen's own training: see docs/method.md for how each setting was chosen."""
    return {
        **{"lr": 1e-3, "scale": 10.0, "schedule": "one-cycle", "norm": True},
        "augment": _AUGMENT.get(dataset),
        "calibration": 0.1,
        "accommodation": "replay",
        "accommodation_steps": 100,
        "fold_epochs": max(1, round(usual["epochs"] / 5)),
    }


# Digits have no mirror images; of photographs and clothes they are as good as the originals.
_AUGMENT = {"mnist": "shift", "fashion-mnist": "flip", "cifar10": "shift-flip", "svhn": "shift"}
# Seconds: enough to see everything run, not enough to mean anything.
_SMOKE: Mapping[str, Any] = {
    **{"per_class": 40, "test_per_class": 20, "epochs": 2, "lr": 1e-3},
    "accommodation_epochs": 1,
}
_EPOCHS = {"digits": 40, "mnist": 10, "fashion-mnist": 20}  # others as CIFAR-10
_PRESETS: Mapping[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
    "paper": lambda _paper, _dataset: {},
    "small": _small,
    "smoke": lambda _paper, _dataset: _SMOKE,
}
_CHOICES = {
    "dataset": NAMES,
    "novel": NAMES,
    "preset": tuple(_PRESETS),
    "objective": OBJECTIVES,
    "method": ("paper", "limen"),
    "augment": ("shift", "flip", "shift-flip"),
    "schedule": ("constant", "one-cycle"),
    "accommodation": ACCOMMODATIONS,
    "score": (
        "dot",
        "cosine",
        "prototype",
        "mahalanobis",
        "knn",
        "map-knn",
        "deep-knn",
        "energy",
        "msp",
    ),
}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "bool": (bool,),
}
_ABOVE = 1e-300
_LOWEST: Mapping[str, float] = {
    **{"known": 3, "per_class": 1, "test_per_class": 1, "epochs": 1, "batch_size": 1},
    **{"accommodation_epochs": 0, "alarm_batch": 1, "alpha": 0, "beta": 0},
    **{"lr": _ABOVE, "accommodation_lr": _ABOVE, "scale": _ABOVE},
    **{"fold_epochs": 1, "fold_per_class": 2, "accommodation_steps": 1, "memory": 1},
}
_RATES = {"mnist": 0.1}  # of lr, for soft freezing; see docs/reproduction.md
_LESSONS: Mapping[str, dict[str, int]] = {
    "replay": {"accommodation_epochs": 2},
    "prototype": {"accommodation_epochs": 0},
}
