"""The pictures of docs/method.md, from the records under results/.

python examples/method_pictures.py
"""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from method import FULL, RESULTS, SETS, cost_of_folds, name_of, studies

IMAGES = RESULTS.parent / "docs" / "images"
COLOURS = ("#1565b0", "#d07a12", "#2e8b57")


def draw_folds(found: dict[str, pd.DataFrame]) -> None:
    """G-mean against what the folds cost; but for folds that take no step, far below."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for dataset, study in found.items():
        if FULL not in study["variant"].to_numpy():
            continue
        cost, gmean = cost_of_folds(study)
        ax = left if dataset == "digits" else right
        colour = COLOURS[[*SETS].index(dataset)] if dataset in SETS else "#444c58"
        x = 100 * cost / cost[FULL]
        line = [v for v in x.sort_values().index if v in ("limen", FULL) or v.startswith("epochs")]
        change = 100 * gmean.sub(gmean[FULL], axis=0)
        y, error = change.mean(), change.sem().fillna(0)
        label = "fewer epochs" if ax is left else f"{SETS[dataset]}, {_counts(change[line])}"
        ax.errorbar(x[line], y[line], error[line], marker="o", color=colour, label=label)
        ax.plot(x["limen"], y["limen"], "o", ms=11, mfc="none", color=colour)
        for variant in [v for v in x.index if v not in line and x[v] and ax is left]:
            ax.errorbar(x[variant], y[variant], error[variant], fmt="x", ms=7, color=COLOURS[1])
            side = 1 if y[variant] > 0 else -1
            end, style = y[variant] + side * error[variant], {"fontsize": "small"}
            style["va"] = "bottom" if side > 0 else "top"
            ax.annotate(
                variant, (x[variant], end), (2, 2 * side), textcoords="offset points", **style
            )
    left.set(title="digits, ten streams")
    right.set(title="the three sets")
    for ax in (left, right):
        ax.axhline(0, color="#7a8290", lw=1)
        ax.axhline(-1, color="#7a8290", lw=1, ls="--")
        ax.annotate(
            "allowed", (66, -1), (0, 2), textcoords="offset points", color="#7a8290", size="small"
        )
        ax.set(xlabel="steps of the folds, % of full cost", xlim=(0, 104))
        ax.set_ylabel("G-mean, points against full cost")
        _plain(ax)
        ax.legend(frameon=False, fontsize="small", loc="upper right")
    _save(figure, "method-folds")


def draw_memory(studies: dict[str, pd.DataFrame]) -> None:
    """G-mean, and its standard error, against how many examples of a class are kept."""
    found = {d: study for d, study in studies.items() if (study["study"] == "memory").any()}
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    cells = figure.subplots(2, 3).ravel()
    for ax, (dataset, study) in zip(cells, found.items(), strict=False):
        tried = study.loc[study["study"] == "memory", "variant"].unique().tolist()
        gmean = 100 * study.groupby(["seed", "variant"])["gmean"].mean().unstack()
        # All points of a picture are of the same seeds.
        gmean = gmean[[*tried, "limen", "6: everything kept"]].dropna()
        change = gmean.sub(gmean["6: everything kept"], axis=0)
        points = {tuple(name.split()): change[name] for name in tried}
        points["reservoir", "50"] = change["limen"]
        sizes = sorted({int(size) for _, size in points})
        for colour, kind in zip(COLOURS, ("reservoir", "herding", "k-centre"), strict=True):
            kept = [size for size in sizes if (kind, str(size)) in points]
            if not kept:
                continue
            line = pd.DataFrame({size: points[kind, str(size)] for size in kept})
            error = line.sem().fillna(0)
            ax.errorbar(kept, line.mean(), error, marker="o", color=colour, label=kind)
        ax.axhline(0, color="#7a8290", lw=1)
        ax.axhline(-1.5, color="#7a8290", lw=1, ls="--", label="allowed")
        ax.set(title=f"{name_of(dataset)}, {_count(len(gmean))}", xlabel="images kept of a class")
        ax.set_xscale("log")
        ax.set_xticks(sizes, labels=[str(size) for size in sizes])
        ax.minorticks_off()
        _plain(ax)
    for ax in cells[::3]:
        ax.set_ylabel("G-mean, points\nagainst everything kept")
    for ax in cells[len(found) :]:
        ax.set_axis_off()
    cells[-1].legend(*cells[1].get_legend_handles_labels(), frameon=False, loc="center")
    _save(figure, "method-memory")


def _counts(change: pd.DataFrame) -> str:
    """Of how many seeds the points of a line are."""
    least, most = int(change.count().min()), int(change.count().max())
    return _count(most) if least == most else f"{least} to {most} seeds"


def _count(seeds: int) -> str:
    return f"{seeds} seed" + "s" * (seeds > 1)


def _plain(ax: mpl.axes.Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)


def _save(figure: Figure, name: str) -> None:
    with mpl.rc_context({"svg.hashsalt": "limen"}):
        figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})


def main() -> None:
    draw_folds(studies("digits", *SETS))
    draw_memory(studies("digits", "digits-replay", *SETS))


if __name__ == "__main__":
    main()
