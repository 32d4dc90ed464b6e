"""Teaching an estimator a new class: by its own means, or by training it anew."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from limen.coding import fit_any
from limen.rows import stack


def accommodate(
    fitted: Any, X_new: Any, label: Any, stored: tuple[Any, Any], X_kept: Any
) -> tuple[Any, str]:
    """An estimator that also knows `label`, and how it was done; `fitted` itself is not changed.

    `stored` is what is kept of the old classes, `X_kept` what will be kept of the new one.
    The first that applies: ``add_class(X, label, memory=(X, y))``; ``partial_fit`` where it takes
    in a new label (scikit-learn's own fix their classes at the first call, so they do not); a
    fresh start on what is kept of all, so that no class outweighs the others.
    """
    X_stored, y_stored = stored
    if hasattr(fitted, "add_class"):
        grown = copy.deepcopy(fitted)
        grown.add_class(X_new, label, memory=(X_stored, y_stored))
        return grown, "add_class"
    if hasattr(fitted, "partial_fit"):
        grown = copy.deepcopy(fitted)
        try:
            grown.partial_fit(X_new, np.full(X_new.shape[0], label))
        except ValueError:
            pass  # it refuses labels it was not told of at first
        else:
            # skorch forgets the others, scikit-learn's SGD ignores the new one, both silently.
            if {*y_stored.tolist(), label} <= set(classes_of(grown, y_stored).tolist()):
                return grown, "partial_fit"
    y = np.concatenate([y_stored, np.full(X_kept.shape[0], label)])
    return fit_any(clone(fitted, safe=False), stack([X_stored, X_kept]), y), "refit"


def classes_of(estimator: Any, y: Any) -> Any:
    """The labels of the similarity columns, in order."""
    return np.asarray(getattr(estimator, "classes_", np.unique(y)))
