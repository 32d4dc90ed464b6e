"""Five known digits, then five more discovered one by one: which cut does best?

    python examples/digits_stream.py            # print the table
    python examples/digits_stream.py --write    # and save it to results/ and docs/

The trajectory of the paper's method serves three policies: `shels` (eta = 1), `cheating` (eta
searched on the very class that comes next) and `ours` (held-out classes first, then every
discovery, half way). `limen` is the default of `OpenSetClassifier` on the same data.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from limen import OpenSetClassifier

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "digits-stream.csv"
TABLES = ROOT / "docs" / "tables"
CLASSIFIERS = {"SVC": SVC(), "MLPClassifier": MLPClassifier((64,), max_iter=500)}
POLICIES = ("shels", "cheating", "ours", "limen")
METRICS = ("known", "novel", "total", "pooled", "gmean")


def run(seed: int, classifier: str) -> pd.DataFrame:
    """One row for each number of known classes and policy."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=seed
    )
    order = np.random.default_rng(seed).permutation(10)
    known = np.isin(y_train, order[:5])
    rows = []
    for method in ("paper", "limen"):
        model = OpenSetClassifier(CLASSIFIERS[classifier], method=method, random_state=seed)
        model.fit(X_train[known], y_train[known])
        for label in order[5:]:
            test = np.isin(y_test, model.classes_)
            strangeness = model.strangeness(X_test[test])
            similarity = model.class_similarity(X_test[test])
            correct = model.classes_[similarity.argmax(axis=1)] == y_test[test]
            novel_rows = X_train[y_train == label]
            novel_strangeness = model.strangeness(novel_rows)
            facts = {"classifier": classifier, "seed": seed, "known_classes": len(model.classes_)}
            etas = {"limen": model.eta_}
            if method == "paper":
                etas = {"shels": 1.0, "ours": model.eta_}
            model.learn_class(novel_rows, int(label))
            if method == "paper":
                etas["cheating"] = model.continual_eta_.history[-1].eta
            for policy, eta in etas.items():
                right = np.count_nonzero(correct & (strangeness < eta))
                caught = np.count_nonzero(novel_strangeness >= eta)
                k, n = right / correct.size, caught / novel_strangeness.size
                rows.append(
                    {
                        **facts,
                        "policy": policy,
                        "eta": eta,
                        "known": k,
                        "novel": n,
                        "total": (k + n) / 2,
                        "pooled": (right + caught) / (correct.size + novel_strangeness.size),
                        "gmean": (k * n) ** 0.5,
                    }
                )
    return pd.DataFrame(rows)


def table(records: pd.DataFrame) -> str:
    """Mean ± standard deviation over the seeds, in per cent, as Markdown."""
    lines = [
        "| known classes | policy | eta | known | novel | total | pooled | G-mean |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups: list[tuple[str, Any]] = [
        (str(n), rows) for n, rows in records.groupby("known_classes", sort=True)
    ]
    for name, rows in [*groups, ("5 to 9", records)]:
        for policy in POLICIES:
            mine = rows[rows.policy == policy]
            cells = [f"{100 * mine[m].mean():.1f} ± {100 * _spread(mine, m):.1f}" for m in METRICS]
            lines.append(f"| {name} | {policy} | {mine.eta.mean():.2f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(rows: pd.DataFrame, metric: str) -> float:
    return float(rows.groupby("seed")[metric].mean().std())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="save to results/ and docs/tables/")
    arguments = parser.parse_args()
    jobs = [delayed(run)(seed, c) for c in CLASSIFIERS for seed in range(arguments.seeds)]
    records = pd.concat(Parallel(n_jobs=-1)(jobs), ignore_index=True)
    for classifier in CLASSIFIERS:
        print(f"{classifier}\n\n{table(records[records.classifier == classifier])}")
    if arguments.write:
        RECORDS.parent.mkdir(exist_ok=True)
        records.to_csv(RECORDS, index=False, float_format="%.6f", lineterminator="\n")
        TABLES.mkdir(exist_ok=True)
        stored = pd.read_csv(RECORDS)
        for classifier in CLASSIFIERS:
            rows = stored[stored.classifier == classifier]
            (TABLES / f"digits-{classifier}.md").write_text(table(rows))
        print(f"wrote {RECORDS.relative_to(ROOT)} and {TABLES.relative_to(ROOT)}/digits-*.md")


if __name__ == "__main__":
    main()
