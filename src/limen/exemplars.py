"""Which few points of a class to keep.

Each strategy takes features (n, d) of one class, how many to keep and a generator, and returns
positions, in the order in which they were picked: the first k are what it would keep of k.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.objectives import unknown_name

Floats: TypeAlias = NDArray[np.floating[Any]]
Positions: TypeAlias = NDArray[np.intp]
Strategy: TypeAlias = Callable[[Floats, int, np.random.Generator], Positions]


def reservoir(features: Floats, size: int, rng: np.random.Generator) -> Positions:
    """Every point with the same chance, as a reservoir keeps them from a stream."""
    return rng.permutation(len(features))[:size]


def herding(features: Floats, size: int, rng: np.random.Generator) -> Positions:  # noqa: ARG001
    """Points whose mean stays closest to the mean of all.

    Welling, "Herding Dynamical Weights to Learn", 2009; Rebuffi et al., "iCaRL", 2017.
    """
    points = np.asarray(features, dtype=np.float64)
    goal, total = points.mean(axis=0), np.zeros(points.shape[1])
    left, picked = np.ones(len(points), dtype=bool), []
    for count in range(1, size + 1):
        apart = ((goal - (total + points) / count) ** 2).sum(axis=1)
        best = int(np.where(left, apart, np.inf).argmin())
        picked.append(best)
        left[best] = False
        total += points[best]
    return np.array(picked, dtype=np.intp)


def k_centre(features: Floats, size: int, rng: np.random.Generator) -> Positions:  # noqa: ARG001
    """Points that leave none far from the nearest: always the farthest from those picked.

    Gonzalez, "Clustering to Minimize the Maximum Intercluster Distance", 1985. The first is the
    point nearest to the mean.
    """
    points = np.asarray(features, dtype=np.float64)
    picked = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    nearest = np.full(len(points), np.inf)
    while len(picked) < size:
        nearest = np.minimum(nearest, ((points - points[picked[-1]]) ** 2).sum(axis=1))
        nearest[picked[-1]] = -1.0
        picked.append(int(nearest.argmax()))
    return np.array(picked, dtype=np.intp)


STRATEGIES: Mapping[str, Strategy] = {
    "reservoir": reservoir,
    "herding": herding,
    "k-centre": k_centre,
}


def pick(
    features: Floats, size: int, strategy: str = "reservoir", *, rng: np.random.Generator
) -> Positions:
    """Positions of at most `size` points of one class to keep.

    Parameters
    ----------
    features : array of shape (n, d)
        Where the class was picked from; for herding and k-centre, what distance means.
    size : int
    strategy : {"reservoir", "herding", "k-centre"}
    rng : Generator

    Examples
    --------
    >>> import numpy as np
    >>> from limen.exemplars import pick
    >>> rng, line = np.random.default_rng(0), np.array([[0.0], [1.0], [2.0], [3.0], [10.0]])
    >>> pick(line, 2, "herding", rng=rng), pick(line, 2, "k-centre", rng=rng)
    (array([3, 2]), array([3, 4]))
    """
    if strategy not in STRATEGIES:
        raise ValueError(unknown_name("strategy", strategy, STRATEGIES))
    return STRATEGIES[strategy](features, min(size, len(features)), rng)


def unit_features(estimator: Any, X: Any) -> Floats:
    """Where distances between points mean something: the estimator's ``features(X)``, or the rows.

    Shape (n, d), each of length 1.
    """
    rows = estimator.features(X) if hasattr(estimator, "features") else X
    rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
    try:
        features = rows.reshape(len(rows), -1).astype(np.float64)
    except ValueError as error:
        raise ValueError(
            f"memory_choice needs numbers to measure distances by: {error}. Use 'reservoir'."
        ) from error
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit: Floats = features / np.maximum(norms, np.finfo(float).tiny)
    return unit
