"""The published file formats of the known data sets, read into arrays of bytes.

Each reader takes the folder that holds the files and gives training images, training labels, test
images, test labels. Nothing in these files is executed: no pickle is read.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.datasets.dataset import DatasetError

Bytes: TypeAlias = NDArray[np.uint8]
Arrays: TypeAlias = tuple[Bytes, Bytes, Bytes, Bytes]
Reader: TypeAlias = Callable[[Path], Arrays]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_BINARY = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CIFAR_PICTURES = (*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png")
CIFAR_LABELS = ("train_lables.json", "test_lables.json")  # so spelt where they come from
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"


def read_idx(folder: Path) -> Arrays:
    """The four files of MNIST and Fashion-MNIST, compressed or not."""
    arrays = [_idx(_present(folder, [name, f"{name}.gz"])) for name in IDX_FILES]
    return arrays[0], arrays[1], arrays[2], arrays[3]


def read_cifar10(folder: Path) -> Arrays:
    """CIFAR-10 as its binary version, packed or unpacked, or as one picture per batch."""
    packed = folder / CIFAR_ARCHIVE
    if packed.exists() or (folder / CIFAR_BINARY[0]).exists():
        batches = list(_cifar_members(packed) if packed.exists() else _cifar_files(folder))
        images = [b[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for b in batches]
        labels = [batch[:, 0] for batch in batches]
    else:
        images = [_batch_picture(_present(folder, [name])) for name in CIFAR_PICTURES]
        labels = [_json_labels(_present(folder, [name])) for name in CIFAR_LABELS]
    train = np.concatenate(images[:-1])
    return train, np.concatenate(labels[:-1]), np.ascontiguousarray(images[-1]), labels[-1]


def read_svhn(folder: Path) -> Arrays:
    """Street View House Numbers, cropped digits: ``train_32x32.mat``, ``test_32x32.mat``."""
    arrays = [_mat(_present(folder, [f"{part}_32x32.mat"])) for part in ("train", "test")]
    return *arrays[0], *arrays[1]


def read_gtsrb(folder: Path, size: int = 32) -> Arrays:
    """German traffic signs as published, every sign scaled to one size.

    Training: ``Final_Training/Images/00000/GT-00000.csv`` and so on, pictures beside it. Test:
    ``Final_Test/Images/GT-final_test.csv``. The folder may also be the one above, ``GTSRB``.
    """
    root = folder / "GTSRB" if (folder / "GTSRB").is_dir() else folder
    lists = sorted((root / "Final_Training" / "Images").glob("*/GT-*.csv"))
    if not lists:
        raise DatasetError(f"no Final_Training/Images/00000/GT-00000.csv and so on in {root}")
    tests = [_present(root / "Final_Test" / "Images", ["GT-final_test.csv"])]
    train, test = (_signs(files, size) for files in (lists, tests))
    return *train, *test


def _present(folder: Path, names: list[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DatasetError(f"no {' or '.join(names)} in {folder}")


def _idx(path: Path) -> Bytes:
    try:
        content = path.read_bytes()
        data = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged or cut short: {error}") from error
    dimensions = data[3] if len(data) > 3 else 0
    header = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(data[4:header], ">u4").tolist()) if len(data) >= header else ()
    if data[:3] != b"\0\0\x08" or not shape or len(data) != header + int(np.prod(shape)):
        raise DatasetError(f"{path} is damaged or cut short: not a whole idx file of bytes")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _cifar_files(folder: Path) -> Iterator[Bytes]:
    for name in CIFAR_BINARY:
        yield _cifar_batch((_present(folder, [name])).read_bytes(), folder / name)


def _cifar_members(packed: Path) -> Iterator[Bytes]:
    try:
        with tarfile.open(packed) as archive:
            for name in CIFAR_BINARY:
                member = archive.extractfile(f"cifar-10-batches-bin/{name}")
                yield _cifar_batch(member.read() if member else b"", packed)
    except (tarfile.TarError, OSError, EOFError, KeyError, zlib.error) as error:
        raise DatasetError(f"{packed} is damaged or cut short: {error}") from error


def _cifar_batch(data: bytes, path: Path) -> Bytes:
    if not data or len(data) % 3073:
        raise DatasetError(f"{path} is damaged or cut short: not a whole number of records")
    return np.frombuffer(data, np.uint8).reshape(-1, 3073)


def _batch_picture(path: Path) -> Bytes:
    """One image a row of 1024 pixels, row by row."""
    picture = read_image(path)
    if picture.ndim != 3 or picture.shape[1:] != (1024, 3):
        raise DatasetError(f"{path} is damaged: {picture.shape} is not one image of 1024 a row")
    return picture.reshape(-1, 32, 32, 3)


def _json_labels(path: Path) -> Bytes:
    try:
        return np.asarray(json.loads(path.read_bytes()), dtype=np.uint8)
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{path} is damaged or cut short: {error}") from error


def _mat(path: Path) -> tuple[Bytes, Bytes]:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel()
    except Exception as error:  # scipy raises many kinds on a damaged file
        raise DatasetError(f"{path} is damaged or not such a file: {error}") from error
    # Published as (32, 32, 3, n), the digit 0 as label 10.
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), (labels % 10).astype(np.uint8)


def _signs(lists: list[Path], size: int) -> tuple[Bytes, Bytes]:
    images, labels = [], []
    for path in lists:
        with path.open(newline="") as file:
            for row in csv.DictReader(file, delimiter=";"):
                try:
                    name, label = row["Filename"], int(row["ClassId"])
                except (KeyError, TypeError, ValueError) as error:
                    raise DatasetError(f"{path} lacks Filename and ClassId in a row") from error
                images.append(read_image(path.parent / Path(name).name, size))
                labels.append(label)
    if not images:
        raise DatasetError(f"{', '.join(map(str, lists))} list no pictures")
    return np.stack(images), np.asarray(labels, dtype=np.uint8)


def read_image(path: Path, size: int | None = None, mode: str = "RGB") -> Bytes:
    """One picture, (H, W, 3) in colour and (H, W) in grey, scaled to a square if asked."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            converted = picture.convert(mode)
            if size is not None and converted.size != (size, size):
                converted = converted.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(converted)
    except Exception as error:  # Pillow raises many kinds on a damaged file
        raise DatasetError(f"{path} cannot be read as a picture: {error}") from error


def digest(arrays: Any) -> str:
    """One SHA-256 over the shapes and bytes of the arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
