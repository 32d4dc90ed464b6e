"""What is kept of the data, to learn and calibrate with later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.rows import stack, take

Picker: TypeAlias = Callable[[Any, int, np.random.Generator], NDArray[np.intp]]


@dataclass(frozen=True)
class Memory:
    """Rows and labels, with masks of the rows that train and of those that calibrate."""

    X: Any
    y: NDArray[Any]
    training: NDArray[np.bool_]
    calibration: NDArray[np.bool_]

    @classmethod
    def split(cls, X: Any, y: NDArray[Any], share: float | None, rng: np.random.Generator) -> Self:
        """Keep `share` of every class out of training, at least one row; None: all do both."""
        everything = np.ones(len(y), dtype=bool)
        if share is None:
            return cls(X, y, everything, everything)
        calibration = ~everything
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            size = min(max(round(share * len(rows)), 1), len(rows) - 1)
            calibration[rng.choice(rows, size, replace=False)] = True
        return cls(X, y, ~calibration, calibration)

    def reduced(
        self, limit: int | None, share: float | None, picker: Picker, rng: np.random.Generator
    ) -> Memory:
        """At most `limit` rows a class, `share` of them for calibration.

        `picker` says which of the rows that train, chance which of those that calibrate.
        """
        if limit is None:
            return self
        # What is usual cannot be told from a handful: a small memory spends half on calibration.
        held_out = 0 if share is None else max(round(share * limit), min(limit // 2, 10))
        held_out = min(held_out, limit - 1)
        kept = []
        for label in np.unique(self.y):
            of_class = self.y == label
            trains = np.flatnonzero(of_class & self.training)
            kept.append(trains[picker(take(self.X, trains), limit - held_out, rng)])
            if held_out:
                tells = np.flatnonzero(of_class & self.calibration)
                kept.append(rng.permutation(tells)[:held_out])
        index = np.sort(np.concatenate(kept))
        return Memory(
            take(self.X, index), self.y[index], self.training[index], self.calibration[index]
        )

    def append(self, other: Memory) -> Memory:
        return Memory(
            stack([self.X, other.X]),
            np.concatenate([self.y, other.y]),
            np.concatenate([self.training, other.training]),
            np.concatenate([self.calibration, other.calibration]),
        )

    def training_rows(self) -> tuple[Any, NDArray[Any]]:
        return take(self.X, self.training), self.y[self.training]

    def calibration_rows(self) -> tuple[Any, NDArray[Any]]:
        return take(self.X, self.calibration), self.y[self.calibration]
