"""limen report: tables and a page from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limen.experiment.files import write_bytes

Target = Path | None


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders that limen run wrote.")],
    html: Annotated[Target, typer.Option(help="Write a page that needs nothing else.")] = None,
    markdown: Annotated[Target, typer.Option(help="Write the tables as Markdown.")] = None,
    latex: Annotated[Target, typer.Option(help="Write the tables as LaTeX (booktabs).")] = None,
    csv: Annotated[Target, typer.Option(help="Write all figures and p-values as CSV.")] = None,
) -> None:
    """Show runs beside the published figures: tables, tests, pictures.

    Without a target the Markdown tables are printed.

    Example: limen report runs/mnist-small --html report.html
    """
    from limen.experiment import records, tables

    runs = [records.load_run(folder) for folder in folders]
    if html:
        from limen.experiment.report import html_report

        _write(html, html_report(runs))
    if markdown:
        _write(markdown, tables.write_up(runs, "markdown"))
    if latex:
        _write(latex, tables.write_up(runs, "latex"))
    if csv:
        _write(csv, tables.csv(runs))
    if not (html or markdown or latex or csv):
        typer.echo(tables.write_up(runs, "markdown"), nl=False)


def _write(path: Path, text: str) -> None:
    write_bytes(path, text.encode())
    typer.echo(f"wrote {path}", err=True)
