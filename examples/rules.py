"""How well each way to settle score and cut does for a class that had no part in it.

python examples/rules.py results/mnist-limen results/fashion-mnist-limen

Each RUN is a folder of `limen run --method limen --keep-models`. Only its folds are looked at:
held-out known classes, training images. In each seed one of them is set aside, score and cut are
chosen by the others, and judged on it. Figures go to results/rules.csv, one line for each class.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from limen.experiment.config import BLEND, CHOSEN
from limen.experiment.files import read_arrays
from limen.experiment.judging import blended, view
from limen.experiment.records import load_run
from limen.selection import COMBINATIONS, Evidence, select

OUT = Path(__file__).resolve().parents[1] / "results" / "rules.csv"
# By the first no class is discovered yet, so halving is the mean.
RULES = {CHOSEN: tuple(COMBINATIONS), **{r: (r,) for r in COMBINATIONS if r != "halving"}}


def ways(scores: list[str]) -> dict[str, list[str]]:
    """From which scores one is chosen."""
    return {CHOSEN: scores, **{score: [score] for score in (*scores, BLEND)}}


def judge(folder: Path) -> Iterator[dict[str, Any]]:
    for seed in load_run(folder).seeds:
        work = folder / "work" / f"seed-{seed['seed']:03d}"
        scores = [s for s in seed["rows"][0]["selection"]["by_score"] if s != BLEND]
        folds = {path.stem: read_arrays(path) for path in sorted(work.glob("fold-*.npz"))}
        evidence = {s: {n: _piece(view(a, s)) for n, a in folds.items()} for s in scores}
        evidence[BLEND] = {n: _piece(blended(a)) for n, a in folds.items()}
        for aside in folds:
            others = {
                s: [piece for n, piece in pieces.items() if n != aside]
                for s, pieces in evidence.items()
            }
            for (way, tried), (rule, allowed) in product(ways(scores).items(), RULES.items()):
                best = select({s: others[s] for s in tried}, "gmean", allowed)
                value = float(evidence[best.score][aside].value(best.eta, "gmean"))
                facts = {"run": folder.name, "seed": seed["seed"], "aside": aside}
                yield {**facts, "score": way, "rule": rule, "gmean": round(value, 5)}


def _piece(arrays: dict[str, Any]) -> Evidence:
    return Evidence.of(arrays["known"], arrays["novel"], "gmean")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    lines = [line for folder in parser.parse_args().runs for line in judge(folder)]
    table = pd.DataFrame(lines)
    table.to_csv(OUT, index=False)
    print((100 * table.groupby(["score", "rule", "run"])["gmean"].mean()).round(1).unstack())


if __name__ == "__main__":
    main()
