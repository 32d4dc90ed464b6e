"""Fitting any classifier, also one that demands its labels to be 0, 1, 2 and so on."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone


class CodedLabels(ClassifierMixin, BaseEstimator):
    """A classifier that sees the codes 0 to C - 1 in place of labels.

    XGBoost and others refuse labels with gaps, and with a class held out there always is one.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.estimator_ = clone(self.estimator, safe=False).fit(X, codes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[np.asarray(self.estimator_.predict(X), dtype=np.intp)]
        return labels

    def __getattr__(self, name: str) -> Any:
        # Scores by whatever name: their columns are the codes, hence the sorted labels. What would
        # teach single classes is not passed on, as it speaks in labels.
        if name.startswith("_") or name in ("estimator_", "partial_fit", "add_class"):
            raise AttributeError(name)
        return getattr(self.estimator_, name)


def fit_any(estimator: Any, X: Any, y: NDArray[Any]) -> Any:
    """`estimator` fitted; on coded labels if it refuses the labels as they are."""
    try:
        return estimator.fit(X, y)
    except ValueError:
        if isinstance(estimator, CodedLabels) or np.array_equal(np.unique(y), _codes(y)):
            raise
        try:
            return CodedLabels(estimator).fit(X, y)
        except Exception:
            pass  # the labels were not what was wrong
        raise


def _codes(y: NDArray[Any]) -> NDArray[np.intp]:
    return np.arange(len(np.unique(y)))
