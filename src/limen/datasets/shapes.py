"""Images of one data set in the shape of another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.datasets.dataset import DatasetError


def bring_to(X: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Images (n, H, W) or (n, H, W, 3) as bytes, scaled and with colours added or taken away.

    >>> bring_to(np.zeros((2, 8, 8), np.uint8), (32, 32, 3)).shape
    (2, 32, 32, 3)
    """
    if X.shape[1:] == shape:
        return X
    known = {2: True, 3: shape[-1:] == (3,)}.get(len(shape), False)
    if X.shape[1:] not in (X.shape[1:3], (*X.shape[1:3], 3)) or not known or X.dtype != np.uint8:
        raise DatasetError(
            f"inputs of shape {X.shape[1:]} and type {X.dtype} cannot be brought to {shape}: both "
            "must be images as bytes, (H, W) or (H, W, 3)"
        )
    from PIL import Image

    mode = "L" if len(shape) == 2 else "RGB"
    size = (shape[1], shape[0])
    pictures = (Image.fromarray(x).convert(mode) for x in X)
    scaled = (p if p.size == size else p.resize(size, Image.Resampling.BILINEAR) for p in pictures)
    return np.stack([np.asarray(picture) for picture in scaled])
