"""What a seed is made of: units, the classes in turn, and who trains on which rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.datasets import NAMES, Dataset, DatasetError, load, read
from limen.datasets.shapes import bring_to
from limen.experiment.config import CHOSEN, RunConfig
from limen.shels.scores import scores_to_try


@dataclass(frozen=True)
class Unit:
    """One training job of a seed: a class held out, or (None) the stream."""

    seed: int
    held_out: int | None

    @property
    def name(self) -> str:
        return "stream" if self.held_out is None else f"fold-{self.held_out}"


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

    def steps(images: int, epochs: int) -> int:
        return epochs * -(-images // config.batch_size)

    trained = np.array([training_rows(config, unit, data, c).size for c in range(data.n_classes)])
    if unit.held_out is not None:
        others = [label for label in known if label != unit.held_out]
        return steps(int(trained[others].sum()), config.fold_epochs or config.epochs)
    total = steps(int(trained[known].sum()), config.epochs)
    if config.accommodation == "prototype":
        return total
    for met, label in enumerate(coming[:-1], start=len(known) + 1):
        replays = config.accommodation == "replay"
        if replays and config.accommodation_steps:
            total += config.accommodation_steps
        else:  # replay shows every class as often as the new one
            shown = int(trained[label]) * (met if replays else 1)
            total += steps(shown, config.accommodation_epochs)
    return total


def training_rows(config: RunConfig, unit: Unit, data: Dataset, label: int) -> NDArray[np.intp]:
    """Rows of a class that a unit trains on: all, but for those that calibrate."""
    rows = np.flatnonzero(data.y_train == label)
    rows = rows[len(calibration_rows(config, data, label)) :]
    if unit.held_out is None:
        return rows
    return rows[: max(round(config.fold_share * len(rows)), 2)]


def calibration_rows(config: RunConfig, data: Dataset, label: int) -> NDArray[np.intp]:
    """Rows of a class that no unit trains on and that say what is usual; none if all train."""
    rows = np.flatnonzero(data.y_train == label)
    return rows[: max(round(config.calibration * len(rows)), 2)] if config.calibration else rows[:0]


def usual_rows(config: RunConfig, unit: Unit, data: Dataset, label: int) -> NDArray[np.intp]:
    """Rows of a class that say what is usual: those kept out of training, or those trained on."""
    if config.calibration:
        return calibration_rows(config, data, label)
    return training_rows(config, unit, data, label)


def scores_of(config: RunConfig) -> tuple[str, ...]:
    """The scores whose strangeness is recorded."""
    if config.score == CHOSEN:
        return scores_to_try(config.accommodation)
    return (config.score,)


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
