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
    mean, std : tuple of float
        Feature vectors are standardised with them; empty for images.
    """

    layout: str
    shape: tuple[int, ...]
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, X: NDArray[Any], expected: tuple[int, ...] | None = None) -> Self:
        """Look at training inputs. `expected` (a network's input shape) settles what is open."""
        _check(X)
        if X.ndim == 2:
            mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
            std = np.where(std > 0, std, 1.0)
            found = cls("nf", X.shape[1:], 1.0, tuple(mean.tolist()), tuple(std.tolist()))
        else:
            layout = _layout(X.shape, expected)
            found = cls(layout, _shape(X.shape, layout), _scale(X))
        if expected is not None and found.shape != tuple(expected):
            raise ValueError(
                f"X holds {found}, but the network takes inputs of shape {tuple(expected)}: pass "
                "config=None to fit the network to the data"
            )
        return found

    def tensor(self, X: NDArray[Any]) -> Tensor:
        """The inputs as (n, C, H, W) or (n, F), unscaled; bytes stay bytes."""
        _check(X)
        if X.ndim != len(self.layout) or _shape(X.shape, self.layout) != self.shape:
            raise ValueError(f"X must hold {self}, as in fit, got an array of shape {X.shape}")
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
            mean = torch.tensor(self.mean, dtype=torch.float32)
            std = torch.tensor(self.std, dtype=torch.float32)
            return (x.to(torch.float32) - mean) / std
        return x.to(torch.float32, memory_format=torch.channels_last).div_(self.scale)

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
        return cls(state["layout"], shape, float(state["scale"]), mean, std)


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
