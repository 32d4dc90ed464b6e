"""limen against the automatic thresholders of pythresh, on the same models and scores.

pip install -c constraints.txt pythresh
python -m benchmarks.thresholders RUN...

Each RUN is a folder of `limen run --method limen --keep-models`. A thresholder is given strangeness
and says what is an outlier. It is tried in two ways: fitted on the calibration points, as limen is,
which has seen nothing novel; and on the very points to be judged, novel ones among them, which no
detector has in practice. Figures go to results/thresholders.csv, in place of those of the same
data sets and seeds; seeds whose models were not kept are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import pkgutil
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from limen.experiment.files import read_arrays
from limen.experiment.judging import view
from limen.experiment.records import load_run

OUT = Path(__file__).resolve().parents[1] / "results" / "thresholders.csv"
# Not thresholders, in need of downloads, or of minutes for each verdict.
_LEFT_OUT = {"base", "thresh_utility", "comb", "meta", "vae", "dummy", "gamgmm"}
_MOST = 600  # known and novel points: some take a quadratic time
_SECONDS = 5.0  # for one verdict; who takes longer gives none


def thresholders() -> dict[str, Any]:
    import pythresh.thresholds as package

    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in _LEFT_OUT:
            continue
        try:
            loaded = importlib.import_module(f"pythresh.thresholds.{module.name}")
        except ImportError as error:  # some need more packages
            print(f"without {module.name.upper()}: {error}")
            continue
        found[module.name.upper()] = getattr(loaded, module.name.upper())
    return found


def judge(build: Any, fitted: Any, points: Any) -> Any:
    """Which points are outliers by a thresholder fitted on others; None where it gives up."""
    with warnings.catch_warnings(), open(os.devnull, "w") as quiet:
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            signal.signal(signal.SIGALRM, _too_slow)
            signal.setitimer(signal.ITIMER_REAL, _SECONDS)
            try:
                if fitted is None:
                    return np.asarray(build().eval(points)).astype(bool)
                return np.asarray(build().fit(fitted).predict(points)).astype(bool)
            except Exception:  # what breaks inside another library, in whatever way
                return None
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)


def _too_slow(_signal: int, _frame: Any) -> None:
    raise TimeoutError


def compare(folder: Path, seeds: int | None) -> list[dict[str, Any]]:
    run, lines, builds = load_run(folder), [], thresholders()
    for seed in run.seeds[:seeds]:
        for row in seed["rows"]:
            step = folder / "work" / f"seed-{seed['seed']:03d}" / f"step-{len(row['known'])}.npz"
            if not step.exists():
                continue
            verdicts = {v["policy"]: v for v in row["verdicts"] if v["objective"] == "gmean"}
            facts = {
                "dataset": run.config["dataset"],
                "seed": seed["seed"],
                "known": len(row["known"]),
            }
            for policy in ("limen", "cheating", "rate95"):
                gmean = verdicts[policy]["gmean"]
                lines.append({**facts, "thresholder": policy, "fitted on": "", "gmean": gmean})
            arrays = view(read_arrays(step), verdicts["limen"]["score"])
            rng = np.random.default_rng(0)
            test = rng.permutation(len(arrays["test"]))[:_MOST]
            novel = rng.permutation(arrays["novel"])[:_MOST]
            points = np.concatenate([arrays["test"][test], novel])
            for name, build in builds.items():
                for way, fitted in (("calibration", arrays["train"]), ("the points judged", None)):
                    outlier = judge(build, fitted, points)
                    gmean = math.nan
                    if outlier is not None and len(outlier) == len(points):
                        right = arrays["test_right"][test] & ~outlier[: len(test)]
                        gmean = math.sqrt(right.mean() * outlier[len(test) :].mean())
                    lines.append({**facts, "thresholder": name, "fitted on": way, "gmean": gmean})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="limen against the thresholders of pythresh")
    parser.add_argument("runs", nargs="+", type=Path)
    lines: list[dict[str, Any]] = []
    parser.add_argument("--seeds", type=int, help="the first so many; default: all")
    options = parser.parse_args()
    for folder in options.runs:
        lines += compare(folder, options.seeds)
    table, keys = pd.DataFrame(lines).round(5), ["dataset", "seed"]
    if OUT.exists():
        old = pd.read_csv(OUT, keep_default_na=False)
        mine = old.set_index(keys).index.isin(table.set_index(keys).index)
        table = pd.concat([old[~mine], table]).sort_values(keys, kind="stable")
    table["gmean"] = pd.to_numeric(table["gmean"], errors="coerce")
    table.to_csv(OUT, index=False)
    print(table.groupby(["dataset", "fitted on", "thresholder"])["gmean"].mean().to_string())


if __name__ == "__main__":
    main()
