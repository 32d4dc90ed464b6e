"""The tables and pictures of docs/reproduction.md, from the records under results/.

python examples/reproduction.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from limen.experiment.claims import claims_table
from limen.experiment.config import OBJECTIVES
from limen.experiment.figures import draw_lines
from limen.experiment.records import METRICS, Run, frame, load_run
from limen.experiment.statistics import overall, summary
from limen.experiment.tables import beside_published, cell, markdown

ROOT = Path(__file__).resolve().parents[1]
TABLES, IMAGES = ROOT / "docs" / "tables", ROOT / "docs" / "images"
COLOURS = {"shels": "#7a8290", "cheating": "#d07a12", "ours": "#1565b0", "rate95": "#9a4fb0"}
NAMES = ("mnist", "fashion-mnist", "cifar10")


def runs() -> list[Run]:
    """What results/ holds of the paper's three data sets, the paper's settings first."""
    folders = [
        ROOT / "results" / f"{name}-{preset}" for preset in ("paper", "small") for name in NAMES
    ]
    return [load_run(folder) for folder in folders if list(folder.glob("seed-*.json"))]


def overview(found: list[Run]) -> pd.DataFrame:
    """Mean over the rows, one line per run and objective."""
    lines = []
    for run in found:
        for objective in OBJECTIVES:
            means = overall(frame(run), objective)["mean"]
            line = {"run": run.title, "seeds": str(len(run.seeds)), "sought for": objective}
            for policy in means.columns:
                pair = means[policy]
                line[str(policy)] = f"{cell(pair['gmean'])} / {cell(pair['pooled'])}"
            lines.append(line)
    return pd.DataFrame(lines)


def draw(run: Run) -> None:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    objective = "total" if run.config["dataset"] == "fashion-mnist" else "gmean"
    table = summary(frame(run), objective)
    for ax, metric in zip(
        figure.subplots(1, 3, sharey=True), ("pooled", "known", "novel"), strict=True
    ):
        draw_lines(ax, table, metric, 100, COLOURS)
        ax.set(title=METRICS[metric], xlabel="known classes", ylim=(0, 102))
        ax.title.set_weight("bold")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel(f"%, sought for {objective}")
    figure.axes[2].legend(frameon=False, fontsize="small")
    with mpl.rc_context({"svg.hashsalt": "limen"}):
        figure.savefig(IMAGES / f"reproduction-{run.path.name}.svg", metadata={"Date": None})


def page(found: list[Run]) -> str:
    """The part of the page that figures make."""
    parts = []
    for run in found:
        name = run.path.name
        seeds = f"{len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''}"
        parts += [f"## {run.title}\n", f"`{run.command} --out results/{name}`, {seeds}.\n"]
        parts += [
            f"![{run.title}: total, known and novel accuracy](images/reproduction-{name}.svg)\n"
        ]
        parts += [markdown(claims_table(run))]
        for objective in OBJECTIVES:
            table = beside_published(run, objective)
            if table is not None:
                parts += [
                    f"Sought for {objective}, beside the published figures:\n",
                    markdown(table),
                ]
    return "\n".join(parts)


def main() -> None:
    found = runs()
    for run in found:
        draw(run)
    (TABLES / "reproduction-overview.md").write_text(markdown(overview(found)))
    (TABLES / "reproduction.md").write_text(page(found))


if __name__ == "__main__":
    main()
