"""How well each way to settle score and cut does for a class that had no part in it.

python examples/rules.py fashion-mnist --seeds 10 11 12 13 14

Folds only, of seeds that no table shows: known classes held out, training images. In each seed one
class is set aside, score and cut are chosen by the others, and judged on it. What the folds
recorded is kept under runs/rules/, figures go to results/rules.csv, one line for each class.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed

from limen.experiment.config import BLEND, CHOSEN, RunConfig
from limen.experiment.files import read_arrays, write_arrays
from limen.experiment.judging import blended, view
from limen.experiment.plan import Unit, class_order, data_of, scores_of, units_of
from limen.experiment.units import run_fold
from limen.selection import COMBINATIONS, Evidence, combine, select

ROOT = Path(__file__).resolve().parents[1]
OUT, KEPT = ROOT / "results" / "rules.csv", ROOT / "runs" / "rules"
# No class is discovered here, so halving is the mean.
RULES = {CHOSEN: tuple(COMBINATIONS), **{r: (r,) for r in COMBINATIONS if r != "halving"}}


def ways(scores: list[str]) -> dict[str, list[str]]:
    """From which scores one is chosen."""
    return {CHOSEN: scores, **{score: [score] for score in (*scores, BLEND)}}


def fold(config: RunConfig, unit: Unit) -> dict[str, Any]:
    """What a model without one class makes of it, trained or kept from an earlier call."""
    path = KEPT / config.dataset / f"seed-{unit.seed:03d}" / f"{unit.name}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(path, run_fold(config, unit, None))
        print(config.dataset, unit.seed, unit.name, flush=True)
    return read_arrays(path)


def judge(config: RunConfig, seed: int, jobs: int) -> Iterator[dict[str, Any]]:
    units = [u for u in units_of(config, data_of(config).n_classes, seed) if u.held_out is not None]
    kept = Parallel(n_jobs=jobs)(delayed(fold)(config, unit) for unit in units)
    folds = {unit.held_out: arrays for unit, arrays in zip(units, kept, strict=True)}
    scores = list(scores_of(config))
    evidence = {s: {n: _piece(view(a, s)) for n, a in folds.items()} for s in scores}
    evidence[BLEND] = {n: _piece(blended(a)) for n, a in folds.items()}
    for aside in class_order(config, data_of(config).n_classes, seed)[0]:
        others = {
            s: [piece for n, piece in pieces.items() if n != aside]
            for s, pieces in evidence.items()
        }
        facts = {"dataset": config.dataset, "seed": seed, "aside": aside}
        for (way, tried), (rule, allowed) in product(ways(scores).items(), RULES.items()):
            best = select({s: others[s] for s in tried}, "gmean", allowed)
            value = float(evidence[best.score][aside].value(best.eta, "gmean"))
            yield {**facts, "score": way, "rule": rule, "gmean": round(value, 5)}
        for score, pieces in evidence.items():
            for rule, eta in (("eta = 1", 1.0), ("best", combine([pieces[aside]]))):
                value = float(pieces[aside].value(eta, "gmean"))
                yield {**facts, "score": score, "rule": rule, "gmean": round(value, 5)}


def _piece(arrays: dict[str, Any]) -> Evidence:
    return Evidence.of(arrays["known"], arrays["novel"], "gmean")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset", choices=("mnist", "fashion-mnist", "cifar10"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    config = RunConfig.resolve({"dataset": options.dataset, "preset": "small", "method": "limen"})
    lines = [line for seed in options.seeds for line in judge(config, seed, options.jobs)]
    table = pd.DataFrame(lines)
    if OUT.exists():
        old = pd.read_csv(OUT)
        keys = ["dataset", "seed"]
        again = old.set_index(keys).index.isin(table.set_index(keys).index)
        table = pd.concat([old[~again], table])
    table.sort_values(["dataset", "seed"], kind="stable").to_csv(OUT, index=False)
    print((100 * table.groupby(["dataset", "score", "rule"])["gmean"].mean()).round(1).unstack())


if __name__ == "__main__":
    main()
