"""What every loader returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class DatasetError(ValueError):
    """Data cannot be found, fetched or understood; the message says why and what to do."""


@dataclass(frozen=True)
class Dataset:
    """Labelled inputs, training and test kept apart.

    Attributes
    ----------
    name : str
    X_train, X_test : ndarray (n, H, W), (n, H, W, 3) or (n, F)
        Images as bytes, or feature rows.
    y_train, y_test : ndarray (n,)
        Column numbers into `class_names`.
    class_names : tuple of str
    notes : tuple of str
        What was done to the data on the way in, for a person to read.
    columns : tuple of str
        Names of the features, where the data is a table.
    """

    name: str
    X_train: NDArray[Any]
    y_train: NDArray[np.int64]
    X_test: NDArray[Any]
    y_test: NDArray[np.int64]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return self.X_train.shape[1:]

    def first(self, train: int | None, test: int | None = None) -> Self:
        """At most so many points of each class, the first ones in the order of the data."""
        kept = (_first(self.y_train, train), _first(self.y_test, test))
        return replace(
            self,
            X_train=self.X_train[kept[0]],
            y_train=self.y_train[kept[0]],
            X_test=self.X_test[kept[1]],
            y_test=self.y_test[kept[1]],
        )


def _first(y: NDArray[np.int64], per_class: int | None) -> Any:
    if per_class is None:
        return slice(None)
    return np.sort(np.concatenate([np.flatnonzero(y == c)[:per_class] for c in np.unique(y)]))
