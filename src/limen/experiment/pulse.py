"""How far a training in another process is: a small file it rewrites now and then."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

_EVERY = 1.0  # seconds
# Of a worker, noted as it begins: its next training may find the run gone already.
_PARENT = os.getppid() if multiprocessing.parent_process() else None


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Pulse:
    """Called with the events of a training; counts its steps into ``running-NAME.json``.

    It only informs: where the file cannot be written, the training goes on without it.
    """

    def __init__(self, work: Path | None, unit: Named) -> None:
        self._path = work and work / f"running-{unit.name}.json"
        self._steps, self._written = 0, 0.0

    def __enter__(self) -> Self:
        _check_parent()
        self._write("starting")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def __call__(self, event: dict[str, Any]) -> None:
        if "done" not in event:
            return
        self._steps += 1
        if time.monotonic() - self._written > _EVERY:
            _check_parent()
            self._write(f"{event['phase']}, epoch {event['epoch']} of {event['epochs']}")

    def _write(self, doing: str) -> None:
        self._written = time.monotonic()
        if self._path is None:
            return
        text = json.dumps({"steps": self._steps, "doing": doing, "pid": os.getpid()})
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".tmp")
            fresh.write_text(text)
            fresh.replace(self._path)


def _check_parent() -> None:
    if _PARENT not in (None, os.getppid()):
        raise SystemExit("the run that started this training is gone")
