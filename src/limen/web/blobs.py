"""Inputs as files, each named by its content."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from pathlib import Path

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """Bytes by their SHA-256. What is there never changes, so that nothing is ever half written.

    Files are not forced to the disk one by one: a killed server loses nothing, a power cut may lose
    the pictures of the last seconds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if not path.exists() or path.stat().st_size != len(data):
            path.parent.mkdir(exist_ok=True)
            fresh = path.with_name(f".{digest}.{os.getpid()}.{threading.get_ident()}")
            fresh.write_bytes(data)
            fresh.replace(path)
        return digest

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None if there are none of that name."""
        try:
            return self._path(digest).read_bytes()
        except OSError:
            return None

    def drop(self, digest: str) -> None:
        self._path(digest).unlink(missing_ok=True)

    def sweep(self, used: set[str], older: float = 3600.0) -> int:
        """Remove files that nothing belongs to, unless they are fresh; returns how many."""
        gone = 0
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):
                if path.name not in used and time.time() - path.stat().st_mtime > older:
                    path.unlink()
                    gone += 1
        return gone

    def _path(self, digest: str) -> Path:
        """Where a blob is; what is not a digest never becomes a path."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError("not a digest")
        return self.folder / digest[:2] / digest
