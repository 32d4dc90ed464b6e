"""What happens, told to every page that listens (server-sent events)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

_WAITING = 100  # events a slow listener may be behind
_LISTENERS = 100
_BEAT = 15.0  # seconds after which silence is broken, so that dead connections show


class Events:
    """Hands every event to every listener; one that is too slow loses the oldest."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing = asyncio.Event()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        """Let every listener go; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.closing.set)
            self._loop.call_soon_threadsafe(self._hand_out, "")

    @property
    def full(self) -> bool:
        return len(self._queues) >= _LISTENERS

    def tell(self, kind: str, **facts: Any) -> None:
        """From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            text = f"event: {kind}\ndata: {json.dumps(facts)}\n\n"
            self._loop.call_soon_threadsafe(self._hand_out, text)

    def _hand_out(self, text: str) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(text)

    async def listen(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(_WAITING)
        self._queues.add(queue)
        try:
            yield ": welcome\n\n"
            while not self.closing.is_set():
                text = ": still here\n\n"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_BEAT):
                        text = await queue.get()
                yield text
        finally:
            self._queues.discard(queue)
