"""limen in a minute: a classifier that knows five digits discovers the other five.

    python examples/digits.py [--out FOLDER]    # default: demo/

Prints what happens at each discovery and draws the cut, and beside it what four cuts reach
over ten seeds (from results/digits-stream.csv, made by digits_stream.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from digits_stream import POLICIES, RECORDS
from limen import OpenSetClassifier

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "limen"  # the same picture, the same file
from matplotlib import pyplot as plt  # noqa: E402

COLOURS = {"shels": "#9aa0a6", "cheating": "#e0a030", "ours": "#7fb2dd", "limen": "#1a6fb5"}
NAMES = {
    "shels": "eta = 1, always",
    "cheating": "has seen what comes next",
    "ours": "the paper's method",
    "limen": "limen",
}


def story(seed: int = 0) -> tuple[Any, Any, float, int]:
    """Fit on five digits, discover the rest; returns the strangeness at the first discovery."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    order = np.random.default_rng(seed).permutation(10)
    known = np.isin(y, order[:5])
    model = OpenSetClassifier(SVC(), random_state=seed).fit(X[known], y[known])
    print(f"It knows the digits {_listed(order[:5])}, and has seen no other.")
    for label, choice in model.fold_choices_.items():
        print(f"  had it not known {label}: eta = {choice.eta:5.2f} would have caught it best")
    print(
        f"So eta = {model.eta_:.2f}. It expects to be right on "
        f"{model.expected_known_accuracy_:.0%} of the known and to notice "
        f"{model.expected_novel_accuracy_:.0%} of what is new.\n"
    )
    first = model.strangeness(X_test[np.isin(y_test, order[:5])])
    first_novel = model.strangeness(X[y == order[5]])
    first_eta = model.eta_
    for label in order[5:]:
        rows = X[y == label]
        print(f"Then come {len(rows)} pictures of the digit {label}: {model.detect_novelty(rows)}.")
        before = model.eta_
        model.learn_class(rows, int(label))
        test = np.isin(y_test, model.classes_)
        right = np.mean(model.predict(X_test[test]) == y_test[test])
        print(
            f"  eta {before:.2f} -> {model.eta_:.2f}, then {label} is learnt: "
            f"{right:.0%} of new pictures of {len(model.classes_)} classes are named rightly"
        )
    return first, first_novel, first_eta, int(order[5])


def draw(known: Any, novel: Any, eta: float, label: int, records: pd.DataFrame, out: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    bins = np.linspace(-1.5, 12, 46)
    known, novel = np.clip(known, -1.5, 12), np.clip(novel, -1.5, 12)
    for values, name, colour in (
        (known, "the five digits it knows (test pictures)", "#1a6fb5"),
        (novel, f"a digit it has never seen ({label})", "#d1495b"),
    ):
        share = np.full(len(values), 1 / len(values))
        left.hist(values, bins, weights=share, alpha=0.65, color=colour, label=name)
    left.axvline(eta, color="black", linewidth=1.6)
    top = 1.2 * left.get_ylim()[1]
    left.set_ylim(0, top)
    left.text(eta + 0.2, 0.6 * top, f"eta = {eta:.2f}", weight="bold")
    left.text(eta - 0.2, 0.95 * top, "known", ha="right", color="0.3")
    left.text(eta + 0.2, 0.95 * top, "novel", color="0.3")
    left.set(
        xlabel="strangeness: deviations below what is usual for the class",
        ylabel="share of points",
        title="The cut, chosen without novel data",
    )
    left.legend(loc="upper right", bbox_to_anchor=(1, 0.92), frameon=False, fontsize=9)
    means = records.groupby(["classifier", "policy"])[["gmean", "eta"]].mean()
    classifiers = records.classifier.unique()
    for column, policy in enumerate(POLICIES):
        for row, classifier in enumerate(classifiers):
            gmean, chosen = means.loc[classifier, policy]
            place = row * 5 + column
            right.bar(
                place,
                100 * gmean,
                color=COLOURS[policy],
                width=0.85,
                label=NAMES[policy] if row == 0 else None,
            )
            right.text(place, 100 * gmean + 1, f"{100 * gmean:.1f}", ha="center", weight="bold")
            right.text(place, 3, f"eta\n{chosen:.2f}", ha="center", va="bottom", color="white")
    right.set(
        ylim=(0, 124),
        yticks=[0, 25, 50, 75, 100],
        ylabel="G-mean on digits, 10 seeds, %",
        title="No fixed cut suits every model",
    )
    right.set_xticks([1.5, 6.5], labels=classifiers)
    right.legend(loc="upper center", frameon=False, fontsize=9, ncols=2)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_weight("bold")
    out.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".svg", ".png"):
        metadata = {"Date": None} if suffix == ".svg" else None
        figure.savefig(out.with_suffix(suffix), dpi=150, metadata=metadata)
    plt.close(figure)


def _listed(labels: Any) -> str:
    *most, last = sorted(map(str, labels))
    return f"{', '.join(most)} and {last}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture")
    arguments = parser.parse_args()
    known, novel, eta, label = story()
    out = arguments.out / "digits"
    draw(known, novel, eta, label, pd.read_csv(RECORDS), out)
    print(f"\nPicture: {out}.png")


if __name__ == "__main__":
    main()
