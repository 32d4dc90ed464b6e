"""A user's own data: a folder of images per class, an .npz file, or a table with a label column."""

from __future__ import annotations

import collections
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.datasets.dataset import Dataset, DatasetError
from limen.objectives import unknown_name

TABLES = (".csv", ".parquet")
PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
_SPLIT_NAMES = (
    ("X_train", "y_train", "X_test", "y_test"),
    ("x_train", "y_train", "x_test", "y_test"),
)


def read(
    path: str | Path, *, label: str = "label", test: float | None = 0.2, seed: int = 0
) -> Dataset:
    """Read labelled data of one's own.

    Parameters
    ----------
    path : str or Path
        A folder with one folder of images per class (or ``train/`` and ``test/`` with such
        folders); an ``.npz`` with X and y, or X_train, y_train, X_test and y_test; a ``.csv``
        or ``.parquet`` table with numbers and one column of labels.
    label : str, default="label"
        The column of labels in a table.
    test : float or None, default=0.2
        Share of each class kept apart for testing, where the data has no test set of its own; None
        keeps nothing apart.
    seed : int, default=0
        Draws those.

    Returns
    -------
    Dataset
        ``notes`` says what had to be changed or left out.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise DatasetError(f"there is no {path}")
    if path.is_dir():
        return _from_folder(path, test, seed)
    if path.suffix == ".npz":
        return _from_npz(path, test, seed)
    if path.suffix in TABLES:
        return _from_table(path, label, test, seed)
    raise DatasetError(
        f"{path}: expected a folder of images per class, an .npz, a .csv or a .parquet file"
    )


def _from_folder(path: Path, test: float | None, seed: int) -> Dataset:
    split = (path / "train").is_dir() and (path / "test").is_dir()
    parts = [_files(path / "train"), _files(path / "test")] if split else [_files(path)]
    names = sorted(parts[0])
    for part in parts[1:]:
        if unknown := sorted(set(part) - set(names)):
            raise DatasetError(f"{path / 'test'} holds classes that train does not: {unknown}")
    paths = [file for part in parts for name in names for file in part.get(name, [])]
    y = [names.index(name) for part in parts for name in names for _ in part.get(name, [])]
    images, kept, notes = _images(paths)
    labels = np.asarray(y, dtype=np.int64)[kept]
    if split:
        n_train = sum(map(len, parts[0].values()))
        in_test = np.asarray(kept) >= n_train
        return _whole(path.name, images, labels, in_test, names, notes)
    return _divided(path.name, images, labels, names, notes, test, seed)


def _files(folder: Path) -> dict[str, list[Path]]:
    """The pictures of each class."""
    for entry in folder.iterdir():
        try:
            entry.name.encode()
        except UnicodeEncodeError as error:
            raise DatasetError(f"{entry!a}: the name of a class must be proper text") from error
    found = {
        entry.name: sorted(p for p in entry.rglob("*") if p.suffix.lower() in PICTURES)
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }
    if not found:
        raise DatasetError(f"{folder} holds no folders: one folder of images per class is needed")
    if empty := [name for name, files in found.items() if not files]:
        raise DatasetError(f"{folder / empty[0]} holds no pictures ({', '.join(sorted(PICTURES))})")
    return found


def _images(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], list[int], list[str]]:
    """All pictures in one shape, which of them could be read, and what had to be done."""
    from PIL import Image

    sizes: collections.Counter[tuple[int, int]] = collections.Counter()
    colours: collections.Counter[bool] = collections.Counter()
    kept, broken = [], []
    for number, path in enumerate(paths):
        try:
            with Image.open(path) as picture:
                picture.verify()
            with Image.open(path) as picture:
                sizes[picture.size] += 1
                colours[picture.mode not in ("1", "L", "I", "I;16", "F", "LA")] += 1
            kept.append(number)
        except Exception as error:  # Pillow raises many kinds on a damaged file
            broken.append(f"left out: {path} cannot be read as a picture: {error}")
    if not kept:
        raise DatasetError(f"none of {len(paths)} pictures can be read; the first: {broken[0]}")
    size = sizes.most_common(1)[0][0]
    notes, colour = list(broken), colours[True] > 0
    if len(colours) > 1:
        notes.append(f"{colours[False]} grey pictures were brought to colour, as the others are")
    if len(sizes) > 1:
        notes.append(f"pictures of {len(sizes)} sizes were scaled to {size[0]}x{size[1]}")
    shape = (size[1], size[0], *([3] if colour else []))
    images = np.empty((len(kept), *shape), dtype=np.uint8)
    whole: list[int] = []
    for number in kept:
        try:
            images[len(whole)] = picture_of(paths[number], shape)
            whole.append(number)
        except Exception as error:  # what begins well may end too early
            notes.append(f"left out: {paths[number]} cannot be read as a picture: {error}")
    return images[: len(whole)], whole, notes


def picture_of(source: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """A picture from a file or stream as bytes: grey for the shape (H, W), colour for (H, W, 3)."""
    from PIL import Image

    with Image.open(source) as picture:
        return picture_array(picture, shape)


def picture_array(picture: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An opened picture as bytes of that shape."""
    from PIL import Image

    converted = picture.convert("L" if len(shape) == 2 else "RGB")
    if converted.size != (shape[1], shape[0]):
        converted = converted.resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
    return np.asarray(converted)


def _from_npz(path: Path, test: float | None, seed: int) -> Dataset:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as content:
            arrays = dict(content)
    except Exception as error:  # numpy and zipfile raise many kinds on a damaged file
        raise DatasetError(f"{path} cannot be read as .npz of plain arrays: {error}") from error
    for names in _SPLIT_NAMES:
        if set(names) <= arrays.keys():
            X_train, y_train, X_test, y_test = (arrays[name] for name in names)
            _check(path, X_train, y_train)
            _check(path, X_test, y_test)
            if X_train.shape[1:] != X_test.shape[1:]:
                raise DatasetError(
                    f"{path}: training inputs have shape {X_train.shape[1:]}, test inputs "
                    f"{X_test.shape[1:]}"
                )
            if unknown := sorted({*y_test.tolist()} - {*y_train.tolist()}):
                raise DatasetError(f"{path}: classes {unknown} have no training points")
            X, y = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
            in_test = np.arange(len(y)) >= len(y_train)
            classes, columns = np.unique(y, return_inverse=True)
            return _whole(path.stem, X, columns, in_test, [str(c) for c in classes], [])
    for image_name in ("X", "x"):
        if {image_name, "y"} <= arrays.keys():
            X, y = arrays[image_name], arrays["y"]
            _check(path, X, y)
            classes, columns = np.unique(y, return_inverse=True)
            return _divided(path.stem, X, columns, [str(c) for c in classes], [], test, seed)
    raise DatasetError(
        f"{path} holds {sorted(arrays)}: expected X and y, or X_train, y_train, X_test and y_test"
    )


def _from_table(path: Path, label: str, test: float | None, seed: int) -> Dataset:
    table = read_table(path)
    if label not in table.columns:
        known = unknown_name("column", label, map(str, table.columns))
        raise DatasetError(f"{path}: {known} Name the one of the classes with label (--label).")
    if table[label].isna().any():
        raise DatasetError(f"{path}: column {label!r} has gaps: every row needs its label")
    features, notes = table.drop(columns=label), []
    if features.columns[:1].tolist() == ["Unnamed: 0"]:  # what pandas writes if nobody stops it
        features = features.iloc[:, 1:]
        notes.append("the first column has no name: taken for row numbers and left out")
    X, y = numbers_of(path, features), table[label].astype(str).to_numpy()
    _check(path, X, y)
    classes, places = np.unique(y, return_inverse=True)
    data = _divided(path.stem, X, places, [str(c) for c in classes], notes, test, seed)
    return replace(data, columns=tuple(map(str, features.columns)))


def read_table(path: Path) -> Any:
    """A CSV or Parquet file as a DataFrame."""
    import pandas as pd

    try:
        return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except ImportError as error:
        raise DatasetError(
            f"{path}: Parquet needs pyarrow: pip install -c constraints.txt pyarrow"
        ) from error
    except Exception as error:  # pandas raises many kinds on a damaged file
        raise DatasetError(f"{path} cannot be read as a table: {error}") from error


def numbers_of(path: Path, features: Any) -> NDArray[np.float32]:
    """The columns of a table as numbers, or an error that names those that are not."""
    import pandas as pd

    if len(features) == 0:
        raise DatasetError(f"{path} holds no rows")
    if text := [c for c in features if not pd.api.types.is_numeric_dtype(features[c])]:
        raise DatasetError(f"{path}: columns {text} are not numbers: encode or drop them")
    if gaps := [str(c) for c in features if features[c].isna().any()]:
        raise DatasetError(f"{path}: columns {gaps} have gaps: fill them or drop those rows")
    numbers: NDArray[np.float32] = features.to_numpy(np.float32)
    if not np.isfinite(numbers).all():
        raise DatasetError(f"{path} holds infinite values, or such as are too large")
    return numbers


def _check(path: Path, X: NDArray[Any], y: NDArray[Any]) -> None:
    if y.ndim != 1 or len(X) != len(y) or X.ndim < 2 or len(y) == 0:
        raise DatasetError(f"{path}: X has shape {X.shape} and y {y.shape}: (n, ...) and (n,) fit")
    if X.dtype.kind not in "buif":
        raise DatasetError(f"{path}: X must hold numbers, got {X.dtype}")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise DatasetError(f"{path}: X holds NaN or infinite values")


def _divided(
    name: str, X: Any, y: Any, names: Sequence[str], notes: list[str], test: float | None, seed: int
) -> Dataset:
    """Part of each class kept apart, at least one point where there are two."""
    if test is None:
        return _whole(name, X, y, np.zeros(len(y), dtype=bool), names, notes)
    if not 0 < test < 1:
        raise DatasetError(f"test must lie between 0 and 1, got {test!r}")
    rng, in_test = np.random.default_rng(seed), np.zeros(len(y), dtype=bool)
    for column in range(len(names)):
        mine = np.flatnonzero(y == column)
        if len(mine) > 1:
            share = min(max(round(test * len(mine)), 1), len(mine) - 1)
            in_test[rng.choice(mine, share, replace=False)] = True
        else:
            notes.append(f"class {names[column]!r} has a single point: none is kept for testing")
    return _whole(name, X, y, in_test, names, notes)


def _whole(
    name: str, X: Any, y: Any, in_test: Any, names: Sequence[str], notes: list[str]
) -> Dataset:
    labels = np.asarray(y, dtype=np.int64)
    return Dataset(
        name,
        X[~in_test],
        labels[~in_test],
        X[in_test],
        labels[in_test],
        tuple(names),
        tuple(notes),
    )
