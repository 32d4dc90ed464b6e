"""Run the examples of README and docs, and fill in measured tables; --write updates the pages.

A ``python`` block is run, all blocks of a page in one namespace. The ``text`` block right after it
is what it prints. Between ``<!-- tables/NAME.md -->`` and ``<!-- end -->`` stands that file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


TABLE = re.compile(r"^<!-- tables/(\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page with an example or a table."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [page for page in every if EXAMPLE.search(page.read_text())]
    return found + [page for page in every if TABLE.search(page.read_text()) and page not in found]


def refreshed(text: str) -> str:
    """The page with every output block and every table as it really is."""
    namespace: dict[str, object] = {}

    def rerun(example: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(example[1], "example", "exec"), namespace)
        block = f"```python\n{example[1]}```\n"
        return f"{block}\n```text\n{out.getvalue()}```\n" if out.getvalue() else block

    def table(marked: re.Match[str]) -> str:
        rows = (ROOT / "docs" / "tables" / marked[1]).read_text()
        return f"<!-- tables/{marked[1]} -->\n{rows}<!-- end -->"

    return TABLE.sub(table, EXAMPLE.sub(rerun, text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="update the pages")
    write = parser.parse_args().write
    for page in pages():
        fresh = refreshed(page.read_text())
        changed = fresh != page.read_text()
        print(f"{page.relative_to(ROOT)}: {'changed' if changed else 'as it says'}")
        if changed and write:
            page.write_text(fresh)


if __name__ == "__main__":
    main()
