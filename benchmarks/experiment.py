"""One seed of MNIST `small`, every policy and both objectives: what is not training?"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import ROOT, Row
from limen.experiment.config import RunConfig
from limen.experiment.files import read_json
from limen.experiment.plan import class_order, data_of, steps_of, units_of
from limen.experiment.run import run as carry_out


def run() -> list[Row]:
    config = RunConfig.resolve({"dataset": "mnist", "preset": "small"})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        carry_out(config, [0], Path(folder), jobs=2)
        wall = time.perf_counter() - start
        training, total = seconds_of(Path(folder) / "facts-000.json")
    rows = [
        Row(
            "one seed of MNIST small: share of time not in training steps",
            1 - training / total,
            "< 0.10",
        ),
        Row("the same, if judging were bare forward passes and nothing else", judging(config), ""),
        Row(
            "the same: time of all units / two cores for as long as it took", total / (2 * wall), ""
        ),
    ]
    recorded = sorted((ROOT / "results" / "mnist-paper").glob("facts-*.json"))
    if recorded:
        training, total = np.sum([seconds_of(path) for path in recorded], axis=0)
        what = "MNIST paper, seeds under results/: share of time not in training steps"
        rows.append(Row(what, 1 - training / total, "< 0.10"))
    return rows


def seconds_of(facts: Path) -> tuple[float, float]:
    """In training steps, and in all."""
    units = read_json(facts)["seconds"].values()
    return sum(unit["training"] for unit in units), sum(unit["total"] for unit in units)


def judging(config: RunConfig) -> float:
    """The least share of the work that judging can take: a training image costs three passes."""
    data = data_of(config)
    known, coming = class_order(config, data.n_classes, 0)
    training = np.bincount(data.y_train)
    test = np.bincount(data.y_test)
    judged = len(known) * training[known].sum()  # each fold: the other classes, and its own
    for met, label in enumerate(coming, start=len(known)):
        seen = [*known, *coming][:met]
        judged += training[seen].sum() + test[seen].sum() + training[label]
    steps = sum(steps_of(config, data, unit) for unit in units_of(config, data.n_classes, 0))
    return float(judged / (judged + 3 * config.batch_size * steps))
