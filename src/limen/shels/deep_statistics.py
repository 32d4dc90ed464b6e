"""What all points of every class look like to a network that no longer changes, in few numbers.

A few examples tell badly what is usual for a class. Mean and spread of all its points can be
carried on exactly as long as features and maps stay what they are, and a class can be left out
again as if it had never been learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]

_SHRINKAGE = 0.05  # towards equal spread in all directions


@dataclass(frozen=True)
class DeepStatistics:
    """Mean of each class and the spread within it, in some directions.

    Attributes
    ----------
    basis : ndarray (D, K)
        The principal directions of the points of the first classes.
    means : ndarray (C, K)
    scatter : ndarray (C, K, K)
        Of each class, the sum over its points of the outer product of their distance to its mean.
    count : ndarray (C,)
        How many points that are.

    Examples
    --------
    >>> import numpy as np
    >>> points, labels = np.random.default_rng(0).random((60, 8)), np.repeat([0, 1, 2], 20)
    >>> two = DeepStatistics.of(points[labels < 2], labels[labels < 2], size=3)
    >>> two.with_class(points[labels == 2]).similarity(points).shape
    (60, 3)
    """

    basis: Floats
    means: Floats
    scatter: Floats
    count: NDArray[np.int64]

    @classmethod
    def of(cls, points: Floats, labels: Any, size: int) -> Self:
        """Of points (n, D) with columns (n,), in at most `size` directions."""
        apart = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
        basis = np.linalg.eigh(apart.T @ apart)[1][:, ::-1][:, :size].astype(np.float32)
        width = basis.shape[1]
        none = np.empty((0, width, width), dtype=np.float32)
        statistics = cls(basis, np.empty((0, width)), none, np.empty(0, dtype=np.int64))
        for column in range(int(np.max(labels)) + 1):
            statistics = statistics.with_class(points[labels == column])
        return statistics

    def with_class(self, points: Floats) -> Self:
        """With one more class, of which these are all points (n, D)."""
        placed = self._placed(points)
        mean = placed.mean(axis=0)
        apart = placed - mean
        own = (apart.T @ apart).astype(np.float32)
        return type(self)(
            self.basis,
            np.vstack([self.means, mean]),
            np.concatenate([self.scatter, own[None]]),
            np.append(self.count, len(points)),
        )

    def without(self, column: int) -> Self:
        """As if one class had never been learnt; the directions stay those of the first classes."""
        return type(self)(
            self.basis,
            np.delete(self.means, column, axis=0),
            np.delete(self.scatter, column, axis=0),
            np.delete(self.count, column),
        )

    def similarity(self, points: Floats) -> Floats:
        """Minus the squared distance to each mean in units of the spread within, (n, C).

        The spread is that within all classes together.
        """
        size = self.basis.shape[1]
        spread = self.scatter.sum(axis=0, dtype=np.float64) / self.count.sum()
        even = max(float(np.trace(spread)) / size, 1e-12) * np.eye(size)
        covariance = (1 - _SHRINKAGE) * spread + _SHRINKAGE * even
        whitener = np.linalg.cholesky(np.linalg.inv(covariance))
        placed, centres = self._placed(points) @ whitener, self.means @ whitener
        lengths = (placed**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
        similarity: Floats = -np.maximum(lengths - 2 * placed @ centres.T, 0)
        return similarity

    def _placed(self, points: Floats) -> Floats:
        placed: Floats = (points @ self.basis).astype(np.float64)
        return placed
