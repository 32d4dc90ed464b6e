"""Arrays, rows and estimators as bytes that hold data only, and back."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.storage import ModelFileError

# What skops does not trust by itself and scikit-learn's common estimators hold.
_TRUSTED = (
    "scipy.sparse._csr.csr_matrix",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)


def _optional(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ModelFileError(
            "saving and loading models needs more packages: "
            "pip install -c constraints.txt '.[files]'"
        ) from None


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Numeric arrays as one safetensors part."""
    save = _optional("safetensors.numpy").save
    return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def unpack_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The inverse of `pack_arrays`."""
    load = _optional("safetensors.numpy").load
    try:
        return dict(load(data))
    except Exception as error:  # of its own kind, and of others where a shape is absurd
        raise ModelFileError(f"a part of the model is damaged: {error}") from error


def pack_estimator(estimator: Any) -> bytes:
    """A scikit-learn estimator as a skops part."""
    skops = _optional("skops.io")
    try:
        data = bytes(skops.dumps(estimator))
        unknown = sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED))
    except Exception as error:  # skops raises many kinds on what it does not know
        raise ModelFileError(f"{type(estimator).__name__} cannot be stored: {error}") from error
    if unknown:
        raise ModelFileError(
            f"{type(estimator).__name__} cannot be stored safely, it holds {', '.join(unknown)}: "
            "a model file holds data only, of types that scikit-learn's common estimators use"
        )
    return data


def unpack_estimator(data: bytes) -> Any:
    """The inverse of `pack_estimator`; refuses every type that is not on the list."""
    skops = _optional("skops.io")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.infolist()):
                raise ModelFileError("the estimator is compressed, which limen never does")
        return skops.loads(data, trusted=list(_TRUSTED))
    except Exception as error:  # skops raises many kinds on damaged input
        raise ModelFileError(f"the estimator cannot be read: {error}") from error


def pack_rows(name: str, X: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a caller calls X (or y) as arrays that can be stored, and how to put it together."""
    if hasattr(X, "iloc") and X.ndim == 2:
        if not all(isinstance(column, str | int) for column in X.columns):
            raise ModelFileError(f"{name} has columns that are not named by text or whole numbers")
        columns = [pack_rows(f"{name}.{i}", X.iloc[:, i].to_numpy()) for i in range(X.shape[1])]
        plan = {"kind": "frame", "names": list(X.columns), "columns": [part[0] for part in columns]}
        return plan, {key: array for _, arrays in columns for key, array in arrays.items()}
    if hasattr(X, "tocsr"):
        arrays = {f"{name}.{key}": getattr(X, key) for key in ("data", "indices", "indptr")}
        return {"kind": "csr", "shape": list(X.shape)}, arrays
    array = np.asarray(X)
    if array.dtype.kind in "biuf":
        return {"kind": "array"}, {name: array}
    if all(isinstance(value, str) for value in array.ravel().tolist()) and array.ndim == 1:
        encoded = [value.encode() for value in array.tolist()]
        lengths = np.array([len(value) for value in encoded], dtype=np.int64)
        text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return {"kind": "text"}, {f"{name}.text": text, f"{name}.length": lengths}
    raise ModelFileError(
        f"{name} holds {array.dtype} values, which cannot be stored: numbers and text can"
    )


def unpack_rows(name: str, plan: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of `pack_rows`."""
    kind = plan["kind"]
    if kind == "array":
        return arrays[name]
    if kind == "text":
        ends = np.cumsum(arrays[f"{name}.length"]).tolist()
        text = arrays[f"{name}.text"].tobytes()
        starts = [0, *ends[:-1]]
        return np.array([text[i:j].decode() for i, j in zip(starts, ends, strict=True)])
    if kind == "csr":
        from scipy import sparse

        parts = tuple(arrays[f"{name}.{key}"] for key in ("data", "indices", "indptr"))
        return sparse.csr_matrix(parts, shape=tuple(plan["shape"]))
    import pandas as pd

    columns = [unpack_rows(f"{name}.{i}", part, arrays) for i, part in enumerate(plan["columns"])]
    frame = pd.DataFrame(dict(enumerate(columns)))
    frame.columns = plan["names"]
    return frame
