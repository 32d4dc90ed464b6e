"""One self-contained page about one or more runs."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, select_autoescape

from limen._version import __version__
from limen.experiment import figures, tables
from limen.experiment.claims import claims_table
from limen.experiment.config import OBJECTIVES
from limen.experiment.records import Run, frame, titles
from limen.experiment.statistics import overall, summary


def html_report(runs: Sequence[Run]) -> str:
    """The page as text; it needs nothing else, no network either."""
    environment = Environment(
        loader=PackageLoader("limen.experiment", "."), autoescape=select_autoescape(["html", "j2"])
    )
    template = environment.get_template("report.html.j2")
    datasets = list(dict.fromkeys(run.config["dataset"] for run in runs))
    title = f"limen: finding the cut on {' and '.join(datasets)}"
    views = [_view(run, name) for run, name in zip(runs, titles(runs), strict=True)]
    return template.render(title=title, runs=views, version=__version__)


def _view(run: Run, title: str) -> dict[str, Any]:
    rows = frame(run)
    objective = run.config.get("objective", OBJECTIVES[0])
    many = rows["row"].nunique() > 1
    names = run.class_names
    shares = figures.confusion(run.seeds, len(names))
    held_out, selection = tables.held_out_table(run), tables.selection_table(run)
    return {
        "title": title,
        "limen": run.policy == "limen",
        "command": run.command,
        "seeds": f"{len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''}",
        "tiles": _tiles(rows, objective, run.policy),
        # They are about the paper's models.
        "claims": _html(claims_table(run), "claims").replace("`", "")
        if many and run.policy == "ours"
        else "",
        "views": [_objective_view(run, rows, name, many) for name in OBJECTIVES],
        "first_seed": run.seeds[0]["seed"],
        "first_objective": tables.OBJECTIVE_NAMES[objective],
        "strangeness": figures.strangeness_panels(run.seeds[0], objective),
        "separation": _html(tables.separation_table(run), "one"),
        "held_out": _html(held_out, "held-out") if held_out is not None else "",
        "selection": _html(selection, "held-out") if selection is not None else "",
        "eta": figures.eta_panel(summary(rows, objective)) if many else "",
        "confusion_at": len(run.seeds[0]["rows"][-1]["known"]),
        "class_names": names,
        "confusion": [
            {"name": name, "shares": line} for name, line in zip(names, shares, strict=True)
        ],
        "alarm": _html(alarm, "one") if (alarm := tables.alarm_table(run)) is not None else "",
        "facts": _facts(run),
    }


def _objective_view(run: Run, rows: pd.DataFrame, objective: str, many: bool) -> dict[str, Any]:
    # The paper's figure has the pooled total; limen's method is judged by G-mean.
    first = "gmean" if run.policy == "limen" and objective == "gmean" else "pooled"
    shown = [("All figures, mean ± std over seeds", tables.main_table(run, objective))]
    beside = tables.beside_published(run, objective)
    if beside is not None:
        shown.insert(0, ("Beside the published figures", beside))
    return {
        "objective": tables.OBJECTIVE_NAMES[objective],
        "panels": figures.accuracy_panels(summary(rows, objective), first) if many else [],
        "tables": [
            {
                "name": name,
                "html": _html(table, "two", run.policy),
                "open": number == 0,
                "note": tables.STARS if "*" in table.to_string() else "",
            }
            for number, (name, table) in enumerate(shown)
        ],
    }


def _tiles(rows: pd.DataFrame, objective: str, own: str) -> list[dict[str, str]]:
    means = overall(rows, objective)
    tiles = [
        {
            "name": f"G-mean of {policy}",
            "value": tables.cell(means["mean"][policy]["gmean"]),
            "mark": "own" if policy == own else "",
        }
        for policy in means["mean"].columns
    ]
    gap = means["mean"]["cheating"]["gmean"] - means["mean"][own]["gmean"]
    apart = {"name": f"points from {own} to cheating", "value": f"{100 * gap:.1f}", "mark": ""}
    return [*tiles, apart]


def _html(table: pd.DataFrame, kind: str, own: str = "ours") -> str:
    """A table with its first column said once, and its own and the paper's figures marked."""
    columns = [str(column) for column in table.columns]
    marks = [
        name if name == own else "theirs" if name.endswith(("paper", "difference")) else ""
        for name in columns
    ]
    head = "".join(f'<th scope="col">{html.escape(tables.heading(name))}</th>' for name in columns)
    lines, last = [], None
    for row in table.itertuples(index=False):
        cells = [str(value) for value in row]
        first = cells[0] != last
        last = cells[0]
        body = "".join(
            f'<td class="{mark}">{html.escape(text)}</td>'
            if mark
            else f"<td>{html.escape(text)}</td>"
            for text, mark in zip(cells[1:], marks[1:], strict=True)
        )
        lead = f'<th scope="row">{html.escape(cells[0]) if first else ""}</th>'
        lines.append(f'<tr class="first">{lead}{body}</tr>' if first else f"<tr>{lead}{body}</tr>")
    body = "".join(lines)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _facts(run: Run) -> list[tuple[str, str]]:
    seconds = [sum(unit["total"] for unit in fact["seconds"].values()) for fact in run.facts]
    training = [sum(unit["training"] for unit in fact["seconds"].values()) for fact in run.facts]
    steps = [sum(fact["steps"].values()) for fact in run.facts]
    versions = run.facts[0]["versions"]
    settings = ", ".join(
        f"{name} {value}"
        for name, value in run.config.items()
        if value is not None and name not in ("class_names", "format")
    )
    return [
        ("settings", settings),
        ("seeds", ", ".join(str(seed["seed"]) for seed in run.seeds)),
        ("training steps of a seed", f"{sum(steps) / len(steps):,.0f}"),
        ("processor time of a seed", _duration(sum(seconds) / len(seconds))),
        ("of it not in training steps", f"{100 * (1 - sum(training) / sum(seconds)):.0f} %"),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items())),
    ]


def _duration(seconds: float) -> str:
    minutes = math.floor(seconds / 60)
    return f"{minutes} min {seconds - 60 * minutes:.0f} s" if minutes else f"{seconds:.1f} s"
