"""What an array of inputs is, and how it becomes batches for the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_CHANNELS = (1, 3, 4)
_DTYPES = (np.uint8, np.float32)


@dataclass(frozen=True)
class InputFormat:
    """How inputs are understood: layout, shape and scale. ``str()`` of it says so in words.

    Attributes
    ----------
    layout : str
        ``"nhw"``, ``"nchw"``, ``"nhwc"`` for images, ``"nf"`` for plain feature vectors.
    shape : tuple of int
        (channels, height, width) or (features,).
    scale : float
        Images are divided by it, to lie between 0 and 1.
    dtype : str
        ``"uint8"`` or ``"float"``: what the training images were.
    mean, std : tuple of float
        Feature vectors are standardised with them; empty for images.
    """

    layout: str
    shape: tuple[int, ...]
    scale: float = 1.0
    dtype: str = "float"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, X: NDArray[Any], expected: tuple[int, ...] | None = None) -> Self:
        """Look at training inputs. `expected` (a network's input shape) settles what is open."""
        _check(X)
        if X.ndim == 2:
            mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
            # Rounding leaves a constant column with a spread of a few ulps: that is none.
            std = np.where(std > 1e-12 * np.abs(X).max(axis=0), std, 1.0)
            found = cls("nf", X.shape[1:], mean=tuple(mean.tolist()), std=tuple(std.tolist()))
        else:
            layout = _layout(X.shape, expected)
            dtype = "uint8" if X.dtype == np.uint8 else "float"
            found = cls(layout, _shape(X.shape, layout), _scale(X), dtype)
        if expected is not None and found.shape != tuple(expected):
            raise ValueError(
                f"X holds {found}, but the network takes inputs of shape {tuple(expected)}: pass "
                "config=None to fit the network to the data"
            )
        return found

    def tensor(self, X: NDArray[Any]) -> Tensor:
        """Images as (n, C, H, W), unscaled, bytes stay bytes; features as (n, F), standardised."""
        _check(X)
        if X.ndim != len(self.layout) or _shape(X.shape, self.layout) != self.shape:
            raise ValueError(f"X must hold {self}, as in fit, got an array of shape {X.shape}")
        if self.layout == "nf":
            return torch.from_numpy(self._standardised(X))
        self._check_range(X)
        if X.dtype not in _DTYPES:
            X = X.astype(np.float32)
        if self.layout == "nhw":
            X = X[:, None]
        elif self.layout == "nhwc":
            X = np.moveaxis(X, 3, 1)
        if not X.flags.writeable or any(stride < 0 for stride in X.strides):
            X = X.copy()  # torch shares memory only with plain writable arrays
        return torch.from_numpy(X)

    def batch(self, x: Tensor) -> Tensor:
        """Some rows of `tensor`, as the network takes them."""
        if self.layout == "nf":
            return x
        # Not in place: where nothing needs converting, `to` gives back the caller's own memory.
        return x.to(torch.float32, memory_format=torch.channels_last) / self.scale

    def _standardised(self, X: NDArray[Any]) -> NDArray[np.float32]:
        # In double precision: timestamps and ids lose their digits in single.
        with np.errstate(over="ignore"):
            rows = ((X.astype(np.float64) - self.mean) / self.std).astype(np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("X holds values too far from those in fit to be represented")
        return rows

    def _check_range(self, X: NDArray[Any]) -> None:
        highest = X.max() if X.size else 0
        if X.dtype == np.uint8 and self.dtype == "float" and self.scale == 1:
            raise ValueError("X holds bytes, but fit saw floats up to 1: divide by 255 as then")
        if X.dtype.kind == "f" and self.dtype == "uint8" and 0 < highest <= 1:
            raise ValueError(f"X holds floats up to {highest:g}, but fit saw bytes up to 255")

    def __str__(self) -> str:
        if self.layout == "nf":
            return f"rows of {self.shape[0]} features (n, F), standardised"
        channels, height, width = self.shape
        kind = {1: "grey", 3: "colour", 4: "colour and alpha"}.get(channels, f"{channels}-channel")
        order = ", ".join({"n": "n", "c": "C", "h": "H", "w": "W"}[axis] for axis in self.layout)
        return f"{kind} images {height}x{width} ({order}), divided by {self.scale:g}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        shape, mean, std = (tuple(state[name]) for name in ("shape", "mean", "std"))
        scale = float(state["scale"])
        if state["layout"] not in ("nf", "nhw", "nchw", "nhwc") or not 0 < scale < float("inf"):
            raise ValueError(f"no such input format: {state['layout']!r}, scale {scale!r}")
        return cls(state["layout"], shape, scale, str(state["dtype"]), mean, std)


def _check(X: NDArray[Any]) -> None:
    if X.ndim not in (2, 3, 4):
        raise ValueError(
            "X must be feature rows (n, F) or images (n, H, W), (n, C, H, W) or (n, H, W, C), got "
            f"an array of shape {X.shape}. Reshape your data."
        )
    if X.dtype.kind not in "buif":
        raise ValueError(f"X must hold numbers, got {X.dtype}")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise ValueError(f"X holds {np.count_nonzero(~np.isfinite(X))} values that are NaN or inf")


def _layout(shape: tuple[int, ...], expected: tuple[int, ...] | None) -> str:
    if len(shape) == 3:
        return "nhw"
    fits = [layout for layout in ("nchw", "nhwc") if _shape(shape, layout)[0] in _CHANNELS]
    if expected is not None:
        fits = [layout for layout in ("nchw", "nhwc") if _shape(shape, layout) == tuple(expected)]
    if len(fits) != 1:
        which = "both the second and the last" if fits else "neither the second nor the last"
        raise ValueError(
            f"cannot tell where the channels of X are: of its shape {shape}, {which} axis can be "
            "1, 3 or 4 channels. Pass config=NetworkConfig((channels, height, width), ...)."
        )
    return fits[0]


def _shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    if layout == "nf":
        return tuple(shape[1:])
    sizes = dict(zip(layout, shape, strict=True))
    return sizes.get("c", 1), sizes["h"], sizes["w"]


def _scale(X: NDArray[Any]) -> float:
    if X.dtype == np.uint8:
        return 255.0
    # Already between 0 and 1, or centred by the caller: leave it.
    return float(X.max()) if X.min() >= 0 and X.max() > 1 else 1.0
