"""The server's side of learning: one class after the other, each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from limen import storage
from limen.web import records
from limen.web.blobs import Blobs
from limen.web.database import Database, Job

_log = logging.getLogger("limen.web")
_POLL = 0.3  # seconds
STOPPED = "the server stopped before the class was learnt. Nothing has changed: teach it again."


class Learning:
    """Starts what waits in the queue and watches it; tells when something has changed."""

    def __init__(
        self,
        database: Database,
        url: str,
        model: Path,
        blobs: Blobs,
        changed: Callable[[int, bool], None],
    ) -> None:
        self._database, self._url = database, url
        self._model, self._blobs, self._changed = model, blobs, changed
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def settle(self) -> None:
        """End what an earlier server left running: learnt if its version is there, else failed."""
        with self._database.session() as session:
            jobs = [job for job in records.jobs_page(session, 1000) if job.state != "done"]
        for job in jobs:
            if not self._learnt(job.id) and job.state == "running":
                self._failed(job.id, STOPPED)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def wake(self) -> None:
        """Something waits; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            try:
                job = await asyncio.to_thread(self._claim)
                if job is not None:
                    await self._carry_out(job.id)
                    continue
            except Exception:  # such as a database that is away: try again
                _log.exception("the queue cannot be read now")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.0):  # wait_for may swallow a cancellation
                    await self._wake.wait()

    async def _carry_out(self, job: int) -> None:
        try:
            await self._learn(job)
        except Exception:
            _log.exception("job %d could not be carried out", job)
            await asyncio.to_thread(self._failed, job, "the learner could not be started")
        await asyncio.to_thread(self._changed, job, True)

    async def _learn(self, job: int) -> None:
        await asyncio.to_thread(self._changed, job, False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "limen.web.learner"),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        order = {"db": self._url, "model": str(self._model), "blobs": str(self._blobs.folder)}
        reading = asyncio.create_task(process.stderr.read())
        try:
            process.stdin.write(json.dumps({**order, "job": job}).encode() + b"\n")
            while process.returncode is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL):
                        await process.wait()
                await asyncio.to_thread(self._changed, job, False)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.stdin.close()
            code, said = await process.wait(), await reading
        if said:
            _log.warning("the learner of job %d said:\n%s", job, said.decode(errors="replace"))
        await asyncio.to_thread(self._ended, job, code)

    def _claim(self) -> Job | None:
        with self._database.session() as session:
            return records.claim_job(session)

    def _ended(self, job: int, code: int) -> None:
        """Say what the process could not say itself."""
        if self._learnt(job):
            return
        reason = "the learner failed; the server's log says why"
        if code < 0:
            reason = f"the learner was killed ({signal.Signals(-code).name})"
        self._failed(job, f"{reason}. The model is as it was.")

    def _learnt(self, job: int) -> bool:
        """Whether a version of this job was saved: then it counts, whoever could not say so."""
        for facts in storage.versions(self._model):
            if facts.get("job") == job:
                with self._database.session() as session:
                    records.finish_job(session, job, facts["version"], facts["lesson"])
                return True
        return False

    def _failed(self, job: int, reason: str) -> None:
        with self._database.session() as session:
            records.fail_job(session, job, reason)
