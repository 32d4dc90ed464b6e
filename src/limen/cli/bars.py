"""Bars with time left, on a terminal; silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def training(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """To be told how many trainings are done, and of how many."""
    with _display(quiet, MofNCompleteColumn(), TimeRemainingColumn()) as display:
        task = display.add_task("trainings", total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)


@contextlib.contextmanager
def counting(what: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """To be told of more that are done."""
    with _display(quiet, MofNCompleteColumn(), TimeRemainingColumn()) as display:
        task = display.add_task(what, total=total)
        yield lambda more: display.advance(task, more)


def _display(quiet: bool, *columns: Any) -> Progress:
    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    hidden = quiet or not sys.stderr.isatty()
    return Progress(*shown, console=Console(stderr=True), transient=True, disable=hidden)
