"""What a model's inputs are, and how files become rows of it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from limen.datasets import Dataset, DatasetError
from limen.datasets.own import PICTURES, TABLES, numbers_of, picture_of, read_table

_TOGETHER = 32  # pictures that a thread decodes before it reports


class Batch(NamedTuple):
    """Some inputs: what they are called, their rows, and what could not be read with the reason."""

    names: list[str]
    rows: NDArray[Any]
    skipped: list[tuple[str, str]]


@dataclass(frozen=True)
class Inputs:
    """What was understood of the data a model was fitted on.

    Attributes
    ----------
    kind : {"images", "table"}
    shape : tuple of int
        Of one input: (H, W) or (H, W, 3) of an image as bytes, (F,) of a table row.
    columns : tuple of str
        Of the table, where they have names.
    flat : bool
        Whether the estimator is given images as plain rows of numbers between 0 and 1.
    """

    kind: str
    shape: tuple[int, ...]
    columns: tuple[str, ...] = ()
    flat: bool = False

    @classmethod
    def of(cls, data: Dataset, flat: bool) -> Self:
        images = len(data.shape) > 1
        if images and (data.X_train.dtype != np.uint8 or data.shape[2:] not in ((), (3,))):
            raise DatasetError(
                f"images must be bytes (n, H, W) or (n, H, W, 3), got {data.X_train.dtype} of "
                f"shape {data.X_train.shape}"
            )
        return cls("images" if images else "table", data.shape, data.columns, images and flat)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        shape, columns = tuple(map(int, state["shape"])), tuple(map(str, state["columns"]))
        return cls(str(state["kind"]), shape, columns, bool(state["flat"]))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self, X: NDArray[Any]) -> NDArray[Any]:
        """Inputs as the estimator is given them."""
        if not self.flat:
            return X
        flat: NDArray[Any] = X.reshape(len(X), math.prod(X.shape[1:])).astype(np.float32) / 255
        return flat

    def pictures(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        """The inverse of `rows`, of images."""
        bytes_ = np.round(rows * 255) if self.flat else rows
        return np.asarray(bytes_, dtype=np.uint8).reshape(len(rows), *self.shape)

    def stream(self, path: str | Path, size: int = 256) -> Iterator[Batch]:
        """Everything at `path`, batch by batch: a folder of images or one, .npz, .csv or .parquet.

        However many images there are, only a few batches are in memory at a time.
        """
        path = Path(path).expanduser()
        if not path.exists():
            raise DatasetError(f"there is no {path}")
        if path.suffix == ".npz" or path.suffix in TABLES:
            yield from self._from_file(path, size)
        elif self.kind == "table":
            raise DatasetError(f"{path}: this model takes tables, as .csv, .parquet or .npz")
        else:
            yield from self._from_pictures(path, size)

    def count(self, path: str | Path) -> int | None:
        """How many pictures there are; None for what is read at once."""
        path = Path(path).expanduser()
        if path.suffix == ".npz" or path.suffix in TABLES:
            return None
        return sum(1 for _ in picture_files(path))

    def _from_pictures(self, path: Path, size: int) -> Iterator[Batch]:
        files, ahead = picture_files(path), []
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            while some := list(islice(files, size)):
                parts = [some[i : i + _TOGETHER] for i in range(0, len(some), _TOGETHER)]
                ahead.append(pool.map(self._decoded, parts))
                if len(ahead) > 2:  # the next are decoded while one is judged
                    yield self._gathered(ahead.pop(0))
            if not ahead:
                raise DatasetError(f"{path} holds no pictures ({', '.join(sorted(PICTURES))})")
            for decoded in ahead:
                yield self._gathered(decoded)

    def _decoded(self, paths: list[str]) -> list[tuple[str, NDArray[np.uint8] | str]]:
        """Each picture, or why it cannot be had."""
        found: list[tuple[str, NDArray[np.uint8] | str]] = []
        for path in paths:
            try:
                found.append((path, picture_of(path, self.shape)))
            except Exception as error:  # Pillow raises many kinds on a damaged file
                found.append((path, str(error) or type(error).__name__))
        return found

    def _gathered(self, decoded: Any) -> Batch:
        names, images, skipped = [], [], []
        for name, image in chain.from_iterable(decoded):
            if isinstance(image, str):
                skipped.append((name, image))
            else:
                names.append(name)
                images.append(image)
        rows = np.stack(images) if images else np.empty((0, *self.shape), np.uint8)
        return Batch(names, self.rows(rows), skipped)

    def _from_file(self, path: Path, size: int) -> Iterator[Batch]:
        X = self._table(path) if path.suffix in TABLES else self._array(path)
        for start in range(0, len(X), size):
            part = X[start : start + size]
            names = [f"row {start + i}" for i in range(len(part))]
            yield Batch(names, self.rows(part), [])

    def _table(self, path: Path) -> NDArray[np.float32]:
        if self.kind != "table":
            raise DatasetError(f"{path}: this model takes pictures, not tables")
        table = read_table(path)
        if self.columns and (missing := [c for c in self.columns if c not in table.columns]):
            raise DatasetError(f"{path} lacks the columns {missing}, which the model was fitted on")
        return numbers_of(path, table[list(self.columns)] if self.columns else table)

    def _array(self, path: Path) -> NDArray[Any]:
        try:
            with np.load(path, allow_pickle=False) as content:
                names = [name for name in ("X", "x", "X_test", "x_test") if name in content]
                X = content[names[0]] if names else None
        except Exception as error:  # numpy and zipfile raise many kinds on a damaged file
            raise DatasetError(f"{path} cannot be read as .npz of plain arrays: {error}") from error
        if X is None or X.shape[1:] != self.shape:
            shape = "no X" if X is None else f"X of shape {X.shape}"
            raise DatasetError(f"{path} holds {shape}: (n, {', '.join(map(str, self.shape))}) fits")
        self.check(X, path)
        return np.asarray(X)

    def check(self, X: NDArray[Any], path: Any) -> None:
        """Refuse what only looks like the inputs of this model."""
        if len(X) == 0:
            raise DatasetError(f"{path} holds no inputs")
        if self.kind == "images" and X.dtype != np.uint8:
            raise DatasetError(
                f"{path} holds {X.dtype}: this model takes images as bytes, 0 to 255"
            )
        if X.dtype.kind not in "buif" or (X.dtype.kind == "f" and not np.isfinite(X).all()):
            raise DatasetError(f"{path} holds values that are not numbers, or not finite")


def picture_files(path: Path) -> Iterator[str]:
    """Every picture at or below a path, folder by folder, in the order of names."""
    if path.is_file():
        yield str(path)
        return
    for folder, inner, files in os.walk(path):
        inner.sort()
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in PICTURES:
                yield os.path.join(folder, name)
