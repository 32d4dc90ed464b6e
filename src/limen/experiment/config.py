"""What a run is: every setting, resolved, and told apart from how it is carried out."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from limen.class_cuts import BY_CLASS
from limen.datasets import NAMES
from limen.exemplars import STRATEGIES
from limen.objectives import unknown_name
from limen.selection import COMBINATIONS
from limen.shels.scores import DEEP_SCORES, SCORES, STATISTICAL
from limen.shels.settings import (
    ACCOMMODATION_NAMES,
    AUGMENTATION_NAMES,
    EPOCHS_FOR_A_NEW_CLASS,
    SCHEDULES,
    TRAINING,
    rate_for_a_new_class,
)

OBJECTIVES = ("gmean", "total")
POLICIES = ("shels", "cheating", "ours", "limen", "rate95")  # limen: in runs of its own method
CHOSEN = "chosen"  # by what held-out and discovered classes show
# Evidence: of today, of the day a class was met, or that of the first classes alone.
RENEWED, AS_MET, HELD_OUT = "renewed", "as-met", "held-out"


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
    epochs, batch_size, lr, alpha, beta
        Of SHELS.
    score : str
        Of SHELS; ``"chosen"``: all are tried, and the evidence chooses.
    rule : {"by-class", "chosen", "halving", "mean", "median", "consensus", "robust"}
        How limen combines evidence: to a cut for every class, or to one for all;
        ``"chosen"``: to one, as the evidence itself says.
    evidence : {"as-met", "renewed", "held-out"}
        Classes held out or discovered count as they were met, or, where the network stays as it is,
        as they would be met today: held out again next to all classes learnt since. Or only those
        held out at the start count, and no discovery improves the cut.
    accommodation, accommodation_epochs, accommodation_lr
        How a new class is learnt.
    method : {"paper", "limen"}
        The paper's: one score, calibrated on training points, folds at full cost, soft freezing.
        limen's: the score is chosen too, cheap folds, cuts for every class, bounded memory.
    scale, augment, schedule, norm, turns, distillation
        Of SHELS, where limen departs from the paper.
    calibration : float
        Share of every class kept out of training to say what is usual; 0: the training points do.
    fold_epochs : int, optional
        For the models with a class held out; None: as `epochs`.
    fold_share : float
        Of the training images of each class, for these.
    accommodation_steps : int, optional
        For replay, instead of epochs.
    memory : int
        Images kept of each class once it is learnt, to train on and to calibrate by (with
        `calibration`, three tenths only calibrate); 0: all.
    memory_choice : {"reservoir", "herding", "k-centre"}
        Which.
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
    rule: str = CHOSEN
    evidence: str = AS_MET
    accommodation: str = "soft-freeze"
    accommodation_epochs: int = 8
    accommodation_lr: float = 5e-5
    method: str = "paper"
    scale: float = 1.0
    augment: str | None = None
    schedule: str = "constant"
    norm: bool = False
    turns: int = 1
    distillation: float = 0.0
    calibration: float = 0.0
    fold_epochs: int | None = None
    fold_share: float = 1.0
    accommodation_steps: int | None = None
    memory: int = 0
    memory_choice: str = "reservoir"
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
            usual |= _limen(dataset, preset, int(given.get("epochs", usual["epochs"])))
        accommodation = str(given.get("accommodation", usual.get("accommodation", "soft-freeze")))
        if accommodation != "prototype" and usual.get("score") == STATISTICAL:
            usual["score"] = CHOSEN  # statistics do not outlive training
        if accommodation != "prototype":
            usual.pop("evidence", None)  # nor does what a model with a class held out has learnt
        rate = rate_for_a_new_class(accommodation, dataset)
        if given.get("method") == "limen" and accommodation == "replay":
            rate = _REPLAY_RATE
        lesson = {"accommodation_lr": rate * given.get("lr", usual["lr"])}
        if preset != "smoke" or accommodation == "prototype":
            lesson["accommodation_epochs"] = EPOCHS_FOR_A_NEW_CLASS[accommodation]
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
        if not 0 < self.fold_share <= 1:
            raise ConfigError(f"fold_share must be above 0 and at most 1, got {self.fold_share!r}")
        if self.turns not in (1, 4):
            raise ConfigError(f"turns must be 1 or 4, got {self.turns}")
        if self.method == "paper" and self.score == CHOSEN:
            raise ConfigError("the paper's method has one score: name it, or take method limen")
        if self.score == STATISTICAL and self.accommodation != "prototype":
            raise ConfigError(
                f"score {self.score} needs a network that stays: take accommodation prototype, or "
                "another score"
            )
        if self.method == "paper" and self.rule != CHOSEN:
            raise ConfigError(f"rule {self.rule} goes with method limen: the paper's is halving")
        stays = self.method == "limen" and self.accommodation == "prototype"
        if self.evidence == RENEWED and not stays:
            raise ConfigError(
                "evidence renewed needs method limen and a network that stays: take accommodation "
                "prototype too, or evidence as-met"
            )
        if 0 < self.memory < 4:
            raise ConfigError("memory must be 0 for all, or at least 4: some of it calibrates")
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
    settings["memory"] = settings["memory"] or 0  # was None for all
    settings.pop("fold_per_class", None)  # was never set in a run that was kept
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
    """What the paper trains with; sets it does not use are trained like CIFAR-10."""
    return dict(TRAINING.get(dataset, TRAINING["cifar10"]))


def _small(paper: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """A sixth of the images and six tenths of the epochs: a tenth of the work."""
    per_class = 100 if dataset == "digits" else 1000
    return {"per_class": per_class, "epochs": max(1, round(0.6 * paper["epochs"]))}


def _limen(dataset: str, preset: str, epochs: int) -> dict[str, Any]:
    """limen's own training: docs/method.md tells how each setting was chosen."""
    recipe = _RECIPES.get(dataset, {"lr": 1e-3, "norm": True})
    # Turns take longer to learn: more often over fewer images. All folds cost a quarter, or little.
    fold_epochs = max(2, epochs // 3) if "turns" in recipe else max(1, epochs // 4)
    return {
        **{"scale": 10.0, "schedule": "one-cycle", "score": CHOSEN, "rule": "robust"},
        **{"memory": _MEMORY[preset], "fold_epochs": fold_epochs},
        "fold_share": min(1.0, max(0.5, epochs / (4 * fold_epochs))),
        **{"accommodation": "replay", "accommodation_steps": 100, "distillation": 3.0},
        **recipe,
    }


# What tells turned pictures apart need not be trained again for a new class, statistics of all
# points ever learnt judge better than a few examples, and classes can be held out again at no cost:
# such evidence is good enough for a cut of every class.
_TURNED: Mapping[str, Any] = {
    **{"turns": 4, "accommodation": "prototype", "score": STATISTICAL},
    **{"evidence": RENEWED, "rule": BY_CLASS},
}
# Digits have no mirror images; of photographs and clothes they are as good as the originals.
_RECIPES: Mapping[str, Mapping[str, Any]] = {
    "digits": {"lr": 1e-3, "norm": True, **_TURNED},
    "mnist": {"lr": 1e-3, "norm": True, "augment": "shift", **_TURNED},
    "fashion-mnist": {"lr": 1e-3, "norm": True, "augment": "flip", **_TURNED},
    "cifar10": {"lr": 1e-3, "norm": True, "augment": "shift-flip"},
    "svhn": {"lr": 1e-3, "norm": True, "augment": "shift"},
}
_REPLAY_RATE = 0.3  # of lr: at the full rate a small memory is learnt by heart
_MEMORY = {"paper": 250, "small": 50, "smoke": 10}  # at most 5 % of 1,000, and of CIFAR-10's 5,000
# Seconds: enough to see everything run, not enough to mean anything.
_SMOKE: Mapping[str, Any] = {
    **{"per_class": 40, "test_per_class": 20, "epochs": 2, "lr": 1e-3},
    "accommodation_epochs": 1,
}
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
    "augment": AUGMENTATION_NAMES,
    "schedule": SCHEDULES,
    "accommodation": ACCOMMODATION_NAMES,
    "score": (*SCORES, *DEEP_SCORES, CHOSEN),
    "rule": (*COMBINATIONS, CHOSEN, BY_CLASS),
    "evidence": (AS_MET, RENEWED, HELD_OUT),
    "memory_choice": tuple(STRATEGIES),
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
    "distillation": 0,
    **{"lr": _ABOVE, "accommodation_lr": _ABOVE, "scale": _ABOVE},
    **{"fold_epochs": 1, "accommodation_steps": 1, "memory": 0},
}
