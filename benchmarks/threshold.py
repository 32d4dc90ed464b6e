"""search_eta on ten million scores, against np.sort and against roc_curve + argmax."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from benchmarks.report import Row
from limen import search_eta


def best_of(function: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of a few runs, in seconds: what the machine can do when left alone."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def scores(size: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=size // 2), rng.normal(2, 1.5, size=size - size // 2)


def by_roc_curve(known: Any, novel: Any) -> float:
    """What one would write today."""
    truth = np.concatenate([np.zeros(known.size), np.ones(novel.size)])
    false_alarm, caught, cuts = roc_curve(truth, np.concatenate([known, novel]))
    return float(cuts[np.argmax(np.sqrt((1 - false_alarm) * caught))])


def run() -> list[Row]:
    known, novel = scores(10_000_000)
    together = np.concatenate([known, novel])
    search = best_of(lambda: search_eta(known, novel))
    sort = best_of(lambda: np.sort(together))
    own = best_of(lambda: search_eta(known, novel, lambda k, n: np.sqrt(k * n)), 2)
    heavy = np.exp(5 * known), np.exp(5 * novel)
    heavy_search = best_of(lambda: search_eta(*heavy))
    heavy_together = np.concatenate(heavy)
    heavy_sort = best_of(lambda: np.sort(heavy_together))
    roc = best_of(lambda: by_roc_curve(known, novel), 1)
    found, usual = search_eta(known, novel), by_roc_curve(known, novel)
    assert found.interval[0] < usual <= found.interval[1], "both must find the same cut"

    tracemalloc.start()
    search_eta(known, novel)
    memory = tracemalloc.get_traced_memory()[1] / together.nbytes
    tracemalloc.stop()

    few = scores(100_000)
    small = best_of(lambda: search_eta(*few), 20)
    return [
        Row("search_eta, 1e7 scores / np.sort of the same", search / sort, "< 2.0, aim < 1.0"),
        Row("the same with heavy tails, exp(5 z)", heavy_search / heavy_sort, "< 2.0"),
        Row("roc_curve + argmax / search_eta", roc / search, "> 3"),
        Row("search_eta with a function of one's own / np.sort", own / sort, ""),
        Row("peak extra memory / input", memory, "< 6"),
        Row("time for 1e7 scores / time for 1e5 (n log n: 140)", search / small, "<= 140"),
    ]
