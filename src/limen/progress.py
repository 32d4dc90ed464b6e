"""A bar on the terminal while something trains; silence elsewhere."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
Report: TypeAlias = Callable[[Event], None]
Progress: TypeAlias = bool | Report | None


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Report]:
    """A function to report events to: the caller's own, a bar, or nothing.

    None shows a bar if the standard error stream is a terminal and this is no worker process (two
    bars on one terminal spoil each other), True always, False never.
    """
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not _alone_on_a_terminal()):
        yield lambda _: None
    else:
        with _bar() as report:
            yield report


@contextlib.contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]}  {task.fields[result]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        tasks: dict[str, Any] = {}

        def report(event: Event) -> None:
            phase, epochs = event["phase"], event["epochs"]
            if phase not in tasks:
                tasks[phase] = display.add_task(phase, total=None, epoch="", result="")
            if "done" in event:
                done = (event["epoch"] - 1) * event["steps"] + event["done"]
                total = epochs * event["steps"]
                place = f"{event['epoch']}/{epochs}"
                display.update(tasks[phase], completed=done, total=total, epoch=place)
            else:
                result = f"loss {event['loss']:.3f}, accuracy {event['accuracy']:.1%}"
                display.update(tasks[phase], result=result)

        yield report


def _alone_on_a_terminal() -> bool:
    return sys.stderr.isatty() and multiprocessing.parent_process() is None
