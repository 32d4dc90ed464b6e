"""Models with a class held out for less, for examples/study.py: share trainings, or stop in time.

Each function fills the work folder of a seed with what `limen run` would train there, and returns
how many training steps that took.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limen.experiment.config import RunConfig
from limen.experiment.files import read_arrays
from limen.experiment.plan import Unit, class_order, data_of, steps_of, training_rows
from limen.experiment.units import network
from limen.shels import SHELSClassifier
from limen.shels.deep_statistics import DeepStatistics
from limen.shels.losses import group_sparsity
from limen.shels.training import Data, train
from limen.threshold import search_eta

SETTLED = 0.1  # deviations between the cuts after two lengths of training


def left_out(config: RunConfig, seed: int, work: Path) -> int:
    """No training at all: the model in use, a class left out of its statistics only."""
    model = SHELSClassifier.load(work / "model-5")
    for label in _known(config, seed):
        model.without_class(label).save(work / f"model-fold-{label}")
    return 0


def three_networks(config: RunConfig, seed: int, work: Path) -> int:
    """A network serves two folds: it has trained on neither class, and learns the other."""
    a, b, c, d, e = _known(config, seed)
    steps = 0
    for pair, others in (((a, b), [c, d, e]), ((c, d), [a, b, e]), ((e,), [a, b, c, d])):
        model = network(config, _epochs(config), _random(seed, *pair)).fit(
            *_images(config, seed, others)
        )
        steps += _steps(config, seed, others, _epochs(config))
        for label in pair:
            fold = model
            for other in set(pair) - {label}:
                images, _ = _images(config, seed, [other])
                fold = SHELSClassifier.from_parts(*model.to_parts()).add_class(images, other)
            fold.save(work / f"model-fold-{label}")
    return steps


def shared_start(config: RunConfig, seed: int, work: Path) -> int:
    """One network trains on all classes for half of the epochs, and goes on without each."""
    known, epochs = _known(config, seed), _epochs(config) // 2
    X, y = _images(config, seed, known)
    start = network(config, epochs, _random(seed)).fit(X, y)
    steps = _steps(config, seed, known, epochs)
    for label in known:
        _go_on(start.without_class(label), config, seed, label).save(work / f"model-fold-{label}")
        steps += _steps(config, seed, [c for c in known if c != label], _epochs(config) - epochs)
    return steps


def _go_on(model: SHELSClassifier, config: RunConfig, seed: int, label: int) -> SHELSClassifier:
    others = model.classes_.tolist()
    X, y = _images(config, seed, others)
    columns = np.array([others.index(c) for c in y.tolist()])
    data = Data(model.input_format_.tensor(X), torch.from_numpy(columns), model.input_format_)
    train(
        model.network_,
        data,
        penalty=lambda: config.alpha * group_sparsity(model.network_.weights()),
        epochs=_epochs(config) - _epochs(config) // 2,
        lr=config.lr,
        batch_size=config.batch_size,
        generator=torch.Generator().manual_seed(_random(seed, label)),
        report=lambda _: None,
        phase="training",
        scale=config.scale,
        augment=config.augment,
        schedule=config.schedule,
    )
    points = model.embedding(X).side_by_side()
    told = DeepStatistics.of(points, columns, model.network_.rows.shape[1])
    model.stored_ = replace(model.stored_, statistics=told)
    return model


def settled(lengths: Mapping[int, str], config: RunConfig, seed: int, work: Path) -> int:
    """Trained anew for ever more epochs, until the cut of a fold hardly moves.

    `lengths`: the runs beside this one that have the folds of so many epochs.
    """
    runs, steps = work.parents[2], 0
    for label in _known(config, seed):
        unit, before = Unit(seed, label), np.inf
        for epochs, run in sorted(lengths.items()):
            fold = runs / run / "work" / work.name / f"{unit.name}.npz"
            steps += steps_of(replace(config, fold_epochs=epochs), data_of(config), unit)
            arrays = read_arrays(fold)
            known = arrays["known"]
            eta = search_eta(known[np.isfinite(known)], arrays["novel"], "gmean").eta
            if abs(eta - before) < SETTLED:
                break
            before = eta
        shutil.copy2(fold, work / fold.name)
    return steps


def _known(config: RunConfig, seed: int) -> list[int]:
    return sorted(class_order(config, data_of(config).n_classes, seed)[0])


def _epochs(config: RunConfig) -> int:
    return config.fold_epochs or config.epochs


def _random(seed: int, *parts: int) -> int:
    return int(np.random.SeedSequence([seed, 77, *parts]).generate_state(1)[0])


def _images(config: RunConfig, seed: int, labels: list[int]) -> tuple[Any, Any]:
    """What a fold of these classes trains on."""
    data, fold = data_of(config), Unit(seed, -1)
    rows = np.sort(np.concatenate([training_rows(config, fold, data, c) for c in labels]))
    return data.X_train[rows], data.y_train[rows]


def _steps(config: RunConfig, seed: int, labels: list[int], epochs: int) -> int:
    return epochs * -(-len(_images(config, seed, labels)[1]) // config.batch_size)
