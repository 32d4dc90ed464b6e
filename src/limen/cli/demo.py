"""limen demo: the whole idea on scikit-learn's digits, in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from limen.cli.live import printing, rows_table
from limen.experiment.config import RunConfig

SEEDS = 3


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run and its report.")] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as JSON.")] = False,
) -> None:
    """Five digits known, five discovered: watch the cut being found and improved.

    Example: limen demo
    """
    from joblib import cpu_count

    from limen.experiment import run as experiment
    from limen.experiment.files import write_bytes
    from limen.experiment.records import load_run
    from limen.experiment.report import html_report

    config = RunConfig.resolve(
        {"dataset": "digits", "preset": "small", "epochs": 15}
        | {"accommodation": "replay", "accommodation_epochs": 3, "accommodation_lr": 1e-3}
    )
    with printing(out, config.objective, as_json, quiet=False, farewell=False) as show:
        records = experiment.run(config, range(SEEDS), out, jobs=cpu_count(), report=show)
    page = out / "report.html"
    write_bytes(page, html_report([load_run(out)]).encode())
    if not as_json:
        typer.echo("\n".join(story(records[0], config.objective)))
        Console().print(rows_table(records, config.objective))
        typer.echo(f"\nThe whole report, with pictures: {page}")


def story(seed: dict[str, Any], objective: str) -> list[str]:
    """What happened in one seed, told."""
    rows = seed["rows"]
    known = ", ".join(str(label) for label in sorted(rows[0]["known"]))
    lines = [f"\nThe model knows the digits {known}. What will come, it has not seen.\n"]
    lines.append(
        "Stage one: each known digit is held out in turn, and a cut sought that catches it."
    )
    for fold in seed["folds"]:
        found = fold["etas"][objective]
        lines.append(
            f"  without {fold['held_out']}: eta {found['eta']:.2f} "
            f"catches {found['novel']:.0%} of it and keeps {found['known']:.0%} of the others"
        )
    for number, row in enumerate(rows):
        by = {v["policy"]: v for v in row["verdicts"] if v["objective"] == objective}
        ours, best = by["ours"], by["cheating"]
        if number == 0:
            lines.append(f"Their mean is the cut to start with: eta = {ours['eta']:.2f}.\n")
        lines.append(
            f"{'An' if row['next'] == 8 else 'A'} {row['next']} comes. At eta = {ours['eta']:.2f}, "
            f"{ours['novel']:.0%} of its pictures are called unknown,\n"
            f"  and {ours['known']:.0%} of the known digits are still recognised "
            f"(G-mean {100 * ours['gmean']:.1f}; with hindsight {100 * best['gmean']:.1f})."
        )
        if row["learnt"]:
            after = next(
                v["eta"]
                for v in rows[number + 1]["verdicts"]
                if v["policy"] == "ours" and v["objective"] == objective
            )
            lines.append(
                f"  Someone names it: eta moves to {after:.2f}, then the digit is learnt; "
                f"{len(rows[number + 1]['known'])} known."
            )
    return [*lines, f"\nThe same with {SEEDS} seeds, each with other digits known first:\n"]
