"""The trainings of one seed: a model without each known class, and the model that meets the others.

Units are independent of each other, so they run in any order and anywhere, and give the same
numbers: one thread each, every random number from the seed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.datasets import Dataset
from limen.exemplars import pick
from limen.experiment.config import CHOSEN, RENEWED, RunConfig
from limen.experiment.files import read_arrays, read_json, write_arrays, write_json
from limen.experiment.judging import (
    Arrays,
    Looks,
    Step,
    after,
    again,
    judge_held_out,
    judge_step,
)
from limen.experiment.plan import (
    Unit,
    class_order,
    data_of,
    novel_of,
    scores_of,
    training_rows,
    usual_rows,
)
from limen.experiment.pulse import Pulse
from limen.shels.scores import STATISTICAL
from limen.storage import ModelFileError

Rows: TypeAlias = NDArray[np.intp]
Decide: TypeAlias = Callable[[list[Step]], bool]

# The networks of the paper; others are made for the shape of the data.
_NETWORKS = {
    **{name: name for name in ("digits", "mnist", "fashion-mnist", "cifar10")},
    **{"svhn": "cifar10", "gtsrb": "cifar10"},
}
# Settings that SHELS takes as they are.
_LESSON = (
    *("accommodation", "accommodation_epochs", "accommodation_steps", "accommodation_lr"),
    *("beta", "distillation"),
)
_TRAINING = (
    *("lr", "batch_size", "alpha", "scale", "augment", "schedule", "norm", "turns"),
    *_LESSON,
)


def run_fold(config: RunConfig, unit: Unit, work: Path | None, keep_model: bool = False) -> Arrays:
    """Train without one class, and look at the others and at the one held out."""
    data, start = data_of(config), time.perf_counter()
    known, _ = class_order(config, data.n_classes, unit.seed)
    others = [label for label in known if label != unit.held_out]
    rows = _rows_of(others, lambda label: training_rows(config, unit, data, label))
    usual = _rows_of(others, lambda label: usual_rows(config, unit, data, label))
    X, y = data.X_train, data.y_train
    path = work and work / f"model-{unit.name}"
    scores, inputs, seen = scores_of(config), {"novel": X[y == unit.held_out]}, {}
    with Pulse(work, unit) as pulse:
        model = _kept_model(path)
        if model is not None:
            inputs["usual"] = X[usual]
        elif len(scores) == 1 and not config.calibration and not config.memory:
            model = _network(config, unit, pulse)
            seen["usual"] = model.fit_similarity(X[rows], y[rows])
        else:
            model = _network(config, unit, pulse).fit(X[rows], y[rows])
            inputs["usual"] = X[usual]
        memory = Memory().taking_in(others, model, config, unit, data)
        if _compares(config):
            _compare_with(model, data, memory)
        stored = _among_stored(usual, model, memory, config)
        looks = Looks(model, scores, seen, stored, **inputs)
        arrays = judge_held_out(looks, model.classes_, y[usual])
        if path is not None and keep_model:
            model.save(path)
        if config.evidence == RENEWED:
            arrays |= _held_out_later(model, memory, config, unit, data)
    return {**arrays, "seconds": _seconds(model.history_, start)}


def _held_out_later(
    model: Any, memory: Memory, config: RunConfig, unit: Unit, data: Dataset
) -> Arrays:
    """The same again whenever a class has been learnt: the network stays, so no step is taken."""
    assert unit.held_out is not None
    first, coming = class_order(config, data.n_classes, unit.seed)
    model.set_params(**{name: getattr(config, name) for name in _LESSON})
    held_out = Memory().taking_in([unit.held_out], model, config, unit, data)
    arrays: Arrays = {}
    for met, label in enumerate(coming[:-1], start=len(first) + 1):
        model.add_class(data.X_train[training_rows(config, unit, data, label)], label)
        memory = memory.taking_in([label], model, config, unit, data)
        if _compares(config):
            _compare_with(model, data, memory)
        novel = held_out.rows(unit.held_out)
        arrays |= _judge_kept(model, memory, novel, config, data, after(met))
    return arrays


def _judge_kept(
    model: Any, memory: Memory, novel: Rows, config: RunConfig, data: Dataset, name: str
) -> Arrays:
    """`judge_held_out` by what is kept of the classes a model knows."""
    usual = _rows_of(model.classes_.tolist(), memory.usual.__getitem__)
    X, y = data.X_train, data.y_train
    stored = _among_stored(usual, model, memory, config)
    looks = Looks(model, scores_of(config), stored=stored, usual=X[usual], novel=X[novel])
    return judge_held_out(looks, model.classes_, y[usual], name)


@dataclass(frozen=True)
class Memory:
    """Rows that are kept of each class once it is learnt: to train on, and to calibrate by."""

    replay: dict[int, Rows] = field(default_factory=dict)
    usual: dict[int, Rows] = field(default_factory=dict)

    def taking_in(
        self, labels: list[int], model: Any, config: RunConfig, unit: Unit, data: Dataset
    ) -> Memory:
        """With what is kept of more classes, picked by what the model makes of them."""
        replay, usual = dict(self.replay), dict(self.usual)
        for label in labels:
            trained = training_rows(config, unit, data, label)
            tells = usual_rows(config, unit, data, label)
            if config.memory:
                rng = np.random.default_rng([unit.seed, label])
                aside = _calibrating(config)
                features = _unit_features(model, data.X_train[trained], config.memory_choice)
                picked = pick(features, config.memory - aside, config.memory_choice, rng=rng)
                kept = trained[picked]
                tells = rng.permutation(tells)[:aside] if aside else kept
                trained = kept if len(kept) else tells
            replay[label], usual[label] = np.sort(trained), np.sort(tells)
        return Memory(replay, usual)

    def rows(self, label: int) -> Rows:
        """All that is kept of a class."""
        return np.union1d(self.replay[label], self.usual[label])

    def write(self, path: Path) -> None:
        parts = {"replay": self.replay, "usual": self.usual}
        write_arrays(path, {f"{n}-{c}": r for n, part in parts.items() for c, r in part.items()})

    @classmethod
    def read(cls, path: Path) -> Memory:
        memory = cls()
        for name, rows in read_arrays(path).items():
            part, _, label = name.partition("-")
            getattr(memory, part)[int(label)] = rows
        return memory


def _calibrating(config: RunConfig) -> int:
    """How many of the images kept of a class calibrate and are never trained on."""
    if not config.calibration:
        return 0
    # Where nothing is trained again and no example is looked at, all of them may.
    unused = config.accommodation == "prototype" and config.score == STATISTICAL
    return config.memory if unused else 3 * config.memory // 10


def _unit_features(model: Any, X: Any, strategy: str) -> NDArray[Any]:
    """Features of length one; none at all where the strategy does not look."""
    if strategy == "reservoir":
        return np.empty((len(X), 0))
    features = model.features(X)
    unit: NDArray[Any] = features / np.maximum(np.linalg.norm(features, axis=1)[:, None], 1e-12)
    return unit


def _compares(config: RunConfig) -> bool:
    """Whether scores may look at what is kept, be it little or everything."""
    return bool(config.memory) or config.score == CHOSEN


def _compare_with(model: Any, data: Dataset, memory: Memory) -> None:
    rows = _rows_of(model.classes_.tolist(), memory.replay.__getitem__)
    model.remember(data.X_train[rows], data.y_train[rows])


def _among_stored(
    rows: Rows, model: Any, memory: Memory, config: RunConfig
) -> NDArray[np.intp] | None:
    """Where these rows are among the examples that the model compares with; -1: nowhere."""
    if not _compares(config):
        return None
    stored = _rows_of(model.classes_.tolist(), memory.replay.__getitem__)
    place = np.minimum(np.searchsorted(stored, rows), len(stored) - 1)
    return np.where(stored[place] == rows, place, -1)


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
                before = steps[-1] if steps and config.memory else None
                step = _face(model, models.memory, config, unit, data, label, before)
                if config.evidence == RENEWED:
                    _face_again(step, model, models.memory, config, data, coming[:number])
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
    memory: Memory = field(default_factory=Memory)  # of the latest
    history: list[Any] = field(default_factory=list)  # of the training for the latest

    def after(self, steps: list[Step]) -> Any:
        """The model once these steps are taken."""
        if self.latest[0] == len(steps):
            return self.latest[1]
        first = class_order(self.config, self.data.n_classes, self.unit.seed)[0]
        met, self.history = len(first) + len(steps), []
        path = self.work and self.work / f"model-{met}"
        kept = self.work and self.work / f"memory-{met}.npz"
        model = _kept_model(path)
        if model is not None and kept is not None and kept.exists():
            self.memory = Memory.read(kept)
        else:
            if model is None:
                before = self.after(steps[:-1]) if steps else None
                seen = len(before.history_) if before else 0
                model = self._learn(before, steps[-1]) if before else self._start(first)
                self.history = model.history_[seen:]
            self.memory = self._taking_in(model)
            if _compares(self.config):
                _compare_with(model, self.data, self.memory)
            if path is not None and kept is not None:
                self.memory.write(kept)  # first: a model that is there has its memory
                model.save(path)
        self.latest = (len(steps), model)
        return model

    def _taking_in(self, model: Any) -> Memory:
        new = [c for c in model.classes_.tolist() if c not in self.memory.replay]
        return self.memory.taking_in(new, model, self.config, self.unit, self.data)

    def _start(self, first: list[int]) -> Any:
        rows = self._training(first)
        network = _network(self.config, self.unit, self.pulse)
        return network.fit(self.data.X_train[rows], self.data.y_train[rows])

    def _training(self, labels: list[int]) -> Rows:
        return _rows_of(
            labels, lambda label: training_rows(self.config, self.unit, self.data, label)
        )

    def _learn(self, model: Any, step: Step) -> Any:
        if not step.learnt:
            return model
        X, y = self.data.X_train, self.data.y_train
        memory = None
        if self.config.accommodation != "soft-freeze":  # which must do without
            rows = _rows_of(model.classes_.tolist(), self.memory.replay.__getitem__)
            memory = (X[rows], y[rows])
        assert step.next is not None
        # A model taken over from another run may have been told to learn otherwise.
        model.set_params(progress=self.pulse, **{n: getattr(self.config, n) for n in _LESSON})
        return model.add_class(X[self._training([step.next])], step.next, memory)


def _face(
    model: Any,
    memory: Memory,
    config: RunConfig,
    unit: Unit,
    data: Dataset,
    label: int | None,
    before: Step | None,
) -> Step:
    """Everything a policy can be judged by, with the classes known now and the next one."""
    known = model.classes_.tolist()
    new = known if before is None else [c for c in known if c not in before.known]
    kept = _rows_of(known, memory.usual.__getitem__)
    fresh = _rows_of(new, lambda c: usual_rows(config, unit, data, c)) if new else kept[:0]
    usual = np.union1d(kept, fresh)
    test = np.isin(data.y_test, known)
    novel = novel_of(config) if label is None else data.X_train[data.y_train == label]
    looks = Looks(
        model,
        scores_of(config),
        stored=_among_stored(usual, model, memory, config),
        usual=data.X_train[usual],
        test=data.X_test[test],
        novel=novel,
    )
    arrays = judge_step(
        looks,
        model.classes_,
        data.y_train[usual],
        np.isin(usual, kept),
        data.y_test[test],
        before,
    )
    return Step(known, label, arrays)


def _face_again(
    step: Step, model: Any, memory: Memory, config: RunConfig, data: Dataset, learnt: list[int]
) -> None:
    """What the classes learnt before the last would look like, had they not been learnt."""
    for label in learnt[:-1]:  # nothing has been learnt since the last was met
        never, novel = model.without_class(label), memory.rows(label)
        step.arrays.update(_judge_kept(never, memory, novel, config, data, again(label)))


def _rows_of(labels: list[int], rows: Callable[[int], Rows]) -> Rows:
    """Rows of several classes, in the order of the data."""
    return np.sort(np.concatenate([rows(label) for label in labels]))


def _network(config: RunConfig, unit: Unit, pulse: Pulse) -> Any:
    part = 0 if unit.held_out is None else 1 + unit.held_out
    seed = int(np.random.SeedSequence([unit.seed, part]).generate_state(1)[0])
    folded = unit.held_out is not None and config.fold_epochs
    return network(config, folded or config.epochs, seed, pulse)


def network(config: RunConfig, epochs: int, seed: int, progress: Any = False) -> Any:
    """What a run trains, not trained yet."""
    from limen.shels import SHELSClassifier

    return SHELSClassifier(
        _NETWORKS.get(config.dataset),
        epochs=epochs,
        score="dot" if config.score == CHOSEN else config.score,
        **{name: getattr(config, name) for name in _TRAINING},
        device="cpu",
        threads=1,
        random_state=seed,
        progress=progress,
    )


def _seconds(history: list[Any], start: float) -> NDArray[np.float64]:
    """In training steps, and in all."""
    return np.array([sum(epoch["seconds"] for epoch in history), time.perf_counter() - start])


def _kept_model(path: Path | None) -> Any:
    from limen.shels import SHELSClassifier

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
