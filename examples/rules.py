"""How well each way to settle score and cut does for a class that had no part in it.

python examples/rules.py fashion-mnist --seeds 10 11 12 13 14 15

Seeds that no table shows, their first five classes, and training images alone. One of the five is
set aside: a model learns the other four, models with one of these four held out give the evidence,
and the class set aside, with further training images of the four, tells how well that served.
Models are kept under runs/rules/; figures go to results/rules.csv, one line for each class set
aside.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from limen.class_cuts import BY_CLASS, class_cuts
from limen.datasets import load
from limen.experiment.config import CHOSEN, RunConfig
from limen.experiment.judging import Arrays, Looks, aligned, judge_held_out, judge_step, view
from limen.experiment.plan import (
    Unit,
    class_order,
    data_of,
    scores_of,
    training_rows,
    usual_rows,
)
from limen.experiment.policies import accuracies
from limen.experiment.units import Memory, network
from limen.selection import COMBINATIONS, Evidence, combine, select
from limen.shels import SHELSClassifier
from limen.threshold import search_eta

ROOT = Path(__file__).resolve().parents[1]
OUT, KEPT = ROOT / "results" / "rules.csv", ROOT / "runs" / "rules"
RULES = [r for r in COMBINATIONS if r != "halving"]  # nothing is discovered: halving is the mean
FURTHER = 200  # images of a class that no training sees, in the place of test images


def trained(config: RunConfig, seed: int, without: tuple[int, ...]) -> Any:
    """A model of the first five classes without one (the model in use) or two (a fold)."""
    name = "-".join(["fold" if len(without) > 1 else "base", *map(str, sorted(without))])
    path = KEPT / f"{config.dataset}-{config.turns}" / str(seed) / name
    data, unit = data_of(config), unit_of(seed, without)
    known = [c for c in class_order(config, data.n_classes, seed)[0] if c not in without]
    if not (path / "manifest.json").exists():
        rows = np.sort(np.concatenate([training_rows(config, unit, data, c) for c in known]))
        entropy = [seed, *sorted(without), 98 if len(without) > 1 else 99]
        state = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        epochs = config.fold_epochs if len(without) > 1 else config.epochs
        model = network(config, epochs or config.epochs, state)
        model.fit(data.X_train[rows], data.y_train[rows])
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
        print(config.dataset, seed, name, flush=True)
    model = SHELSClassifier.load(path)
    memory = Memory().taking_in(sorted(known), model, config, unit, data)
    kept = np.sort(np.concatenate([memory.replay[c] for c in known]))
    return model.remember(data.X_train[kept], data.y_train[kept])


def unit_of(seed: int, without: tuple[int, ...]) -> Unit:
    return Unit(seed, without[-1] if len(without) > 1 else None)


def looked(config: RunConfig, seed: int, without: tuple[int, ...]) -> Arrays:
    """What a model makes of the last class that it lacks, and of usual and further images."""
    data, model = data_of(config), trained(config, seed, without)
    known = model.classes_.tolist()
    unit = unit_of(seed, without)
    usual = np.concatenate([usual_rows(config, unit, data, c) for c in known])
    X, y = data.X_train, data.y_train
    inputs = {"usual": X[usual], "novel": X[y == without[-1]]}
    if len(without) > 1:
        return judge_held_out(Looks(model, scores_of(config), **inputs), model.classes_, y[usual])
    whole, seen = load(config.dataset), config.per_class or 0
    more = [np.flatnonzero(whole.y_train == c)[seen : seen + FURTHER] for c in known]
    test = np.concatenate(more)
    looks = Looks(model, scores_of(config), test=whole.X_train[test], **inputs)
    kept = np.ones(len(usual), dtype=bool)
    return judge_step(looks, model.classes_, y[usual], kept, whole.y_train[test], None)


def judge(config: RunConfig, seed: int, aside: int) -> Iterator[dict[str, Any]]:
    others = sorted(set(class_order(config, 10, seed)[0]) - {aside})
    faced = looked(config, seed, (aside,))
    folds = {label: looked(config, seed, (aside, label)) for label in others}
    evidence = {
        score: [_piece(view(folds[label], score), label, others) for label in others]
        for score in scores_of(config)
    }
    facts = {"dataset": config.dataset, "turns": config.turns, "seed": seed, "aside": aside}
    chosen = select(evidence, "gmean", ["robust"]).score
    for way, score in [(CHOSEN, chosen), *((score, score) for score in evidence)]:
        arrays, pieces = view(faced, score), evidence[score]
        known = np.where(arrays["train_right"], arrays["train"], np.inf)
        best = search_eta(arrays["test"][arrays["test_right"]], arrays["novel"], "gmean").eta
        cuts = {rule: combine(pieces, rule) for rule in RULES} | {"eta = 1": 1.0, "best": best}
        values = {rule: accuracies(arrays, eta)["gmean"] for rule, eta in cuts.items()}
        own = class_cuts(pieces, known, arrays["train_class"], others)
        values[BY_CLASS] = accuracies(aligned(arrays, others, own, 1.0), 1.0)["gmean"]
        for rule, value in values.items():
            yield {**facts, "score": way, "rule": rule, "gmean": round(value, 5)}


def _piece(arrays: Arrays, label: int, known: list[int]) -> Evidence:
    then = [c for c in known if c != label]
    return Evidence.of(
        arrays["known"], arrays["novel"], label=label, won=arrays["won"], known_then=then
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset", choices=("mnist", "fashion-mnist", "cifar10"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--turned", action="store_true", help="turns and prototypes on any set")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    settings: dict[str, Any] = {
        "dataset": options.dataset,
        "preset": "small",
        "method": "limen",
        "score": CHOSEN,
    }
    if options.turned:
        epochs = RunConfig.resolve(settings).epochs
        settings |= {"turns": 4, "accommodation": "prototype", "fold_epochs": epochs // 3}
    config = RunConfig.resolve(settings)
    work = [(s, c) for s in options.seeds for c in class_order(config, 10, s)[0]]
    found = Parallel(n_jobs=options.jobs)(
        delayed(lambda s, c: list(judge(config, s, c)))(s, c) for s, c in work
    )
    table, keys = pd.DataFrame([line for lines in found for line in lines]), ["dataset", "turns"]
    if OUT.exists():
        old = pd.read_csv(OUT)
        again = old.set_index([*keys, "seed"]).index.isin(table.set_index([*keys, "seed"]).index)
        table = pd.concat([old[~again], table])
    table.sort_values([*keys, "seed"], kind="stable").to_csv(OUT, index=False)
    print((100 * table.groupby([*keys, "score", "rule"])["gmean"].mean()).round(1).unstack())


if __name__ == "__main__":
    main()
