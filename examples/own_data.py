"""From folders of pictures to a model that learns what it had never seen, by the program alone.

python examples/own_data.py

Writes a data set out as PNG files, five classes known, runs the commands of docs/own-data.md on
them and writes what they print to docs/tables/own-data.md.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from limen.datasets import Dataset, load

ROOT = Path(__file__).resolve().parents[1]
KNOWN, NEW = (0, 1, 2, 3, 4), 5


def write_pictures(
    folder: Path, data: Dataset, label: int, rows: slice, test: bool = False
) -> None:
    X, y = (data.X_test, data.y_test) if test else (data.X_train, data.y_train)
    folder.mkdir(parents=True, exist_ok=True)
    name = data.class_names[label].replace("/", "-")
    for i in np.flatnonzero(y == label)[rows]:
        Image.fromarray(X[i]).save(folder / f"{name}-{i:05d}.png")


def write_out(folder: Path, data: Dataset, per_class: int) -> str:
    """Known classes, an inbox with some of the next class among them, and that class to learn."""
    for label in KNOWN:
        name = data.class_names[label].replace("/", "-")
        write_pictures(folder / "known" / name, data, label, slice(0, per_class))
        write_pictures(folder / "inbox", data, label, slice(0, 40), test=True)
        write_pictures(folder / "later" / name, data, label, slice(40, 140), test=True)
    write_pictures(folder / "inbox", data, NEW, slice(0, 40), test=True)
    name = data.class_names[NEW].lower().replace(" ", "-")
    write_pictures(folder / name, data, NEW, slice(0, per_class))
    return name


def walk(folder: Path, new: str, extra: list[str]) -> str:
    """What the commands print."""
    commands = [
        ["fit", "known", "--out", "model.limen", *extra],
        ["predict", "model.limen", "inbox", "--out", "before.csv"],
        ["learn", "model.limen", new, "--label", new],
        ["predict", "model.limen", "inbox", "--out", "after.csv"],
        ["check", "model.limen", "later"],
        ["history", "model.limen"],
    ]
    lines = []
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "limen", *words], cwd=folder, capture_output=True, text=True
        )
        if done.returncode not in (0, 4):  # 4: checked, and not passed
            raise SystemExit(done.stderr)
        lines += [f"$ limen {' '.join(words)}", (done.stderr + done.stdout).rstrip(), ""]
    said = (folder / "after.csv").read_text().splitlines()
    named = sum(f",{new}," in line for line in said if data_name(new) in line)
    lines.append(f"# of 40 pictures of {new} in the inbox, {named} are named now")
    text = "\n".join(lines)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def data_name(new: str) -> str:
    return f"{new.capitalize()}-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--per-class", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "own-data")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "tables" / "own-data.md")
    picture = ROOT / "docs" / "images" / "explained.png"
    parser.add_argument("--picture", type=Path, default=picture)
    parser.add_argument("extra", nargs="*", help="options for limen fit, after --")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    new = write_out(options.folder, load(options.dataset), options.per_class)
    options.out.write_text(f"```text\n{walk(options.folder, new, options.extra)}```\n")
    explain(options.folder, options.picture)


def explain(folder: Path, out: Path) -> None:
    """Draw why a picture of the new class was unknown before the class was learnt."""
    limen = [sys.executable, "-m", "limen"]
    subprocess.run([*limen, "undo", "model.limen"], cwd=folder, check=True)
    rows = csv.DictReader((folder / "before.csv").read_text().splitlines())
    new = [row["input"] for row in rows if row["label"] == "unknown"]
    subprocess.run(
        [*limen, "explain", "model.limen", new[-1], "--out", out], cwd=folder, check=True
    )


if __name__ == "__main__":
    main()
