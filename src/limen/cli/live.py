"""What a person or a program sees while a run goes on."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from limen.experiment.config import POLICIES

Event: TypeAlias = dict[str, Any]
Show: TypeAlias = Callable[[Event], None]

_MEANINGS = {
    "shels": "eta = 1",
    "cheating": "the cut that is best for the class to come",
    "ours": "the paper's cut",
    "rate95": "keeps 95 % of the known",
}
_TELLING = 0.05  # of the steps: before that, starting up is most of what took time


@contextlib.contextmanager
def printing(
    folder: Path, objective: str, as_json: bool, quiet: bool, farewell: bool = True
) -> Iterator[Show]:
    """A function to report a run's events to; at the end, the table and what to do next."""
    if quiet:
        yield lambda _: None
    elif as_json:
        yield lambda event: print(json.dumps(event), flush=True)
    elif sys.stderr.isatty():
        with _Display(folder, objective) as display:
            yield display.show
        if farewell:
            display.farewell()
    else:
        lines = _Lines(folder, objective)
        yield lines.show
        if farewell:
            lines.farewell()


class _Lines:
    """One line for each unit, where there is no terminal."""

    def __init__(self, folder: Path, objective: str) -> None:
        self.folder, self.objective = folder, objective
        self.seeds: list[Event] = []
        self.units = self.done = self.steps = self.steps_done = 0
        self.began, self.steps_before = time.monotonic(), 0

    def show(self, event: Event) -> None:
        self.take(event)
        if event["event"] == "start":
            for note in event["notes"]:
                print(note, file=sys.stderr)
            missing, total = len(event["missing"]), len(event["seeds"])
            print(
                f"{self.folder}: {total - missing} of {total} seeds finished, "
                f"{event['units_left']} trainings to go",
                file=sys.stderr,
                flush=True,
            )
        elif event["event"] == "unit":
            print(
                f"{self.done} of {self.units} trainings: seed {event['seed']} {event['unit']} "
                f"in {event['seconds']['total']:.0f} s, {self.left()} left",
                file=sys.stderr,
                flush=True,
            )

    def take(self, event: Event) -> None:
        if event["event"] == "start":
            self.units, self.done = event["units"], event["units"] - event["units_left"]
            self.steps = event["steps"]
            self.steps_done = self.steps_before = event["steps"] - event["steps_left"]
        elif event["event"] == "unit":
            self.done += 1
            self.steps_done += event["steps"]
        elif event["event"] == "seed":
            self.seeds.append(event)

    def left(self, running: int = 0) -> str:
        """Time left, from the steps done since the start."""
        done = self.steps_done + running - self.steps_before
        left = self.steps - self.steps_done - running
        if done < _TELLING * (done + left):
            return "some time"
        return clock(left * (time.monotonic() - self.began) / max(done, 1))

    def farewell(self) -> None:
        from limen.experiment.records import load_run

        Console().print(rows_table(load_run(self.folder).seeds, self.objective))
        print(f"\nlimen report {self.folder} --html report.html   shows all of it")


class _Display(_Lines):
    """A bar, what is running, and the rows found so far."""

    def __init__(self, folder: Path, objective: str) -> None:
        super().__init__(folder, objective)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:.0f} %"),
        )
        self.task = self.bar.add_task("starting", total=None)
        self.lock = threading.Lock()  # before Live, which asks for a picture at once
        self.live = Live(
            console=Console(stderr=True),
            get_renderable=self.picture,
            refresh_per_second=2,
            transient=True,
        )

    def __enter__(self) -> _Display:
        self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.live.__exit__(*error)

    def show(self, event: Event) -> None:
        with self.lock:
            self.take(event)
        for note in event.get("notes", []):
            self.live.console.print(note)

    def picture(self) -> Group:
        with self.lock:
            pulses = self.pulses()
            running = sum(pulse["steps"] for _, pulse in pulses)
            left = self.units - self.done - len(pulses)
            self.bar.update(
                self.task,
                description=f"trainings: {self.done} done, {len(pulses)} running, "
                f"{max(left, 0)} left  time left {self.left(running)}",
                total=max(self.steps, 1),
                completed=self.steps_done + running,
            )
            lines = [f"  {name}: {pulse['doing']}" for name, pulse in pulses]
            table = [rows_table(self.seeds, self.objective)] if self.seeds else []
            return Group(self.bar, *lines, *table)

    def pulses(self) -> list[tuple[str, Event]]:
        found = []
        for path in sorted((self.folder / "work").glob("seed-*/running-*.json")):
            with contextlib.suppress(OSError, ValueError):
                seed = int(path.parent.name.removeprefix("seed-"))
                name = path.stem.removeprefix("running-")
                found.append((f"seed {seed} {name}", json.loads(path.read_text())))
        return found


def rows_table(seeds: list[Event], objective: str) -> Table:
    """Mean G-mean and pooled total of each policy over the finished seeds."""
    table = Table(
        title=f"G-mean/pooled total in %, cuts sought for {objective}, {len(seeds)} seed"
        f"{'s' if len(seeds) != 1 else ''}",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("known classes")
    policies = _present(seeds)
    meant = [f"{policy}: {_MEANINGS[policy]}" for policy in policies if policy in _MEANINGS]
    table.caption, table.caption_justify = "; ".join(meant), "left"
    for policy in policies:
        table.add_column(
            policy, justify="right", style="bold" if policy in ("ours", "limen") else ""
        )
    places = range(len(seeds[0]["rows"]) if seeds else 0)
    sums = {policy: [0.0, 0.0] for policy in policies}
    for place in places:
        rows = [seed["rows"][place] for seed in seeds]
        cells = []
        for policy in policies:
            verdicts = [
                v
                for row in rows
                for v in row["verdicts"]
                if v["policy"] == policy and v["objective"] == objective
            ]
            pair = [math.fsum(v[m] for v in verdicts) / len(verdicts) for m in ("gmean", "pooled")]
            sums[policy] = [a + b for a, b in zip(sums[policy], pair, strict=True)]
            cells.append(f"{100 * pair[0]:.1f}/{100 * pair[1]:.1f}")
        table.add_row(str(len(seeds[0]["rows"][0]["known"]) + place), *cells)
    if len(places) > 1:
        cells = [
            f"{100 * a / len(places):.1f}/{100 * b / len(places):.1f}" for a, b in sums.values()
        ]
        table.add_section()
        table.add_row("mean", *cells)
    return table


def _present(seeds: list[Event]) -> list[str]:
    used = {v["policy"] for seed in seeds for row in seed["rows"] for v in row["verdicts"]}
    return [policy for policy in POLICIES if policy in used]


def clock(seconds: float) -> str:
    """A duration for people.

    >>> clock(42), clock(200), clock(7300)
    ('42 s', '3 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
