"""How similar features are to each class: pure functions that return one column per class.

Direction: higher = more familiar. The same calibration and search serve all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.shels.deep_statistics import DeepStatistics

Floats: TypeAlias = NDArray[np.floating[Any]]

_CHUNK = 2048


class Embedding(NamedTuple):
    """What a network makes of inputs.

    features : (n, d), the last hidden activations. maps : (n, D), what they are computed from: the
    last convolution's maps, pooled. Maps know more of what an input looks like, features more of
    what it is.
    """

    features: Floats
    maps: Floats

    def side_by_side(self) -> Floats:
        """Features and maps, each of length one, (n, d + D)."""
        return np.hstack([_unit(self.features), _unit(self.maps)])


@dataclass(frozen=True)
class ClassFeatures:
    """Features of stored examples of every class.

    Attributes
    ----------
    features : ndarray (m, d)
    labels : ndarray (m,)
        Column of the class, 0 to C - 1.
    maps : ndarray (m, D)
        Of the same examples; see `Embedding`. Of length 0 where there are none.
    statistics : DeepStatistics, optional
        Of all points that were ever learnt, where the network stays as it is.
    """

    features: Floats
    labels: NDArray[np.intp]
    maps: Floats = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    statistics: DeepStatistics | None = None

    def means(self) -> Floats:
        """Mean feature of each class, (C, d)."""
        columns = range(int(self.labels.max()) + 1)
        means: Floats = np.stack([self.of_class(c).mean(axis=0) for c in columns])
        return means

    def of_class(self, column: int) -> Floats:
        own: Floats = self.features[self.labels == column]
        return own

    def refreshed(self, other: ClassFeatures) -> ClassFeatures:
        """Those of `other`, and of the classes it lacks the present ones."""
        kept = ~np.isin(self.labels, other.labels)
        maps = self.maps[kept] if len(self.maps) else self.maps
        mine = ClassFeatures(self.features[kept], self.labels[kept], maps, self.statistics)
        return mine.append(other)

    def copy(self) -> ClassFeatures:
        parts = (self.features.copy(), self.labels.copy(), self.maps.copy())
        return ClassFeatures(*parts, self.statistics)

    def without(self, column: int) -> ClassFeatures:
        """Those of the other classes, as if this one had never been learnt."""
        others = self.only(self.labels != column)
        return replace(
            others,
            labels=others.labels - (others.labels > column),
            statistics=self.statistics and self.statistics.without(column),
        )

    def only(self, kept: NDArray[np.bool_]) -> ClassFeatures:
        """Some of the examples."""
        maps = self.maps[kept] if len(self.maps) else self.maps
        return ClassFeatures(self.features[kept], self.labels[kept], maps, self.statistics)

    def in_turn(self, most: int = 5) -> list[NDArray[np.bool_]]:
        """Masks that set every example aside once, about a fifth of each class at a time.

        There are none where a class has a single example.
        """
        fewest = int(np.bincount(self.labels).min())
        turns, place = min(most, fewest), np.empty(len(self.labels), dtype=np.intp)
        for column in np.unique(self.labels):
            mine = np.flatnonzero(self.labels == column)
            place[mine] = np.arange(len(mine)) % turns
        return [place == turn for turn in range(turns)] if turns > 1 else []

    def append(self, other: ClassFeatures) -> ClassFeatures:
        both = len(self.maps) == len(self.labels) and len(other.maps) == len(other.labels)
        return ClassFeatures(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.maps, other.maps]) if both else np.empty((0, 0), np.float32),
            self.statistics,
        )


Score: TypeAlias = Callable[[Floats, Floats, ClassFeatures], Floats]
DeepScore: TypeAlias = Callable[[Embedding, Floats, ClassFeatures], Floats]


def dot(features: Floats, rows: Floats, stored: ClassFeatures | None = None) -> Floats:  # noqa: ARG001
    r"""The paper's score: :math:`s_c = W_c \cdot f`."""
    similarity: Floats = features @ rows.T
    return similarity


def cosine(features: Floats, rows: Floats, stored: ClassFeatures | None = None) -> Floats:  # noqa: ARG001
    r""":math:`s_c = \cos(W_c, f)`, what the network is trained on."""
    return _unit(features) @ _unit(rows).T


def prototype(features: Floats, rows: Floats, stored: ClassFeatures) -> Floats:  # noqa: ARG001
    """Cosine with the mean feature of each class."""
    return _unit(features) @ _unit(stored.means()).T


def mahalanobis(features: Floats, rows: Floats, stored: ClassFeatures) -> Floats:  # noqa: ARG001
    r"""Minus the squared distance to each class mean, in units of the tied covariance.

    .. math:: s_c = -(f - m_c)^\top \Sigma^{-1} (f - m_c)

    The covariance within classes is shrunk towards a multiple of the identity (Ledoit and Wolf,
    2004). Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples", 2018.
    """
    from sklearn.covariance import ledoit_wolf

    means = stored.means()
    within = (stored.features - means[stored.labels]).astype(np.float64)
    covariance = ledoit_wolf(within, assume_centered=True)[0]
    # Where features never vary the covariance is zero: a small ridge keeps distances finite.
    ridge = 1e-6 * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    whitener = np.linalg.cholesky(np.linalg.inv(covariance + ridge * np.eye(len(covariance))))
    points, centres = features @ whitener, means @ whitener
    squared = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)
    similarity: Floats = -np.maximum(squared, 0)
    return similarity


def knn(features: Floats, rows: Floats, stored: ClassFeatures, k: int | None = None) -> Floats:
    """Cosine with the k-th nearest stored example of each class.

    By default k is a fortieth of the stored examples of the class, at least 3.

    Sun et al., "Out-of-Distribution Detection with Deep Nearest Neighbors", 2022, class by class.
    """
    return _nearest(_unit(features), _unit(stored.features), stored.labels, len(rows), k)


def map_knn(
    embedding: Embedding, rows: Floats, stored: ClassFeatures, k: int | None = None
) -> Floats:
    """`knn` on the maps that features are computed from."""
    return _nearest(_unit(embedding.maps), _unit(stored.maps), stored.labels, len(rows), k)


def deep_knn(
    embedding: Embedding, rows: Floats, stored: ClassFeatures, k: int | None = None
) -> Floats:
    """`knn` on features and maps side by side, each of length one: the mean of both cosines."""
    points = embedding.side_by_side()
    examples = Embedding(stored.features, stored.maps).side_by_side()
    return _nearest(points, examples, stored.labels, len(rows), k) / 2


def deep_mahalanobis(embedding: Embedding, rows: Floats, stored: ClassFeatures) -> Floats:  # noqa: ARG001
    """`mahalanobis` on features and maps side by side, by statistics of all points ever learnt.

    Hayes, Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis",
    2020.
    """
    if stored.statistics is None:
        raise ValueError(
            "score='deep-mahalanobis' needs a network that stays as it is: fit with "
            "accommodation='prototype'"
        )
    return stored.statistics.similarity(embedding.side_by_side())


def _nearest(
    points: Floats, examples: Floats, labels: Any, n_classes: int, k: int | None
) -> Floats:
    """Cosine with the k-th nearest example of each class, (n, C)."""
    columns = []
    for c in range(n_classes):
        mine = examples[labels == c]
        place = max(len(mine) - (k or max(len(mine) // 40, 3)), 0)
        column = np.empty(len(points))
        for start in range(0, len(points), _CHUNK):
            cosines = points[start : start + _CHUNK] @ mine.T
            column[start : start + _CHUNK] = np.partition(cosines, place, axis=1)[:, place]
        columns.append(column)
    return np.stack(columns, axis=1)


def energy(features: Floats, rows: Floats, stored: ClassFeatures | None = None) -> Floats:
    r"""The free energy of the input on the winning class, less for the others by their distance.

    .. math:: s_c = \log \sum_j e^{W_j \cdot f} - (\max_j W_j \cdot f - W_c \cdot f)

    Liu et al., "Energy-based Out-of-distribution Detection", 2020.
    """
    logits = dot(features, rows, stored)
    highest = logits.max(axis=1, keepdims=True)
    similarity: Floats = logits + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    return similarity


def msp(features: Floats, rows: Floats, stored: ClassFeatures | None = None) -> Floats:
    """The softmax probability of each class over the dot products.

    Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples
    in Neural Networks", 2017.
    """
    logits = dot(features, rows, stored)
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    similarity: Floats = weight / weight.sum(axis=1, keepdims=True)
    return similarity


SCORES: Mapping[str, Score] = {
    "dot": dot,
    "cosine": cosine,
    "prototype": prototype,
    "mahalanobis": mahalanobis,
    "knn": knn,
    "energy": energy,
    "msp": msp,
}


# These look below the features as well.
DEEP_SCORES: Mapping[str, DeepScore] = {
    "map-knn": map_knn,
    "deep-knn": deep_knn,
    "deep-mahalanobis": deep_mahalanobis,
}
STATISTICAL = "deep-mahalanobis"  # looks at statistics of all points, and at no example
BY_EXAMPLES = ("prototype", "mahalanobis", "knn", "map-knn", "deep-knn")


def scores_to_try(accommodation: str) -> tuple[str, ...]:
    """Names of the scores to choose from, given how new classes are learnt.

    A row that was never trained next to the others is no match for them, so with ``"prototype"``
    only scores that do without rows are tried, and statistics of all points are to be had.
    """
    if accommodation == "prototype":
        return ("prototype", "knn", *DEEP_SCORES)
    return (*SCORES, "map-knn", "deep-knn")


def _unit(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = vectors / np.maximum(norms, np.finfo(vectors.dtype).tiny)
    return unit
