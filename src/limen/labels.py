"""Labels of known classes, of new ones, and the one that means unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets


def check_known(X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels of the known points, and the classes: at least three, of at least two points each."""
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    if 0 in X.shape:
        what = "sample" if X.shape[0] == 0 else "feature"
        raise ValueError(f"X has 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 3:
        raise ValueError(
            f"at least 3 known classes are needed, got {len(classes)} "
            f"class{'es' * (len(classes) != 1)}: with one held out, two must remain for a "
            "classifier to tell apart"
        )
    if counts.min() < 2:
        rare = classes[np.argmin(counts)].item()
        raise ValueError(f"every class needs at least 2 points, class {rare!r} has 1")
    return y, classes


def unknown_label_for(classes: NDArray[Any], given: Any) -> Any:
    """What to call a novel point: what was given, else -1, or "unknown" among text labels."""
    known = classes.tolist()
    if given is None:
        label: Any = "unknown" if isinstance(known[0], str) else -1
    else:
        label = _plain("unknown_label", given)
    if isinstance(label, str) != isinstance(known[0], str):
        raise ValueError(
            f"unknown_label must be of the kind of the labels, such as {known[0]!r}, got {label!r}"
        )
    if isinstance(label, float) and isinstance(known[0], int):
        if not label.is_integer():
            raise ValueError(f"unknown_label must be a whole number, as labels are, got {label!r}")
        label = int(label)
    if label in known:
        raise ValueError(
            f"unknown_label {label!r} is one of the classes: pass another unknown_label"
        )
    return label


def check_new_label(label: Any, classes: NDArray[Any], unknown: Any) -> Any:
    """The label of a class to be learnt, as a plain value of the kind of the known ones."""
    label, known = _plain("label", label), classes.tolist()
    if isinstance(label, float) and classes.dtype.kind in "iu" and label.is_integer():
        label = int(label)
    if isinstance(label, str) != isinstance(known[0], str) or (
        isinstance(label, float) and classes.dtype.kind in "iu"
    ):
        raise ValueError(
            f"label must be of the kind of the known labels, such as {known[0]!r}, got {label!r}"
        )
    if label in known:
        raise ValueError(f"label {label!r} is known already: {known}")
    if label == unknown:
        raise ValueError(f"label {label!r} means unknown here: choose another")
    return label


def with_unknown(labels: NDArray[Any], novel: NDArray[np.bool_], unknown: Any) -> NDArray[Any]:
    """The labels, and `unknown` where novel."""
    if labels.dtype.kind == "u":
        labels = labels.astype(np.int64)
    return np.where(novel, np.asarray(unknown), labels)


def _plain(parameter: str, label: Any) -> Any:
    label = label.item() if isinstance(label, np.generic) else label
    if not isinstance(label, str | int | float) or label != label:
        raise ValueError(
            f"{parameter} must be one number or one text, got {type(label).__name__}: {label!r:.60}"
        )
    return label
