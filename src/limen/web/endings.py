"""Where a picture ends in its file: what comes after could be anything."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping

_PARAMETERLESS = {0x01, *range(0xD0, 0xD8)}  # JPEG markers without a length


def is_nothing_but(kind: str, data: bytes) -> bool:
    """Whether a file holds a picture of this kind (Pillow's name for it) and nothing behind it."""
    if zipfile.is_zipfile(io.BytesIO(data)) or b"%PDF-" in data[:1024]:
        return False
    try:
        return bool(data) and _ENDS[kind](data) == len(data)
    except (KeyError, IndexError, struct.error):
        return False


def _png(data: bytes) -> int:
    place = 8
    while True:
        length, name = struct.unpack_from(">I4s", data, place)
        place += 12 + length
        if name == b"IEND":
            return int(place)


def _jpeg(data: bytes) -> int:
    """Of the last picture: cameras put a preview, or another view, behind the first."""
    place = 0
    while data[place : place + 2] == b"\xff\xd8":
        place = _one_jpeg(data, place + 2)
    return place


def _one_jpeg(data: bytes, place: int) -> int:
    while True:
        while data[place] != 0xFF:  # compressed data
            place += 1
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif marker == 0xD9:
            return place + 2
        elif marker == 0 or marker in _PARAMETERLESS:
            place += 2
        else:
            place += 2 + int(struct.unpack_from(">H", data, place + 2)[0])


def _gif(data: bytes) -> int:
    place = 13 + _colours(data[10])
    while True:
        block = data[place]
        if block == 0x3B:
            return place + 1
        if block == 0x2C:  # a frame
            place += 10 + _colours(data[place + 9]) + 1
        elif block == 0x21:  # an extension
            place += 2
        else:
            raise IndexError
        while data[place]:
            place += 1 + data[place]
        place += 1


def _colours(flags: int) -> int:
    """Bytes of a table of colours."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(data: bytes) -> int:
    size = int(struct.unpack_from("<I", data, 4)[0])
    return 8 + size + size % 2


def _bmp(data: bytes) -> int:
    return int(struct.unpack_from("<I", data, 2)[0])


_ENDS: Mapping[str, Callable[[bytes], int]] = {
    **{"PNG": _png, "JPEG": _jpeg, "MPO": _jpeg, "GIF": _gif, "WEBP": _webp, "BMP": _bmp},
}
