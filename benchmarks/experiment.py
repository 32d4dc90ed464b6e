"""One seed of MNIST `small`, every policy and both objectives: what is not training?"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.report import Row
from limen.experiment.config import RunConfig
from limen.experiment.files import read_json
from limen.experiment.run import run as carry_out


def run() -> list[Row]:
    config = RunConfig.resolve({"dataset": "mnist", "preset": "small"})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        carry_out(config, [0], Path(folder), jobs=2)
        wall = time.perf_counter() - start
        facts = read_json(Path(folder) / "facts-000.json")
    training = sum(unit["training"] for unit in facts["seconds"].values())
    total = sum(unit["total"] for unit in facts["seconds"].values())
    return [
        Row(
            "one seed of MNIST small: share of time not in training steps",
            1 - training / total,
            "< 0.10",
        ),
        Row(
            "the same: time of all units / two cores for as long as it took", total / (2 * wall), ""
        ),
    ]
