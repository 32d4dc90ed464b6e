"""Model files: a folder of parts that hold data only, and a manifest that vouches for them.

``manifest.json`` names every part with its size and SHA-256. Parts are safetensors, or skops for
scikit-learn estimators: nothing in them is executed on loading. Parts are named by their content
and the manifest is replaced last, in one step, so an interrupted save leaves the old model whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
_MANIFEST_LIMIT = 16 << 20
_TEMPORARY = ".part-"
_PART_NAME = re.compile(r"[a-z]+-[0-9a-f]{16}\.(safetensors|skops)")

# What skops does not trust by itself and scikit-learn's common estimators hold.
_TRUSTED = (
    "scipy.sparse._csr.csr_matrix",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)


class ModelFileError(ValueError):
    """A model file cannot be written or read; the message says why and what to do."""


def write_model(path: str | os.PathLike[str], facts: Mapping[str, Any], **parts: bytes) -> None:
    """Write `facts` and the named parts (``weights=...``) as the model at `path`."""
    folder = Path(path).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(f"{folder} exists and is not a model folder: choose another name")
    if folder.is_dir() and any(folder.iterdir()) and not _is_model(folder):
        raise ModelFileError(f"{folder} is a folder of something else: choose another name")
    manifest: dict[str, Any] = {"format": FORMAT, **facts, "parts": {}}
    named = {}
    for kind, data in parts.items():
        digest = hashlib.sha256(data).hexdigest()
        name = f"{kind}-{digest[:16]}.{_suffix(data)}"
        manifest["parts"][kind] = {"file": name, "bytes": len(data), "sha256": digest}
        named[name] = data
    text = json.dumps(manifest, indent=1, default=_plain, allow_nan=False).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in named.items():
        write_atomically(folder / name, data)
    write_atomically(folder / "manifest.json", text)
    wanted = {part["file"] for part in manifest["parts"].values()}
    for leftover in folder.iterdir():
        if _PART_NAME.fullmatch(leftover.name) and leftover.name not in wanted:
            leftover.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """So that a reader sees the old file or the new one, whole; on the disk before it has its name.

    Whatever fails, nothing is left behind. The folder must exist.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp allows the owner alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The facts and the parts of the model at `path`, all sizes and checksums verified."""
    folder = Path(path).expanduser()
    if not folder.exists():
        raise ModelFileError(f"there is no model at {folder}")
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a limen model, which is a folder")
    try:
        manifest = json.loads(_read(folder / "manifest.json", _MANIFEST_LIMIT))
    except ValueError as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{folder}: manifest.json is damaged: {error}") from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(version, int) or version < 1:
        raise ModelFileError(f"{folder}: manifest.json is not that of a limen model")
    if version > FORMAT:
        raise ModelFileError(
            f"{folder} has format {version}, this limen reads up to {FORMAT}: install a newer limen"
        )
    try:
        named = {str(kind): _read_part(folder, part) for kind, part in manifest["parts"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{folder}: manifest.json lacks its list of parts") from error
    return manifest, named


def _is_model(folder: Path) -> bool:
    """Ours, or what an interrupted first save left: parts without a manifest."""
    if not (folder / "manifest.json").exists():
        return all(_PART_NAME.fullmatch(p.name) or _TEMPORARY in p.name for p in folder.iterdir())
    try:
        manifest = json.loads(_read(folder / "manifest.json", _MANIFEST_LIMIT))
    except ValueError:
        return False
    return isinstance(manifest, dict) and {"format", "limen", "parts"} <= manifest.keys()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise ModelFileError(f"{value!r:.60} cannot be stored: numbers and text can")


def _optional(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ModelFileError(
            "saving and loading models needs more packages: "
            "pip install -c constraints.txt '.[files]'"
        ) from error


def _read_part(folder: Path, part: Mapping[str, Any]) -> bytes:
    name, size = part["file"], part["bytes"]
    if not isinstance(name, str) or not _PART_NAME.fullmatch(name) or not isinstance(size, int):
        raise ModelFileError(f"{folder}: manifest.json names a part {name!r} that cannot be one")
    data = _read(folder / name, size)
    if len(data) != size or hashlib.sha256(data).hexdigest() != part["sha256"]:
        raise ModelFileError(
            f"{folder / name} is not what was saved (truncated or altered): restore it from a copy"
        )
    return data


def _read(path: Path, limit: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_size > limit:
                raise ModelFileError(f"{path} is larger than it may be ({limit} bytes)")
            return file.read()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error


def _suffix(data: bytes) -> str:
    return "skops" if data[:2] == b"PK" else "safetensors"


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Numeric arrays as one safetensors part."""
    save = _optional("safetensors.numpy").save
    return bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def unpack_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The inverse of `pack_arrays`."""
    safetensors = _optional("safetensors.numpy")
    try:
        return dict(safetensors.load(data))
    except safetensors.SafetensorError as error:
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
