"""The paper's tables, ours and side by side with the published ones: Markdown, LaTeX, CSV."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from limen.experiment.config import OBJECTIVES
from limen.experiment.records import METRICS, Run, frame, published_beside, taken_for, titles
from limen.experiment.statistics import overall, summary

SHOWN = ("known", "novel", "pooled", "total", "gmean")
OBJECTIVE_NAMES = {"gmean": "G-mean", "total": "total accuracy"}
STARS = (
    "*, **, ***: p below 0.05, 0.01, 0.001 against shels, t-test paired by seed, Holm-Bonferroni "
    "over the rows"
)


def cell(mean: float, std: float = math.nan, stars: str = "") -> str:
    """A figure in per cent.

    >>> cell(0.5, 0.012, "*"), cell(0.5)
    ('50.0 ± 1.2*', '50.0')
    """
    spread = "" if math.isnan(std) else f" ± {100 * std:.1f}"
    return f"{100 * mean:.1f}{spread}{stars}"


def main_table(run: Run, objective: str) -> pd.DataFrame:
    """One line per row and metric, one column of cells per policy, the means at the end."""
    rows = frame(run)
    table = summary(rows, objective)
    lines = []
    for number, part in table.groupby("row", sort=True):
        for metric in SHOWN:
            mine = part[part["metric"] == metric]
            cells = {
                p: cell(m, s, star)
                for p, m, s, star in zip(
                    mine["policy"], mine["mean"], mine["std"], mine["stars"], strict=True
                )
            }
            lines.append({"known classes": str(number), "accuracy": METRICS[metric], **cells})
        etas = part[part["metric"] == "eta"].set_index("policy")["mean"]
        lines.append(
            {"known classes": str(number), "accuracy": "eta"}
            | {str(policy): f"{value:.2f}" for policy, value in etas.items()}
        )
    if rows["row"].nunique() > 1:
        means = overall(rows, objective)
        for metric in SHOWN:
            cells = {
                str(p): cell(means["mean"][p][metric], means["std"][p][metric])
                for p in means["mean"].columns
            }
            lines.append({"known classes": "mean", "accuracy": METRICS[metric], **cells})
    return pd.DataFrame(lines)


def separation_table(run: Run) -> pd.DataFrame:
    """What no cut changes: closed-set accuracy, AUROC and FPR at 95 %."""
    table = summary(frame(run), OBJECTIVES[0])
    table = table[table["policy"] == "shels"]
    names = {"closed_set": "closed-set accuracy", "auroc": "AUROC", "fpr95": "FPR at 95 %"}
    lines = []
    for number, part in table.groupby("row", sort=True):
        by = part.set_index("metric")
        cells = {title: cell(by["mean"][m], by["std"][m]) for m, title in names.items()}
        lines.append({"known classes": str(number), **cells})
    return pd.DataFrame(lines)


def held_out_table(run: Run) -> pd.DataFrame | None:
    """How much of each held-out class goes unnoticed, and what that is taken for, hardest first."""
    by_class: dict[int, dict[int, float]] = {}
    for (held_out, known), share in taken_for(run).items():
        by_class.setdefault(held_out, {})[known] = share
    lines = []
    for held_out, shares in sorted(by_class.items(), key=lambda item: -sum(item[1].values())):
        most = sorted(
            (known for known in shares if shares[known] >= 0.01), key=lambda k: -shares[k]
        )
        told = [f"{run.class_names[known]} ({100 * shares[known]:.0f} %)" for known in most[:3]]
        lines.append(
            {
                "held out": run.class_names[held_out],
                "unnoticed": f"{100 * sum(shares.values()):.0f} %",
                "taken for": ", ".join(told),
            }
        )
    return pd.DataFrame(lines) if lines else None


def selection_table(run: Run) -> pd.DataFrame | None:
    """Of limen's method: which scores and rules were chosen, in how many seeds, and what for."""
    lines = []
    for rows in zip(*(seed["rows"] for seed in run.seeds), strict=False):
        if not all("selection" in row for row in rows):
            return None
        chosen = [row["selection"] for row in rows]
        lines.append(
            {
                "known classes": str(len(rows[0]["known"])),
                "score": _counted([one["score"] for one in chosen]),
                "rule": _counted([one["rule"] for one in chosen]),
                "expects": cell(sum(one["expected"] for one in chosen) / len(chosen)),
            }
        )
    return pd.DataFrame(lines)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in Counter(names).most_common())


def beside_published(run: Run, objective: str) -> pd.DataFrame | None:
    """Ours, the published figure and the difference; None where the paper has no such table."""
    theirs = published_beside(run, objective)
    if theirs is None:
        return None
    figures = theirs.set_index(["row", "metric", "policy"])["mean"]
    table = summary(frame(run), objective)
    lines = []
    for number, metric in dict.fromkeys((row, metric) for row, metric, _ in figures.index):
        mine = table[(table["row"] == number) & (table["metric"] == metric)].set_index("policy")
        if mine.empty:
            continue
        line = {"known classes": str(number), "accuracy": METRICS[metric]}
        for policy in ("shels", "cheating", "ours"):
            value, there = 100 * mine["mean"][policy], figures[number, metric, policy]
            line |= {f"{policy}": f"{value:.1f}", f"{policy}, paper": f"{there:.1f}"}
            line |= {f"{policy}, difference": f"{value - there:+.1f}"}
        lines.append(line)
    return pd.DataFrame(lines)


def alarm_table(run: Run) -> pd.DataFrame | None:
    """With `policy_detects`: how often the alarm fired on new and on known batches."""
    if not run.config["policy_detects"]:
        return None
    first = len(run.seeds[0]["rows"][0]["known"])
    lines = []
    for place in range(len(run.seeds[0]["rows"])):
        rows = [seed["rows"][place] for seed in run.seeds]
        caught = sum(row["alarms"]["novel"]["raised"] for row in rows)
        false = sum(row["alarms"]["known"]["raised"] for row in rows)
        known = sum(len(row["known"]) for row in rows) / len(rows)
        lines.append(
            {"classes met": str(first + place), "known": f"{known:.1f}"}
            | {"noticed": f"{caught} of {len(rows)}", "missed": str(len(rows) - caught)}
            | {"false alarms": f"{false} of {len(rows)}"}
        )
    return pd.DataFrame(lines)


def heading(name: str) -> str:
    """Right of a policy's own column stand the paper's and the difference."""
    return "paper" if name.endswith(", paper") else "Δ" if name.endswith(", difference") else name


def markdown(table: pd.DataFrame) -> str:
    """A pipe table; repeated values of the first column are left out."""
    lines = [
        [heading(name) for name in table.columns],
        ["---"] * len(table.columns),
        *_sparse(table),
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def latex(table: pd.DataFrame, caption: str) -> str:
    """A table of booktabs; needs ``\\usepackage{booktabs}``."""
    rows = _sparse(table)
    body = []
    for number, cells in enumerate(rows):
        if number and cells[0]:
            body.append(r"\midrule")
        body.append(" & ".join(_escape(text) for text in cells) + r" \\")
    head = " & ".join(_escape(heading(name)) for name in table.columns) + r" \\"
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{_escape(caption)}}}",
    ]
    lines += [rf"\begin{{tabular}}{{ll{'r' * (len(table.columns) - 2)}}}", r"\toprule", head]
    lines += [r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def write_up(runs: Sequence[Run], style: str) -> str:
    """Every table of the runs as one text: ``"markdown"`` or ``"latex"``."""
    parts = []
    for run, name in zip(runs, titles(runs), strict=True):
        tables = [
            (f"{name}: cuts sought for {OBJECTIVE_NAMES[objective]}", table)
            for objective in OBJECTIVES
            for table in (main_table(run, objective), beside_published(run, objective))
            if table is not None
        ]
        tables.append((f"{name}: what no cut changes", separation_table(run)))
        further = {
            "what was chosen, in how many seeds": selection_table(run),
            "hard to tell apart when one is held out": held_out_table(run),
            "the batch alarm": alarm_table(run),
        }
        tables += [(f"{name}: {about}", t) for about, t in further.items() if t is not None]
        if style == "latex":
            parts += [latex(table, f"{title}. {_seeds(run)}") for title, table in tables]
        else:
            parts += [f"## {name}\n\n`{run.command}`: {_seeds(run)}\n"]
            parts += [f"### {title}\n\n{markdown(table)}" for title, table in tables]
    return "\n".join(parts)


def csv(runs: Sequence[Run]) -> str:
    """Mean, std, p-values of everything, one line each."""
    tables = []
    for run in runs:
        for objective in OBJECTIVES:
            facts = {"run": str(run.path)}
            facts |= {name: run.config[name] for name in ("dataset", "preset", "novel")}
            found = summary(frame(run), objective)
            table = found.assign(**facts, objective=objective)
            tables.append(table[[*facts, "objective", *found.columns]])
    text: str = pd.concat(tables).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return text


def _seeds(run: Run) -> str:
    n = len(run.seeds)
    return f"Mean ± std of {n} seeds, in %. {STARS}." if n > 1 else "One seed, in %."


def _sparse(table: pd.DataFrame) -> list[list[str]]:
    rows = [[str(value) for value in row] for row in table.itertuples(index=False)]
    return [
        ["" if i and row[0] == rows[i - 1][0] else row[0], *row[1:]] for i, row in enumerate(rows)
    ]


def _escape(text: str) -> str:
    for plain, safe in (
        ("%", r"\%"),
        ("_", r"\_"),
        ("&", r"\&"),
        ("±", r"$\pm$"),
        ("Δ", r"$\Delta$"),
    ):
        text = text.replace(plain, safe)
    return text
