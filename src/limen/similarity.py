"""How similar an input is to each class, asked of any estimator.

Direction: similarity is high for familiar inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.objectives import unknown_name

Similarity: TypeAlias = str | Callable[[Any, Any], NDArray[Any]]

_METHODS = ("similarity", "decision_function", "predict_proba")


def similarity_of(estimator: Any, X: Any, how: Similarity, n_classes: int) -> NDArray[np.float64]:
    """Similarity of each row to each class, shape (n, n_classes), higher = more familiar.

    `how` is ``"auto"`` (the first the estimator has of ``similarity``, ``decision_function`` and
    the logarithm of ``predict_proba``), the name of one of these or of another method, a score
    name that the estimator's own ``similarity(X, score=...)`` understands, or a function of
    (estimator, X).
    """
    if callable(how):
        source = getattr(how, "__name__", "the similarity function")
        scores = how(estimator, X)
    else:
        source, scores = _ask(estimator, X, how)
    scores = np.asarray(scores, dtype=np.float64)
    if n_classes == 2 and (scores.ndim == 1 or scores.shape[1:] == (1,)):
        # A binary margin: positive for the second class.
        scores = np.column_stack([-scores.ravel(), scores.ravel()])
    if scores.ndim != 2 or scores.shape[1] != n_classes:
        raise ValueError(
            f"{source} must give one column per class, {n_classes}, got shape {scores.shape}. "
            "For SVC use decision_function_shape='ovr'; otherwise pass similarity=a function of "
            "(estimator, X)."
        )
    return scores


def _ask(estimator: Any, X: Any, how: str) -> tuple[str, Any]:
    offered = [name for name in _METHODS if hasattr(estimator, name)]
    if how == "auto":
        if not offered:
            raise TypeError(
                f"{type(estimator).__name__} has none of {', '.join(_METHODS)}: pass similarity=a "
                "function of (estimator, X) that returns an array (n, n_classes)"
            )
        how = offered[0]
    if not callable(getattr(estimator, how, None)):
        if (
            "similarity" in offered
            and "score" in inspect.signature(estimator.similarity).parameters
        ):
            return f"similarity(score={how!r})", estimator.similarity(X, score=how)
        raise ValueError(
            unknown_name("similarity", how, ["auto", *offered])
            + f" These are what {type(estimator).__name__} offers."
        )
    scores = getattr(estimator, how)(X)
    if how == "predict_proba":
        scores = np.asarray(scores)
        scores = np.log(np.maximum(scores, np.finfo(scores.dtype).tiny))
    return how, scores
