"""Requests that come at about the same time are judged together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

_AT_ONCE = 64  # inputs judged together
_WAIT = 0.002  # seconds a request waits for company while nothing else is being judged
_QUEUE = 4096  # inputs that may wait

Input = TypeVar("Input")
Result = TypeVar("Result")


class BusyError(RuntimeError):
    """Too much is waiting already."""


@dataclass
class _Waiting(Generic[Input, Result]):
    inputs: list[Input]
    future: asyncio.Future[list[Result]]


class Batcher(Generic[Input, Result]):
    """Gathers inputs of several requests and gives each request its own results.

    `judge` is called in one thread, `record` in another with what `judge` returned: while one batch
    is being recorded the next is judged, and a third gathers.
    """

    def __init__(
        self,
        judge: Callable[[list[Input]], list[Result]],
        record: Callable[[list[Result]], list[Result]],
    ) -> None:
        self._judge, self._record = judge, record
        self._threads = [ThreadPoolExecutor(1, name) for name in ("judge", "record")]
        self._waiting: list[_Waiting[Input, Result]] = []
        self._count = 0
        self._there = asyncio.Event()
        self._recording: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await asyncio.gather(*self._recording, return_exceptions=True)
        for thread in self._threads:
            thread.shutdown()

    @property
    def waiting(self) -> int:
        return self._count

    async def submit(self, inputs: list[Input]) -> list[Result]:
        """Results of some inputs, in their order."""
        if not inputs:
            return []
        if self._count + len(inputs) > _QUEUE:
            raise BusyError
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(inputs, future))
        self._count += len(inputs)
        self._there.set()
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._there.wait()
            if self._count < _AT_ONCE and not self._recording:
                await asyncio.sleep(_WAIT)
            batch = self._take()
            inputs = [one for waiting in batch for one in waiting.inputs]
            try:
                results = await loop.run_in_executor(self._threads[0], self._judge, inputs)
            except Exception as error:
                _fail(batch, error)
                continue
            task = asyncio.create_task(self._finish(batch, results))
            self._recording.add(task)
            task.add_done_callback(self._recording.discard)
            if len(self._recording) > 1:  # the disk is slower than the model
                await asyncio.wait(self._recording, return_when=asyncio.FIRST_COMPLETED)

    def _take(self) -> list[_Waiting[Input, Result]]:
        batch: list[_Waiting[Input, Result]] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].inputs) <= _AT_ONCE):
            one = self._waiting.pop(0)
            size += len(one.inputs)
            batch.append(one)
        self._count -= size
        if not self._waiting:
            self._there.clear()
        return batch

    async def _finish(self, batch: list[_Waiting[Input, Result]], results: list[Result]) -> None:
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._threads[1], self._record, results)
        except Exception as error:
            _fail(batch, error)
            return
        start = 0
        for waiting in batch:
            mine = results[start : start + len(waiting.inputs)]
            start += len(waiting.inputs)
            if not waiting.future.done():  # its client may have gone
                waiting.future.set_result(mine)


def _fail(batch: list[_Waiting[Input, Result]], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
