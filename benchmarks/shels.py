"""SHELS against plain PyTorch: a training step, scoring, folds in parallel, memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.report import ROOT, Row
from limen import OpenSetClassifier
from limen.shels import InputFormat, SHELSClassifier, SHELSNetwork
from limen.shels.losses import group_sparsity
from limen.shels.network import PRESETS
from limen.shels.training import Data, thread_count, train

BATCH = 32
STEPS = 24
# Multiply-adds of one MNIST image, layer by layer; a step does each twice over (an operation is a
# multiplication or an addition) for the forward pass, the gradient of inputs and that of weights.
MULTIPLY_ADDS = (
    *(784 * 9 * 32, 784 * 9 * 32 * 32, 196 * 9 * 32 * 64, 196 * 9 * 64 * 64),
    *(49 * 9 * 64 * 128, 49 * 9 * 128 * 128, 1152 * 256, 256 * 5),
)
STEP_FLOPS = 6 * BATCH * sum(MULTIPLY_ADDS)


class Plain(nn.Module):
    """The same network as one would write it down."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 1
        for out in (32, 64, 128):
            layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(out, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            width = out
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1152, 256), nn.ReLU())
        self.head = nn.Linear(256, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(x))
        return logits


def images(n: int) -> tuple[Any, Any]:
    """Noise with a bright bar, lower for each class."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 128, (n, 28, 28), dtype=np.uint8), np.arange(n) % 5
    for label in range(5):
        X[y == label, 5 * label : 5 * label + 5] += 127
    return X, y


def plain_epoch(X: Any, y: Any, layout: torch.memory_format) -> Callable[[], Any]:
    network = Plain().to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    inputs = (torch.from_numpy(X)[:, None].float() / 255).contiguous(memory_format=layout)
    target = torch.from_numpy(y)

    def epoch() -> None:
        for index in torch.randperm(len(target)).split(BATCH):
            loss = functional.cross_entropy(network(inputs[index]), target[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return epoch


def our_epoch(X: Any, y: Any) -> Callable[[], Any]:
    format_ = InputFormat.of(X)
    data = Data(format_.tensor(X), torch.from_numpy(y), format_)
    generator = torch.Generator().manual_seed(0)
    network = SHELSNetwork(PRESETS["mnist"], 5, generator)
    return lambda: train(
        network,
        data,
        penalty=lambda: 1e-3 * group_sparsity(network.weights()),
        epochs=1,
        lr=1e-4,
        batch_size=BATCH,
        generator=generator,
        report=lambda _: None,
        phase="bench",
    )


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """Median seconds of each, run in turn so that a busy machine slows all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seen)) for name, seen in times.items()}


def training_rows() -> list[Row]:
    X, y = images(BATCH * STEPS)
    square = torch.rand(1024, 1024)
    with thread_count(1):
        seconds = interleaved(
            {
                "plain": plain_epoch(X, y, torch.contiguous_format),
                "plain, channels last": plain_epoch(X, y, torch.channels_last),
                "ours": our_epoch(X, y),
                "peak": lambda: square @ square,
            }
        )
    reached = STEP_FLOPS * STEPS / seconds["ours"] / (2 * 1024**3 / seconds["peak"])
    return [
        Row("training step / plain PyTorch loop", seconds["ours"] / seconds["plain"], "<= 1.10"),
        Row(
            "training step / plain loop in our memory layout",
            seconds["ours"] / seconds["plain, channels last"],
            "<= 1.10",
        ),
        Row("float32 operations of a step / those of a large matrix product", reached, ""),
    ]


def scoring_rows() -> list[Row]:
    X, y = images(10_000)
    with thread_count(2):
        model = SHELSClassifier("mnist", epochs=0, random_state=0).fit(X[:100], y[:100])
        batches = [
            model.input_format_.batch(part) for part in model.input_format_.tensor(X).split(256)
        ]

        @torch.inference_mode()
        def bare() -> None:
            for batch in batches:
                model.network_(batch)

        seconds = interleaved({"bare": bare, "ours": lambda: model.similarity(X)}, rounds=5)
    rate = len(X) / seconds["ours"]
    published = 1 / 5.4e-3
    return [
        Row(
            "similarity of 10,000 images / bare forward pass",
            seconds["ours"] / seconds["bare"],
            "<= 1.10",
        ),
        Row("images scored per second / published code, one at a time (185)", rate / published, ""),
    ]


def fold_rows() -> list[Row]:
    X, y = images(4_000)
    times = {}
    for name, n_jobs, threads in (("parallel", 2, 1), ("in turn", 1, 2)):
        estimator = SHELSClassifier("mnist", epochs=3, threads=threads, random_state=0)
        model = OpenSetClassifier(estimator, n_jobs=n_jobs, random_state=0)
        start = time.perf_counter()
        model.fit(X, y)
        times[name] = time.perf_counter() - start
    speedup = times["in turn"] / times["parallel"]
    return [Row("six trainings in turn on 2 threads / two at a time on 1", speedup, ">= 1.3")]


def memory_rows() -> list[Row]:
    code = """if True:
        from pathlib import Path
        from benchmarks.shels import images
        from limen.shels import SHELSClassifier
        X, y = images(60_000)
        SHELSClassifier("mnist", epochs=1, random_state=0).fit(X, y).similarity(X)
        # Not getrusage: its peak is inherited from the process that started this one.
        status = Path("/proc/self/status").read_text()
        print(int(status.split("VmHWM:")[1].split()[0]) / 2**20)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [Row("peak memory, 60,000 images, fit and score, GiB", float(done.stdout), "< 1.0")]


def run() -> list[Row]:
    return [*training_rows(), *scoring_rows(), *fold_rows(), *memory_rows()]
