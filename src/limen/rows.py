"""Rows of whatever a caller calls X: arrays of any rank, DataFrames, sparse matrices, text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing


def as_rows(X: Any) -> Any:
    """X as something that can be indexed by row; the kind is kept where it can be."""
    if sparse.issparse(X):
        return X.tocsr()
    return X if hasattr(X, "shape") else np.asarray(X)


def take(X: Any, index: Any) -> Any:
    """The rows with these positions, or where this mask is true."""
    return _safe_indexing(X, np.flatnonzero(index) if index.dtype == bool else index)


def stack(parts: Sequence[Any]) -> Any:
    """All rows in one, in order."""
    first = parts[0]
    if sparse.issparse(first):
        return sparse.vstack(parts, format="csr")
    if hasattr(first, "iloc"):
        import pandas as pd  # the caller brought it

        alike = [p if hasattr(p, "iloc") else _framed(p, first) for p in parts]
        return pd.concat(alike, ignore_index=True)
    if hasattr(first, "vstack"):  # polars
        return first.vstack(stack(parts[1:])) if len(parts) > 1 else first
    return np.concatenate([np.asarray(part) for part in parts])


def _framed(X: Any, like: Any) -> Any:
    """A plain array as the kind of frame or series it joins."""
    names = {"columns": like.columns} if like.ndim == 2 else {"name": like.name}
    return type(like)(np.asarray(X), **names)
