"""Three ways to learn one new class; each changes a network that has a fresh row for it already."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from limen.shels.losses import distillation, group_sparsity, sever, soft_freeze
from limen.shels.network import SHELSNetwork
from limen.shels.scores import ClassFeatures, Floats
from limen.shels.training import Compare, Data, Event, Penalty, Report, features_of, train


@dataclass(frozen=True)
class Lesson:
    """What an accommodation is given.

    Attributes
    ----------
    network : SHELSNetwork
        With a fresh last row for the new class; to be changed in place.
    new : Data
        Inputs of the new class.
    old : Data or None
        Stored inputs of the classes known so far.
    activities : list of tensors
        How active each node of each hidden layer is on what was learnt so far.
    stored : ClassFeatures
        Features of stored examples of the old classes.
    epochs, steps, lr, batch_size, alpha, beta, distillation, scale, augment, schedule
        As given to the estimator, or its defaults.
    generator, report
        For random draws and for progress.
    """

    network: SHELSNetwork
    new: Data
    old: Data | None
    activities: list[Tensor]
    stored: ClassFeatures
    epochs: int
    steps: int | None
    lr: float
    batch_size: int
    alpha: float
    beta: float
    distillation: float
    scale: float
    augment: str | None
    schedule: str
    generator: torch.Generator
    report: Report


Accommodation: TypeAlias = Callable[[Lesson], list[Event]]


def by_soft_freeze(lesson: Lesson) -> list[Event]:
    """SHELS: the new class alone, while nodes that matter for the old are held where they are."""
    network = lesson.network
    rows = torch.ones(len(network.rows), device=network.rows.device)
    rows[-1] = 0
    activities = [*lesson.activities, rows]
    sever(network.weights(), activities, network.map_size)
    old_weights = [weight.detach().clone() for weight in network.weights()]
    old_biases = [bias.detach().clone() for bias in network.biases()]

    def penalty() -> Tensor:
        weights = network.weights()
        moved = soft_freeze(weights, network.biases(), old_weights, old_biases, activities)
        return lesson.alpha * group_sparsity(weights) + lesson.beta * moved

    return _train(lesson, lesson.new, penalty)


def by_replay(lesson: Lesson) -> list[Event]:
    """Fine-tune on the new class and stored examples of the old, every class equally often.

    With distillation, what the network used to say of the old classes it goes on saying.
    """
    if lesson.old is None:
        raise ValueError(
            "accommodation='replay' needs stored examples of the old classes: pass memory=(X, y), "
            "or use 'soft-freeze' or 'prototype'"
        )
    old, new = lesson.old, lesson.new
    data = Data(
        torch.cat([old.inputs, new.inputs]), torch.cat([old.columns, new.columns]), new.format
    )
    classes = [torch.nonzero(data.columns == c)[:, 0] for c in data.columns.unique()]

    def draw() -> Tensor:
        # As many of each class as there are of the new one, without repeats while they last; or
        # as many as fill the steps.
        total = lesson.steps * lesson.batch_size if lesson.steps else len(new) * len(classes)
        parts = [_sample(rows, -(-total // len(classes)), lesson.generator) for rows in classes]
        rows = torch.cat(parts)
        return rows[torch.randperm(len(rows), generator=lesson.generator)[:total]]

    def penalty() -> Tensor:
        return lesson.alpha * group_sparsity(lesson.network.weights())

    if not lesson.distillation:
        return _train(lesson, data, penalty, draw)
    before = copy.deepcopy(lesson.network).eval()

    def compare(x: Tensor, cosines: Tensor) -> Tensor:
        with torch.no_grad():
            old = before(x)[1][:, : -lesson.network.config.turns]  # but for the fresh rows
        return lesson.distillation * distillation(cosines, old, lesson.scale)

    return _train(lesson, data, penalty, draw, compare)


def by_prototype(lesson: Lesson) -> list[Event]:
    """No training: the new row points from the mean of the old classes to that of the new one.

    Features are never negative, so plain class means all lean the same way; what sets the new class
    apart is the difference. The row is made as long as the others are.
    """
    network = lesson.network
    new = _mean_direction(features_of(network, lesson.new.inputs, lesson.new.format))
    columns = range(len(network.rows) - 1)
    old = torch.stack([_mean_direction(lesson.stored.of_class(c)) for c in columns]).mean(dim=0)
    with torch.no_grad():
        length = network.rows[:-1].norm(dim=1).mean()
        network.rows[-1] = length * functional.normalize(new - old, dim=0).to(length.device)
    return []


ACCOMMODATIONS: Mapping[str, Accommodation] = {
    "soft-freeze": by_soft_freeze,
    "replay": by_replay,
    "prototype": by_prototype,
}


def _train(
    lesson: Lesson,
    data: Data,
    penalty: Penalty,
    draw: Callable[[], Tensor] | None = None,
    compare: Compare | None = None,
) -> list[Event]:
    return train(
        lesson.network,
        data,
        penalty=penalty,
        epochs=lesson.epochs,
        lr=lesson.lr,
        batch_size=lesson.batch_size,
        generator=lesson.generator,
        report=lesson.report,
        phase="accommodation",
        draw=draw,
        compare=compare,
        scale=lesson.scale,
        augment=lesson.augment,
        schedule=lesson.schedule,
    )


def _mean_direction(features: Floats) -> Tensor:
    return functional.normalize(torch.from_numpy(features)).mean(dim=0)


def _sample(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    rounds = -(-count // len(rows))
    shuffled = [rows[torch.randperm(len(rows), generator=generator)] for _ in range(rounds)]
    return torch.cat(shuffled)[:count]
