"""The trainings of one seed: a model without each known class, and the model that meets the others.

Nothing here depends on a policy or an objective: strangeness is recorded, cuts are judged later.
Units are independent of each other, so they run in any order and anywhere, and give the same
numbers: one thread each, every random number from the seed.
"""

from __future__ import annotations

import functools
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.calibration import ClassStatistics, DegenerateClassWarning
from limen.datasets import NAMES, Dataset, DatasetError, load, read
from limen.datasets.shapes import bring_to
from limen.experiment.config import RunConfig
from limen.experiment.files import read_arrays, read_json, write_arrays, write_json
from limen.experiment.pulse import Pulse
from limen.storage import ModelFileError

Arrays: TypeAlias = dict[str, NDArray[Any]]
Decide: TypeAlias = Callable[[list["Step"]], bool]

# The networks of the paper; others are made for the shape of the data.
_NETWORKS = {
    **{name: name for name in ("digits", "mnist", "fashion-mnist", "cifar10")},
    **{"svhn": "cifar10", "gtsrb": "cifar10"},
}


@dataclass(frozen=True)
class Unit:
    """One training job of a seed: a class held out, or (None) the stream."""

    seed: int
    held_out: int | None

    @property
    def name(self) -> str:
        return "stream" if self.held_out is None else f"fold-{self.held_out}"


@dataclass(frozen=True)
class Step:
    """The model with some classes known, faced with the next one.

    arrays : strangeness and whether the class is right, of training and test points of the known
    classes; strangeness of the next class's training points; the confusion matrix on the test
    points, rows true, columns won, in the order of `known`.
    """

    known: list[int]
    next: int | None  # None: another data set
    arrays: Arrays
    learnt: bool | None = None  # whether the class was then learnt; None: the stream ends here


def class_order(config: RunConfig, n_classes: int, seed: int) -> tuple[list[int], list[int]]:
    """Classes known from the start, and those to come in turn."""
    order = np.random.default_rng(seed).permutation(n_classes).tolist()
    first = n_classes if config.novel else config.known
    return order[:first], order[first:]


def units_of(config: RunConfig, n_classes: int, seed: int) -> list[Unit]:
    """The longest first, so that no worker is left alone with it at the end."""
    known, _ = class_order(config, n_classes, seed)
    return [Unit(seed, None), *(Unit(seed, label) for label in sorted(known))]


def steps_of(config: RunConfig, data: Dataset, unit: Unit) -> int:
    """How many optimiser steps a unit takes, if every class is learnt."""
    known, coming = class_order(config, data.n_classes, unit.seed)
    per_class = np.bincount(data.y_train, minlength=data.n_classes)

    def steps(classes: Sequence[int], epochs: int) -> int:
        return epochs * -(-int(per_class[list(classes)].sum()) // config.batch_size)

    if unit.held_out is not None:
        return steps([label for label in known if label != unit.held_out], config.epochs)
    lessons = sum(steps([label], config.accommodation_epochs) for label in coming[:-1])
    return steps(known, config.epochs) + lessons


@functools.lru_cache(maxsize=2)
def data_of(config: RunConfig) -> Dataset:
    """What a run is trained and tested on; each process reads it once."""
    return _named(config.dataset).first(config.per_class, config.test_per_class)


@functools.lru_cache(maxsize=2)
def novel_of(config: RunConfig) -> NDArray[Any]:
    """The test split of the other data set, in the shape of the known one."""
    assert config.novel is not None
    other = _named(config.novel).first(None, config.test_per_class)
    known = data_of(config).X_test
    if other.X_test.dtype != known.dtype:
        raise DatasetError(
            f"{config.novel} holds {other.X_test.dtype} and {config.dataset} {known.dtype}: bring "
            "both to the same type"
        )
    return bring_to(other.X_test, known.shape[1:])


def _named(dataset: str) -> Dataset:
    return load(dataset) if dataset in NAMES else read(dataset)


def run_fold(config: RunConfig, unit: Unit, work: Path | None, keep_model: bool = False) -> Arrays:
    """Train without one class: strangeness of the others, and of the one held out.

    ``known`` is infinite where the class is wrong: such a point is wrong at every cut.
    """
    data, start = data_of(config), time.perf_counter()
    known, _ = class_order(config, data.n_classes, unit.seed)
    others = np.isin(data.y_train, [label for label in known if label != unit.held_out])
    with Pulse(work, unit) as pulse:
        model = _network(config, unit, pulse)
        similarity = model.fit_similarity(data.X_train[others], data.y_train[others])
        statistics, z, right = _calibrate(model, similarity, data.y_train[others])
        held_out = data.X_train[data.y_train == unit.held_out]
        novel = statistics.strangeness(model.similarity(held_out))
    if work is not None and keep_model:
        model.save(work / f"model-{unit.name}")
    return {
        "known": np.where(right, z, np.inf),
        "novel": novel,
        "seconds": _seconds(model.history_, start),
    }


def run_stream(
    config: RunConfig, unit: Unit, work: Path | None, decide: Decide | None = None
) -> list[Step]:
    """Train on the first classes, then face and learn the others one by one.

    Where `work` is given, every step is kept there and a second call goes on from the last.
    `decide` is asked after each step whether the class is to be learnt; by default it is.
    """
    data = data_of(config)
    first, coming = class_order(config, data.n_classes, unit.seed)
    to_face: list[int | None] = [*coming] or [None]
    steps: list[Step] = []
    with Pulse(work, unit) as pulse:
        models = _Models(config, unit, data, work, pulse)
        for number, label in enumerate(to_face):
            step = _kept_step(work, len(first) + number)
            if step is None:
                start = time.perf_counter()
                model = models.after(steps)
                step = _face(model, config, data, label)
                step.arrays["seconds"] = _seconds(models.history, start)
                _keep_step(work, len(first) + number, step)
            last = number == len(to_face) - 1
            learnt = None if last else decide is None or decide([*steps, step])
            steps.append(replace(step, learnt=learnt))
    return steps


@dataclass
class _Models:
    """The model of every step: as kept, or made from the one before."""

    config: RunConfig
    unit: Unit
    data: Dataset
    work: Path | None
    pulse: Pulse
    latest: tuple[int, Any] = (-1, None)  # how many steps it has behind it, and the model
    history: list[Any] = field(default_factory=list)  # of the training for the latest

    def after(self, steps: list[Step]) -> Any:
        """The model once these steps are taken."""
        if self.latest[0] == len(steps):
            return self.latest[1]
        first = class_order(self.config, self.data.n_classes, self.unit.seed)[0]
        met, self.history = len(first) + len(steps), []
        model = _kept_model(self.work, met)
        if model is None:
            before = self.after(steps[:-1]) if steps else None
            seen = len(before.history_) if before else 0
            model = self._learn(before, steps[-1]) if before else self._start(first)
            self.history = model.history_[seen:]
            if self.work is not None:
                model.save(self.work / f"model-{met}")
        self.latest = (len(steps), model)
        return model

    def _start(self, first: list[int]) -> Any:
        known = np.isin(self.data.y_train, first)
        network = _network(self.config, self.unit, self.pulse)
        return network.fit(self.data.X_train[known], self.data.y_train[known])

    def _learn(self, model: Any, step: Step) -> Any:
        if not step.learnt:
            return model
        X, y = self.data.X_train, self.data.y_train
        memory = None
        if self.config.accommodation != "soft-freeze":  # which must do without
            known = np.isin(y, model.classes_)
            memory = (X[known], y[known])
        model.set_params(progress=self.pulse)
        return model.add_class(X[y == step.next], step.next, memory)


def _face(model: Any, config: RunConfig, data: Dataset, label: int | None) -> Step:
    """Everything a policy can be judged by, with the classes known now and the next one."""
    known = model.classes_.tolist()
    train, test = np.isin(data.y_train, known), np.isin(data.y_test, known)
    usual = model.similarity(data.X_train[train])
    statistics, z_train, right_train = _calibrate(model, usual, data.y_train[train])
    similarity = model.similarity(data.X_test[test])
    won = similarity.argmax(axis=1)
    columns = np.array([known.index(c) for c in data.y_test[test].tolist()])
    confusion = np.zeros((len(known), len(known)), dtype=np.int64)
    np.add.at(confusion, (columns, won), 1)
    novel = novel_of(config) if label is None else data.X_train[data.y_train == label]
    arrays = {
        "train": z_train,
        "train_right": right_train,
        "test": statistics.strangeness(similarity),
        "test_right": won == columns,
        "novel": statistics.strangeness(model.similarity(novel)),
        "confusion": confusion,
    }
    return Step(known, label, arrays)


def _calibrate(model: Any, similarity: Any, y: Any) -> tuple[ClassStatistics, Any, Any]:
    """What is usual, with strangeness and correctness of the points it was taken from."""
    with warnings.catch_warnings():
        # A class forgotten altogether is a finding: the record shows it in its confusion matrix.
        warnings.simplefilter("ignore", DegenerateClassWarning)
        statistics = ClassStatistics.from_scores(similarity, y, classes=model.classes_)
    right = model.classes_[similarity.argmax(axis=1)] == y
    return statistics, statistics.strangeness(similarity), right


def _network(config: RunConfig, unit: Unit, pulse: Pulse) -> Any:
    from limen.shels import SHELSClassifier

    part = 0 if unit.held_out is None else 1 + unit.held_out
    seed = int(np.random.SeedSequence([unit.seed, part]).generate_state(1)[0])
    return SHELSClassifier(
        _NETWORKS.get(config.dataset),
        epochs=config.epochs,
        lr=config.lr,
        batch_size=config.batch_size,
        alpha=config.alpha,
        beta=config.beta,
        accommodation=config.accommodation,
        accommodation_epochs=config.accommodation_epochs,
        accommodation_lr=config.accommodation_lr,
        score=config.score,
        device="cpu",
        threads=1,
        random_state=seed,
        progress=pulse,
    )


def _seconds(history: list[Any], start: float) -> NDArray[np.float64]:
    """In training steps, and in all."""
    return np.array([sum(epoch["seconds"] for epoch in history), time.perf_counter() - start])


def _kept_model(work: Path | None, met: int) -> Any:
    from limen.shels import SHELSClassifier

    path = work and work / f"model-{met}"
    if path is None or not (path / "manifest.json").exists():
        return None
    try:
        return SHELSClassifier.load(path)
    except ModelFileError:  # damaged: as good as not there
        shutil.rmtree(path)
        return None


def _keep_step(work: Path | None, met: int, step: Step) -> None:
    if work is not None:
        write_json(work / f"step-{met}.json", {"known": step.known, "next": step.next})
        write_arrays(work / f"step-{met}.npz", step.arrays)


def _kept_step(work: Path | None, met: int) -> Step | None:
    if work is None or not (work / f"step-{met}.npz").exists():
        return None
    facts = read_json(work / f"step-{met}.json")
    return Step(facts["known"], facts["next"], read_arrays(work / f"step-{met}.npz"))
