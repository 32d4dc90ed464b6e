"""Pictures for the report, as SVG text that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from limen.experiment.config import POLICIES
from limen.experiment.policies import Record
from limen.experiment.records import METRICS

# Stand-ins that become CSS variables, so one picture serves light and dark pages.
COLOURS: Mapping[str, str] = {
    "shels": "#010101",
    "cheating": "#010102",
    "ours": "#010103",
    "rate95": "#010104",
    "limen": "#010109",
    "known": "#010105",
    "novel": "#010106",
    "ink": "#010107",
    "grid": "#010108",
}
_STYLES = {
    "shels": ("o", "-"),
    "cheating": ("^", "--"),
    "ours": ("s", "-"),
    "limen": ("D", "-"),
    "rate95": ("", ":"),
}


def accuracy_panels(table: pd.DataFrame, first: str = "pooled") -> list[str]:
    """Total (or `first`), known and novel accuracy over the number of known classes."""
    panels = []
    for metric in (first, "known", "novel"):
        figure, ax = _panel()
        draw_lines(ax, table, metric, scale=100)
        title = METRICS[metric] + (" accuracy" if metric != first else "")
        ax.set(title=title, xlabel="known classes", ylabel="%", ylim=(0, 102))
        panels.append(_svg(figure, f"{title} by number of known classes, one line per policy"))
    return panels


def eta_panel(table: pd.DataFrame) -> str:
    """Where each policy puts the cut as classes are learnt."""
    figure, ax = _panel()
    draw_lines(ax, table, "eta", scale=1)
    ax.set(title="eta over time", xlabel="known classes", ylabel="eta")
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    return _svg(figure, "eta of each policy by number of known classes")


def strangeness_panels(seed: Record, objective: str) -> list[str]:
    """Strangeness of known and novel points at each step, with every policy's cut."""
    panels = []
    for row in seed["rows"]:
        figure, ax = _panel(width=3.6, height=2.5)
        counts = row["histogram"]
        wide = 3 if sum(counts["known"]) < 2000 else 1  # few points need wide bins
        edges = np.linspace(counts["low"], counts["high"], len(counts["known"]) // wide + 1)
        top = 0.0
        for name in ("known", "novel"):
            heights = np.reshape(counts[name], (-1, wide)).sum(axis=1) / max(sum(counts[name]), 1)
            top = max(top, heights[1:-1].max())  # the outermost bins hold all that lies beyond
            ax.stairs(heights, edges, fill=True, alpha=0.45, color=COLOURS[name], label=name)
        for verdict in row["verdicts"]:
            if (
                verdict["objective"] == objective
                and counts["low"] < verdict["eta"] < counts["high"]
            ):
                policy = verdict["policy"]
                ax.axvline(
                    verdict["eta"], color=COLOURS[policy], linestyle=_STYLES[policy][1], lw=1.6
                )
        ax.set(title=f"{len(row['known'])} known", xlabel="strangeness", yticks=[])
        ax.set_ylim(0, 1.1 * top or None)
        ax.spines["left"].set_visible(False)
        panels.append(_svg(figure, f"strangeness with {len(row['known'])} classes known"))
    return panels


def draw_lines(
    ax: Axes, table: pd.DataFrame, metric: str, scale: float, colours: Mapping[str, str] = COLOURS
) -> None:
    """One line per policy over the rows, mean and std, from a `summary`."""
    mine = table[table["metric"] == metric]
    for policy in POLICIES:
        points = mine[mine["policy"] == policy].sort_values("row")
        if points.empty:
            continue
        x, mean = points["row"].to_numpy(), scale * points["mean"].to_numpy()
        spread = scale * points["std"].fillna(0).to_numpy()
        marker, line = _STYLES[policy]
        colour = colours[policy]
        ax.plot(x, mean, marker=marker, linestyle=line, color=colour, lw=1.8, ms=5, label=policy)
        if policy != "rate95":
            ax.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.12, lw=0)
    ax.set_xticks(sorted(mine["row"].unique()))


def _panel(width: float = 4.2, height: float = 3.1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=COLOURS["grid"], lw=0.8)
    ax.set_axisbelow(True)
    return figure, ax


def _svg(figure: Figure, label: str) -> str:
    """The figure as an inline element that a screen reader can name."""
    ink = COLOURS["ink"]
    for ax in figure.axes:
        ax.tick_params(colors=ink)
        ax.title.set(color=ink, weight="bold")
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set_color(ink)
        for spine in ax.spines.values():
            spine.set_color(ink)
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for name, stand_in in COLOURS.items():
        text = text.replace(stand_in, f"var(--{name})")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def confusion(seeds: Sequence[Record], n_classes: int) -> list[list[float | None]]:
    """At the last step, over all seeds: of each true class, the share each class won.

    None in rows of classes that no seed knew then.
    """
    total = np.zeros((n_classes, n_classes))
    for seed in seeds:
        row = seed["rows"][-1]
        total[np.ix_(row["known"], row["known"])] += np.asarray(row["confusion"])
    sums = total.sum(axis=1, keepdims=True)
    shares = np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)
    return [[float(v) if sums[i, 0] > 0 else None for v in shares[i]] for i in range(n_classes)]
