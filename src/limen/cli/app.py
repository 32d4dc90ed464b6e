"""All commands."""

from __future__ import annotations

from typing import Annotated

import typer

from limen._version import __version__
from limen.cli import data, demo, files, models, report, run, serve

app = typer.Typer(
    name="limen",
    help="Where do I put the threshold, when I have never seen what is coming?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command()(run.run)
app.command()(report.report)
app.command()(demo.demo)
app.command()(serve.serve)
for command in (
    *(models.fit, models.predict, models.learn),
    *(files.info, files.history, files.undo, files.check, files.explain),
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"limen {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
