"""Measured ratios, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Row:
    what: str
    measured: float
    wanted: str


def markdown(rows: Iterable[Row]) -> str:
    lines = ["| what | measured | wanted |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {row.measured:.2f} | {row.wanted} |" for row in rows]
    return "\n".join(lines) + "\n"


def write(name: str, rows: list[Row]) -> None:
    """Keep the record under results/ and the table under docs/tables/."""
    record = ROOT / "results" / f"bench-{name}.json"
    record.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    rows = [Row(**row) for row in json.loads(record.read_text())]
    (ROOT / "docs" / "tables" / f"bench-{name}.md").write_text(markdown(rows))
