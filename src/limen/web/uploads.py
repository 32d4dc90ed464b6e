"""What clients send, made safe: pictures are looked at before they are decoded, and drawn anew."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.app.inputs import Inputs
from limen.datasets.own import picture_array, picture_of
from limen.web.endings import is_nothing_but
from limen.web.refusals import RefusedError
from limen.web.settings import Limits

_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
_SHOWN = 256  # pixels of the longer side of a picture that is shown


@dataclass(frozen=True)
class Received:
    """One input: its name, what the model sees, and the bytes to keep of it."""

    name: str
    array: NDArray[Any]
    stored: bytes
    view: bytes


def read_picture(name: str, data: bytes, inputs: Inputs, limits: Limits) -> tuple[Received, int]:
    """A picture as the model sees it, and how many pixels it had.

    Only what is drawn anew from the pixels is kept and shown: nothing else that a file may hold.
    """
    from PIL import Image

    if inputs.kind != "images":
        raise RefusedError(415, "this model takes rows of numbers, not pictures: send JSON")
    if len(data) > limits.picture:
        raise RefusedError(413, f"{name}: a picture may have at most {limits.picture} bytes")
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            width, height = picture.size
            if width * height > limits.pixels:
                raise RefusedError(
                    413, f"{name}: {width}x{height} pixels are more than {limits.pixels}"
                )
            if not is_nothing_but(str(picture.format), data):
                raise RefusedError(415, f"{name}: there is more in this file than one picture")
            array = picture_array(picture, inputs.shape)
            shown = picture.convert("L" if len(inputs.shape) == 2 else "RGB")
    except RefusedError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RefusedError(413, f"{name}: too many pixels") from error
    except Exception as error:  # Pillow raises many kinds on a damaged file
        raise RefusedError(
            415, f"{name}: not a whole picture of a kind that is taken ({', '.join(_FORMATS)})"
        ) from error
    stored = png(array)
    if (height, width) == inputs.shape[:2]:
        return Received(name, array, stored, stored), width * height
    shown.thumbnail((_SHOWN, _SHOWN))
    return Received(name, array, stored, png(np.asarray(shown))), width * height


def read_row(name: str, row: Any, inputs: Inputs) -> Received:
    """A row of numbers, from a list or from an object with the model's columns."""
    if inputs.kind != "table":
        raise RefusedError(415, "this model takes pictures, not rows: send them as multipart")
    if isinstance(row, dict):
        if not inputs.columns or (missing := [c for c in inputs.columns if c not in row]):
            raise RefusedError(
                422, f"{name} lacks columns: {missing if inputs.columns else 'list'}"
            )
        row = [row[column] for column in inputs.columns]
    numbers = row if isinstance(row, list) else []
    if len(numbers) != math.prod(inputs.shape) or not all(map(_is_number, numbers)):
        raise RefusedError(422, f"{name} must hold {math.prod(inputs.shape)} finite numbers")
    array = np.asarray(numbers, dtype=np.float32)
    if not np.isfinite(array).all():
        raise RefusedError(422, f"{name} holds numbers that are too large")
    stored = json.dumps(array.tolist()).encode()
    return Received(name, array, stored, stored)


def stored_array(data: bytes | None, inputs: Inputs) -> NDArray[Any] | None:
    """What the model saw of an input, from what was kept of it; None if that is gone or damaged."""
    if not data:
        return None
    try:
        if inputs.kind == "images":
            return picture_of(io.BytesIO(data), inputs.shape)
        row = np.asarray(json.loads(data), dtype=np.float32)
    except Exception:  # Pillow raises many kinds on a damaged file
        return None
    return row if row.shape == inputs.shape else None


def png(array: NDArray[Any]) -> bytes:
    """A picture as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _is_number(value: Any) -> bool:
    # A whole number may be too large for a float: comparing is safe where converting is not.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e38
