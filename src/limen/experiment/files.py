"""Small records, written so that a reader sees the old file or the new one, whole."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.storage import write_atomically


class RunFolderError(ValueError):
    """A run folder cannot be used; the message says why and what to do."""


def write_bytes(path: Path, data: bytes) -> None:
    """Atomically; the folder is made if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise RunFolderError(
            f"cannot write {path}: {error.strerror or error}. Nothing that was finished is lost: "
            "make room or choose another place, then run the command again."
        ) from error


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunFolderError(f"{path} is damaged: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as content:
            return dict(content)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RunFolderError(
            f"{path} is damaged ({error}): delete it and run again, only it is computed anew"
        ) from error
