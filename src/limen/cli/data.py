"""limen data: what data there is, and where."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from limen import datasets
from limen.datasets.catalog import CATALOG

app = typer.Typer(help="Data sets by name: list them, get one, see where they are kept.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the data sets, and which are at hand.

    Example: limen data list
    """
    lines = [
        {
            "name": name,
            "about": CATALOG[name].about if name in CATALOG else "digits 8x8, in scikit-learn",
            "at_hand": datasets.at_hand(name),
        }
        for name in datasets.NAMES
    ]
    if as_json:
        typer.echo(json.dumps(lines, indent=1))
        return
    for line in lines:
        mark = "at hand" if line["at_hand"] else "-"
        typer.echo(f"{line['name']:15}{mark:9}{line['about']}")
    typer.echo(f"\nkept in {datasets.data_folder()} (set LIMEN_DATA to change)")


@app.command()
def get(name: Annotated[str, typer.Argument(help="Such as mnist.")], as_json: Json = False) -> None:
    """Fetch a data set, unless it is at hand, and check it.

    Example: limen data get fashion-mnist
    """
    data = datasets.load(name)
    facts = {
        "name": name,
        "train": len(data.y_train),
        "test": len(data.y_test),
        "shape": list(data.shape),
        "classes": list(data.class_names),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    size = "x".join(map(str, data.shape))
    typer.echo(
        f"{name}: {facts['train']:,} training and {facts['test']:,} test images of {size}, "
        f"{data.n_classes} classes: {', '.join(data.class_names)}"
    )


@app.command()
def where(name: Annotated[str | None, typer.Argument(help="Such as mnist.")] = None) -> None:
    """Print the folder in which data sets are kept, or one of them.

    Example: limen data where mnist
    """
    if name is not None and name not in CATALOG:
        if name in datasets.NAMES:
            raise datasets.DatasetError(f"{name} comes with scikit-learn: it is kept in no folder")
        from limen.objectives import unknown_name

        raise datasets.DatasetError(unknown_name("data set", name, datasets.NAMES))
    typer.echo(datasets.data_folder() / name if name else datasets.data_folder())
