"""limen serve under load: requests per second beside the bare forward pass, and memory."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.report import Row
from limen import OpenSetClassifier
from limen.app.inputs import Inputs
from limen.app.models import Model, open_model, save
from limen.shels import SHELSClassifier
from limen.web.demo import make_model, stream
from limen.web.uploads import png

_SHAPE = (64, 64, 3)
_PICTURES = 64
_MANY = 50_000


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        model, pictures = _fitted(root / "model.limen"), _pictures(root, _SHAPE)
        alone, together = _bare(model, 1), _bare(model, _PICTURES)
        rows = [
            Row("bare pass, pictures a second, one at a time", alone, ""),
            Row("bare pass, pictures a second, 64 at a time", together, ""),
        ]
        with _serving(root / "model.limen") as (_, port):
            _load(port, 8, 200, pictures)  # to get warm
            for clients in (1, 8, 64):
                found = _load(port, clients, 150 * (1 if clients == 1 else 4), pictures)
                of = f"{clients} clients" if clients > 1 else "1 client"
                goal, rate = ">= 0.6" if clients == 64 else "", found["rate"]
                rows += [
                    Row(f"{of}: requests a second", rate, ""),
                    Row(
                        f"{of}: requests a second / bare pass, 64 at a time", rate / together, goal
                    ),
                    Row(f"{of}: p50, milliseconds", 1000 * found["p50"], ""),
                    Row(f"{of}: p99, milliseconds", 1000 * found["p99"], ""),
                ]
        rows.append(
            Row(f"memory after {_MANY:,} requests / after 10,000", _growth(root), "about 1")
        )
        return rows


def _fitted(path: Path) -> Model:
    """SHELS as it is fitted to pictures of 64x64 in colour; how well it does is of no matter."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 255, (90, *_SHAPE), dtype=np.uint8), np.repeat(["a", "b", "c"], 30)
    network = SHELSClassifier(epochs=1, threads=1, progress=False)
    classifier = OpenSetClassifier(network, method="paper", random_state=0).fit(X, y)
    save(Model(classifier, Inputs("images", _SHAPE), "shels"), path, "benchmark")
    return open_model(path)


def _pictures(folder: Path, shape: tuple[int, ...]) -> list[Path]:
    rng = np.random.default_rng(1)
    paths = [folder / f"{i}.png" for i in range(_PICTURES)]
    for path in paths:
        path.write_bytes(png(rng.integers(0, 255, shape, dtype=np.uint8)))
    return paths


def _bare(model: Model, size: int) -> float:
    """Pictures a second of the forward pass in a loop."""
    rows = np.random.default_rng(2).integers(0, 255, (size, *_SHAPE), dtype=np.uint8)
    model.classifier.class_similarity(rows)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < 3.0:
        model.classifier.class_similarity(rows)
        count += size
    return count / (time.perf_counter() - start)


@contextlib.contextmanager
def _serving(model: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "limen", "serve", str(model), "--port", "0", "--rate", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r":(\d+)$", server.stdout.readline().strip())
        assert found is not None
        time.sleep(2.0)
        yield server, int(found[1])
    finally:
        server.terminate()
        server.wait()


def _load(port: int, clients: int, requests: int, files: list[Path]) -> dict[str, float]:
    words = [str(port), str(clients), str(requests), *map(str, files)]
    command = [sys.executable, "-m", "benchmarks.load", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _growth(root: Path) -> float:
    """Memory of the demo's model served, with all that is kept bounded to 1,000 inputs."""
    make_model(root / "digits.limen")
    paths = [root / f"digit-{i}.png" for i in range(16)]
    for path, batch in zip(paths, stream(), strict=False):
        path.write_bytes(batch[0])
    with _serving(root / "digits.limen") as (server, port):
        _load(port, 16, 10_000, paths)
        before = _memory(server.pid)
        _load(port, 16, _MANY - 10_000, paths)
        return _memory(server.pid) / before


def _memory(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return float(found[1])
