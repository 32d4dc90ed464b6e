"""The trainings of one seed: a model without each known class, and the model that meets the others.

Nothing here depends on a policy or an objective: strangeness is recorded, cuts are judged later.
Units are independent of each other, so they run in any order and anywhere, and give the same
numbers: one thread each, every random number from the seed.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.calibration import ClassStatistics, DegenerateClassWarning
from limen.datasets import Dataset
from limen.experiment.config import RunConfig
from limen.experiment.files import read_arrays, read_json, write_arrays, write_json
from limen.experiment.plan import (
    Unit,
    calibration_rows,
    class_order,
    data_of,
    novel_of,
    scores_of,
    training_rows,
)
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


def view(arrays: Arrays, score: str) -> Arrays:
    """What was recorded with one score; a run with a single score does not name it."""
    mine = f"{score}/"
    named = {n.removeprefix(mine): array for n, array in arrays.items() if n.startswith(mine)}
    return named or arrays


def run_fold(config: RunConfig, unit: Unit, work: Path | None, keep_model: bool = False) -> Arrays:
    """Train without one class: strangeness of the others, and of the one held out.

    ``known`` is infinite where the class is wrong: such a point is wrong at every cut.
    """
    data, start = data_of(config), time.perf_counter()
    known, _ = class_order(config, data.n_classes, unit.seed)
    others = [label for label in known if label != unit.held_out]
    rows = _rows_of(others, lambda label: training_rows(config, unit, data, label))
    held_out = data.X_train[data.y_train == unit.held_out]
    with Pulse(work, unit) as pulse:
        model = _network(config, unit, pulse)
        arrays: Arrays = {}
        if config.calibration == 0:
            similarity = model.fit_similarity(data.X_train[rows], data.y_train[rows])
            statistics, z, right = _calibrate(model, similarity, data.y_train[rows])
            arrays["known"] = np.where(right, z, np.inf)
            arrays["novel"] = statistics.strangeness(model.similarity(held_out))
        else:
            model.fit(data.X_train[rows], data.y_train[rows])
            rows = _rows_of(others, lambda label: calibration_rows(config, data, label))
            usual, novel = (model.embedding(X) for X in (data.X_train[rows], held_out))
            for score in scores_of(config):
                similarity = model.similarity_of_features(usual, score)
                statistics, z, right = _calibrate(model, similarity, data.y_train[rows])
                arrays[f"{score}/known"] = np.where(right, z, np.inf)
                arrays[f"{score}/novel"] = statistics.strangeness(
                    model.similarity_of_features(novel, score)
                )
    if work is not None and keep_model:
        model.save(work / f"model-{unit.name}")
    return {**arrays, "seconds": _seconds(model.history_, start)}


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
        rows = self._training(first)
        network = _network(self.config, self.unit, self.pulse)
        return network.fit(self.data.X_train[rows], self.data.y_train[rows])

    def _training(self, labels: list[int], most: int | None = None) -> NDArray[np.intp]:
        return _rows_of(
            labels, lambda label: training_rows(self.config, self.unit, self.data, label)[:most]
        )

    def _learn(self, model: Any, step: Step) -> Any:
        if not step.learnt:
            return model
        X, y = self.data.X_train, self.data.y_train
        memory = None
        if self.config.accommodation != "soft-freeze":  # which must do without
            rows = self._training(model.classes_.tolist(), self.config.memory)
            memory = (X[rows], y[rows])
        assert step.next is not None
        model.set_params(progress=self.pulse)
        return model.add_class(X[self._training([step.next])], step.next, memory)


def _face(model: Any, config: RunConfig, data: Dataset, label: int | None) -> Step:
    """Everything a policy can be judged by, with the classes known now and the next one."""
    known = model.classes_.tolist()
    usual = np.isin(data.y_train, known)
    if config.calibration:
        rows = _rows_of(known, lambda label: calibration_rows(config, data, label))
        usual = np.isin(np.arange(len(usual)), rows)
    test = np.isin(data.y_test, known)
    novel = novel_of(config) if label is None else data.X_train[data.y_train == label]
    inputs = (data.X_train[usual], data.X_test[test], novel)
    y_usual, y_test = data.y_train[usual], data.y_test[test]
    if config.calibration == 0:
        looked = [model.similarity(X) for X in inputs]
        return Step(known, label, _judged(model, looked, y_usual, y_test))
    embedded = [model.embedding(X) for X in inputs]
    arrays: Arrays = {}
    for score in scores_of(config):
        looked = [model.similarity_of_features(part, score) for part in embedded]
        judged = _judged(model, looked, y_usual, y_test)
        arrays |= {f"{score}/{name}": array for name, array in judged.items()}
    return Step(known, label, arrays)


def _judged(model: Any, similarities: list[Any], y_usual: Any, y_test: Any) -> Arrays:
    """Strangeness and correctness, from the similarity of usual, test and novel points."""
    usual, test, novel = similarities
    known = model.classes_.tolist()
    statistics, z_usual, right = _calibrate(model, usual, y_usual)
    won = test.argmax(axis=1)
    columns = np.array([known.index(c) for c in y_test.tolist()])
    confusion = np.zeros((len(known), len(known)), dtype=np.int64)
    np.add.at(confusion, (columns, won), 1)
    return {
        "train": z_usual,
        "train_right": right,
        "test": statistics.strangeness(test),
        "test_right": won == columns,
        "novel": statistics.strangeness(novel),
        "confusion": confusion,
    }


def _rows_of(labels: list[int], rows: Callable[[int], NDArray[np.intp]]) -> NDArray[np.intp]:
    """Rows of several classes, in the order of the data."""
    return np.sort(np.concatenate([rows(label) for label in labels]))


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
    from limen.shels.network import PRESETS

    part = 0 if unit.held_out is None else 1 + unit.held_out
    seed = int(np.random.SeedSequence([unit.seed, part]).generate_state(1)[0])
    network: Any = _NETWORKS.get(config.dataset)
    if config.norm and network is not None:
        network = replace(PRESETS[network], norm=True)
    fold_epochs = config.epochs if unit.held_out is None else config.fold_epochs
    return SHELSClassifier(
        network,
        epochs=fold_epochs or config.epochs,
        lr=config.lr,
        batch_size=config.batch_size,
        alpha=config.alpha,
        beta=config.beta,
        scale=config.scale,
        augment=config.augment,
        schedule=config.schedule,
        accommodation=config.accommodation,
        accommodation_epochs=config.accommodation_epochs,
        accommodation_steps=config.accommodation_steps,
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
