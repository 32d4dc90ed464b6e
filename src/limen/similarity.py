"""How similar an input is to each class, asked of any estimator.

Direction: similarity is high for familiar inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.objectives import unknown_name

Similarity: TypeAlias = str | Callable[[Any, Any], NDArray[Any]]

_METHODS = ("similarity", "decision_function", "predict_joint_log_proba", "predict_proba")


def similarity_of(
    estimator: Any, X: Any, how: Similarity, classes: NDArray[Any]
) -> NDArray[np.float64]:
    """Similarity of each row to each of `classes`, shape (n, C), higher = more familiar.

    `how` is ``"auto"`` (the first the estimator has of ``similarity``, ``decision_function``,
    ``predict_joint_log_proba`` and the logarithm of ``predict_proba``), the name of one of these or
    of another method, a score name that the estimator's own ``similarity(X, score=...)``
    understands, or a function of (estimator, X).
    """
    if callable(how):
        source = getattr(how, "__name__", "the similarity function")
        scores = how(estimator, X)
    else:
        source, scores = _ask(estimator, X, how)
    scores = np.asarray(scores, dtype=np.float64)
    n_classes = len(classes)
    if n_classes == 2 and (scores.ndim == 1 or scores.shape[1:] == (1,)):
        # A binary margin: positive for the second class.
        scores = np.column_stack([-scores.ravel(), scores.ravel()])
    if scores.ndim == 2 and scores.shape[1] > n_classes and _are_columns(classes, scores.shape[1]):
        # A network of fixed width: labels are its outputs, also of classes it was not shown.
        scores = scores[:, classes]
    if scores.ndim != 2 or scores.shape[1] != n_classes:
        hint = "use decision_function_shape='ovr', or " if _is_ovo(estimator) else ""
        raise ValueError(
            f"{source} must give one column per class, {n_classes}, got shape {scores.shape}: "
            f"{hint}pass similarity=a function of (estimator, X)"
        )
    return scores


def candidates_of(estimator: Any, how: Similarity, every: bool) -> dict[str, Similarity]:
    """Name -> similarity to choose from: all that the estimator offers if `every`, else one.

    An estimator with several scores of its own names them in ``score_names``, and gives them all
    from one look at the data by ``similarities(X, names)``.
    """
    if not every or how != "auto":
        return {how if isinstance(how, str) else "the similarity function": how}
    offered = list(getattr(estimator, "score_names", ())) or [
        name for name in _METHODS if hasattr(estimator, name)
    ]
    return {name: name for name in offered or ["auto"]}


def similarities_of(
    estimator: Any, X: Any, candidates: Mapping[str, Similarity], classes: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """`similarity_of` by each of the candidates."""
    if len(candidates) > 1 and hasattr(estimator, "similarities"):
        looked = estimator.similarities(X, list(candidates))
        return {name: np.asarray(s, dtype=np.float64) for name, s in looked.items()}
    return {name: similarity_of(estimator, X, how, classes) for name, how in candidates.items()}


def check_agreement(estimator: Any, X: Any, scores: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse columns that mean something else than `classes`, by what the estimator predicts."""
    if not hasattr(estimator, "predict"):
        return
    agreed = np.mean(np.asarray(estimator.predict(X)) == classes[scores.argmax(axis=1)])
    if agreed < 0.5:
        hint = "use decision_function_shape='ovr', or " if _is_ovo(estimator) else ""
        raise ValueError(
            f"the highest similarity names the class that {type(estimator).__name__} predicts for "
            f"only {agreed:.0%} of the points, so its columns are not the classes: {hint}pass "
            "similarity=a function of (estimator, X)"
        )


def check_name(estimator: Any, how: Similarity) -> None:
    """Refuse a name that the estimator does not offer."""
    if not callable(how) and not isinstance(how, str):
        raise TypeError(f"similarity must be a name or a function, got {how!r}")
    if callable(how) or how == "auto" or _takes_score(estimator):
        return
    if callable(getattr(estimator, how, None)):
        return
    offered = [name for name in _METHODS if hasattr(estimator, name)]
    raise ValueError(
        unknown_name("similarity", how, ["auto", *offered])
        + f" These are what {type(estimator).__name__} offers."
    )


def _takes_score(estimator: Any) -> bool:
    own = getattr(estimator, "similarity", None)
    return callable(own) and "score" in inspect.signature(own).parameters


def _are_columns(classes: NDArray[Any], width: int) -> bool:
    return classes.dtype.kind in "iu" and bool(classes.min() >= 0 and classes.max() < width)


def _is_ovo(estimator: Any) -> bool:
    return "ovo" in [
        value
        for name, value in getattr(estimator, "get_params", dict)().items()
        if name.endswith("decision_function_shape")
    ]


def _ask(estimator: Any, X: Any, how: str) -> tuple[str, Any]:
    offered = [name for name in _METHODS if hasattr(estimator, name)]
    if how == "auto":
        if not offered:
            raise TypeError(
                f"{type(estimator).__name__} has none of {', '.join(_METHODS)}: pass similarity=a "
                "function of (estimator, X) that returns an array (n, n_classes)"
            )
        how = offered[0]
    check_name(estimator, how)
    if not hasattr(estimator, how):
        return f"similarity(score={how!r})", estimator.similarity(X, score=how)
    scores = getattr(estimator, how)(X)
    if how == "predict_proba":
        scores = np.asarray(scores)
        scores = np.log(np.maximum(scores, np.finfo(scores.dtype).tiny))
    return how, scores
