"""limen predict on 10,000 PNG files: time beside decoding alone, and memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.svm import SVC

from benchmarks.report import Row
from limen import OpenSetClassifier
from limen.app.inputs import Inputs, picture_files
from limen.app.models import Model, Tally, judge, open_model, save
from limen.datasets.own import picture_of
from limen.shels import SHELSClassifier

_MANY, _SIDE, _SHAPE = 10_000, 256, (32, 32)
_PEAK = """
import re, sys
from pathlib import Path
from limen.app.models import Tally, judge, open_model
model = open_model(sys.argv[1])
tally = Tally(model)
for batch in model.inputs.stream(sys.argv[2]):
    tally.add(judge(model, batch.names, batch.rows))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _write_pictures(root / "many", _MANY)
        _write_pictures(root / "few", 1000)
        rows = []
        networks = {
            "SHELS": SHELSClassifier(epochs=1, threads=1, progress=False),
            "an SVC": SVC(),
        }
        for kind, estimator in networks.items():
            path = root / f"{kind}.limen"
            _fit(estimator, flat=kind != "SHELS", path=path)
            alone, whole = _decoding(root / "many"), _predicting(path, root / "many")
            rows.append(
                Row(
                    f"predict on 10,000 PNG files of {_SIDE}x{_SIDE} by {kind} / decoding alone",
                    whole / alone,
                    "< 1.5",
                )
            )
        peaks = [_peak(root / "an SVC.limen", root / part) for part in ("many", "few")]
        rows.append(Row("peak memory of 10,000 files / of 1,000", peaks[0] / peaks[1], "about 1"))
        return rows


def _write_pictures(folder: Path, count: int) -> None:
    """Smooth noise, which packs about as well as photographs do."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (50, 64, 64), dtype=np.uint8)
    pictures = [Image.fromarray(x).resize((_SIDE, _SIDE)) for x in small]
    for i in range(count):
        pictures[i % 50].save(folder / f"{i:05d}.png", compress_level=1)


def _fit(estimator: object, flat: bool, path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, (120, *_SHAPE), dtype=np.uint8)
    y = np.repeat(["a", "b", "c"], 40)
    inputs = Inputs("images", _SHAPE, flat=flat)
    classifier = OpenSetClassifier(estimator, method="paper", random_state=0)
    classifier.fit(inputs.rows(X), y)
    save(Model(classifier, inputs, "bench"), path, "benchmark")


def _decoding(folder: Path) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda path: picture_of(path, _SHAPE).shape, picture_files(folder)):
            pass
    return time.perf_counter() - start


def _predicting(path: Path, folder: Path) -> float:
    model, start = open_model(path), time.perf_counter()
    tally = Tally(model)
    for batch in model.inputs.stream(folder):
        tally.add(judge(model, batch.names, batch.rows))
    assert tally.total == _MANY
    return time.perf_counter() - start


def _peak(path: Path, folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path), str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
