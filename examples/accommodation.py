"""What learning one new class does to the old ones, epoch by epoch, on MNIST.

    python examples/accommodation.py [--write]

Five classes are learnt at the paper's settings, then a sixth by `soft-freeze`, `replay` and
`prototype`, each from the same start. The base model is kept under runs/, so that a second run goes
on from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from limen import ClassStatistics
from limen.datasets import load
from limen.shels import SHELSClassifier
from limen.shels.training import features_of

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "limen"  # the same picture, the same file
from matplotlib import pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "accommodation-mnist.csv"
SANITY = ROOT / "results" / "one-epoch-mnist.csv"
TABLES = ROOT / "docs" / "tables"
FIGURE = ROOT / "docs" / "images" / "accommodation.svg"
COLOURS = {"soft-freeze": "#1a6fb5", "replay": "#2a9d5c", "prototype": "#e0a030"}


def base_model(X: Any, y: Any, epochs: int, seed: int) -> SHELSClassifier:
    path = ROOT / "runs" / f"accommodation-{epochs}-{seed}-{len(y)}"
    if path.exists():
        return SHELSClassifier.load(path)
    model = SHELSClassifier.preset("mnist", epochs=epochs, random_state=seed, threads=1)
    model.fit(X, y).save(path)
    return model


def at_eta_one(model: SHELSClassifier, X: Any, y: Any, X_test: Any, y_test: Any) -> Any:
    """Known accuracy, and novel accuracy of each class to come, at SHELS' own cut."""
    known, test = np.isin(y, model.classes_), np.isin(y_test, model.classes_)
    stats = ClassStatistics.from_scores(
        model.similarity(X[known]), y[known], classes=model.classes_
    )
    similarity = model.similarity(X_test[test])
    right = model.classes_[similarity.argmax(axis=1)] == y_test[test]
    rows = [{"class": "known", "accuracy": (right & (stats.strangeness(similarity) < 1)).mean()}]
    for label in sorted(set(y.tolist()) - set(model.classes_.tolist())):
        caught = stats.strangeness(model.similarity(X[y == label])) >= 1
        rows.append({"class": str(label), "accuracy": caught.mean()})
    return pd.DataFrame(rows)


def learn(
    model: SHELSClassifier, how: str, new: int, X: Any, y: Any, X_test: Any, y_test: Any
) -> list[dict[str, Any]]:
    """Closed-set accuracy on old and new test points after every epoch of accommodation."""
    old = model.classes_.tolist()
    labels = np.array([*old, new])
    test = np.isin(y_test, labels)
    inputs = model.input_format_.tensor(X_test[test])
    rows = []

    def record(epoch: int, network: Any) -> None:
        features = features_of(network, inputs, model.input_format_)
        winner = labels[(features @ network.rows.detach().numpy().T).argmax(axis=1)]
        right = winner == y_test[test]
        for which, mask in (("old", y_test[test] != new), ("new", y_test[test] == new)):
            rows.append(
                {"how": how, "epoch": epoch, "classes": which, "accuracy": right[mask].mean()}
            )

    def report(event: dict[str, Any]) -> None:
        if "network" in event:
            record(event["epoch"], event["network"])
            print(f"  {how}: epoch {event['epoch']} of {event['epochs']}", flush=True)

    record(0, model.network_)
    model.set_params(accommodation=how, accommodation_lr=model.lr / 10, progress=report)
    known = np.isin(y, old)
    model.add_class(X[y == new], new, memory=(X[known], y[known]))
    if how == "prototype":
        record(1, model.network_)
    return rows


def summary(records: pd.DataFrame) -> str:
    """Closed-set accuracy before and after, per cent, as Markdown."""
    lines = ["| accommodation | epochs | old before | old after | new after |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for how in COLOURS:
        rows = records[records.how == how]
        end = rows.epoch.max()
        old, new = (
            rows[rows.classes == which].set_index("epoch").accuracy for which in ("old", "new")
        )
        cells = [f"{100 * value:.1f}" for value in (old[0], old[end], new[end])]
        epochs = 0 if how == "prototype" else end
        lines.append(f"| `{how}` | {epochs} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def quick_table(quick: pd.DataFrame) -> str:
    known, novel = quick[quick["class"] == "known"], quick[quick["class"] != "known"]
    names = ["known", *(f"novel: {label}" for label in novel["class"]), "novel, mean"]
    values = [*known.accuracy, *novel.accuracy, novel.accuracy.mean()]
    lines = [names, ["---"] * len(names), [f"{100 * value:.1f}" for value in values]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def draw(records: pd.DataFrame) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for ax, which in zip(axes, ("old", "new"), strict=True):
        for how, colour in COLOURS.items():
            rows = records[(records.how == how) & (records.classes == which)]
            ax.plot(rows.epoch, 100 * rows.accuracy, marker="o", color=colour, label=how)
        title = "the five old classes" if which == "old" else "the new class"
        ax.set(title=title, xlabel="epochs of learning the new class")
        ax.title.set_weight("bold")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.3)
    axes[0].set(ylabel="test accuracy, %", ylim=(0, 102))
    axes[1].legend(frameon=False, loc="lower right")
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


def show() -> None:
    draw(pd.read_csv(RECORDS))
    (TABLES / "accommodation.md").write_text(summary(pd.read_csv(RECORDS)))
    (TABLES / "one-epoch.md").write_text(quick_table(pd.read_csv(SANITY)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=10, help="of the base model (paper: 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per-class", type=int, default=None, help="training images of each class")
    parser.add_argument("--write", action="store_true", help="save to results/ and docs/images/")
    parser.add_argument("--redraw", action="store_true", help="only draw what results/ holds")
    arguments = parser.parse_args()
    if arguments.redraw:
        show()
        return
    data = load("mnist").first(arguments.per_class)
    X, y, X_test, y_test = data.X_train, data.y_train, data.X_test, data.y_test
    order = np.random.default_rng(arguments.seed).permutation(10)
    known = np.isin(y, order[:5])

    quick = at_eta_one(base_model(X[known], y[known], 1, arguments.seed), X, y, X_test, y_test)
    print(f"known {sorted(order[:5].tolist())}, one epoch, eta = 1\n{quick.to_string(index=False)}")
    rows: list[dict[str, Any]] = []
    for how in COLOURS:
        model = base_model(X[known], y[known], arguments.epochs, arguments.seed)
        rows += learn(model, how, int(order[5]), X, y, X_test, y_test)
        print(pd.DataFrame(rows[-2:]).to_string(index=False), flush=True)
    if arguments.write:
        quick.to_csv(SANITY, index=False, float_format="%.5f", lineterminator="\n")
        pd.DataFrame(rows).to_csv(RECORDS, index=False, float_format="%.5f", lineterminator="\n")
        show()


if __name__ == "__main__":
    main()
