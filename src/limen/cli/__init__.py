"""The command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``limen`` program."""
    try:
        from limen.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"limen's commands need more packages ({error.name} is missing): "
            "pip install -c constraints.txt '.[all]'"
        )
    from limen.cli.errors import explained

    with explained():
        app()
