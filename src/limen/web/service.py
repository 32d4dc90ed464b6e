"""What the server can do, for its API and its pages alike."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import Any

import numpy as np
from anyio import CapacityLimiter
from numpy.typing import NDArray
from sqlalchemy import update

from limen import storage
from limen.storage import ModelFileError
from limen.web import records
from limen.web.blobs import Blobs
from limen.web.database import Database, Item, Job
from limen.web.events import Events
from limen.web.inflow import Inflow, verdict_row
from limen.web.learning import Learning
from limen.web.metrics import Metrics
from limen.web.refusals import RefusedError
from limen.web.reviews import Reviews
from limen.web.serving import Served, Serving
from limen.web.settings import ServerSettings
from limen.web.uploads import stored_array

_log = logging.getLogger("limen.web")
_LOOK = 1.0  # seconds between looks at the model file, which others may change too
_AGAIN = 2000  # inputs that are judged anew by a new version
_INTEREST = 60.0  # seconds after which nobody is thought to look any more
INBOX = 300  # inputs that wait to be named, on a page


class Service:
    """A model with its inputs, its learner, and those who watch."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        storage.read_manifest(settings.model)  # before anything is made beside it
        settings.folder.mkdir(parents=True, exist_ok=True)
        self.database = Database(settings.database)
        self.blobs = Blobs(settings.folder / "blobs")
        self.serving = Serving(settings.model, self.blobs)
        self.metrics, self.events = Metrics(), Events()
        self.decoding = CapacityLimiter(os.cpu_count() or 1)
        self.inflow = Inflow(
            settings, self.database, self.blobs, self.serving, self.events, self.metrics
        )
        self.reviews = Reviews(
            self.database, self.blobs, self.serving, self.events, self._job_queued
        )
        self.learning = Learning(
            self.database, settings.database, settings.model, self.blobs, self._job_changed
        )
        self._following = threading.RLock()
        self._looked = -_INTEREST
        self._told: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.events.bind(asyncio.get_running_loop())
        await asyncio.to_thread(self._resume)
        self.inflow.batcher.start()
        self.learning.start()
        self._tasks.append(asyncio.create_task(self._watch()))

    async def stop(self) -> None:
        self.events.close()
        for task in self._tasks:
            task.cancel()
        await self.learning.stop()
        await self.inflow.batcher.stop()
        self.database.close()

    def _resume(self) -> None:
        """Everything as it was before the server stopped."""
        self.learning.settle()
        served = self.serving.current
        with self.database.session() as session:
            lately = records.latest_novelty(session, served.version, self.settings.window)
        self.inflow.alarm.add(served, lately, tell=False)
        self._follow()
        self.inflow.tidy()
        with self.database.session() as session:
            used = records.all_files(session)
        self.blobs.sweep(used | self.inflow.shown())

    def activate(self, version: int) -> None:
        """Go back to a version, or forward."""
        if version not in [facts["version"] for facts in storage.versions(self.settings.model)]:
            raise RefusedError(404, f"the model has no version {version}")
        try:
            self.serving.activate(version)
        except ModelFileError as error:
            _log.warning("version %d cannot be used: %s", version, error)
            raise RefusedError(
                409, "the model is being changed, or this version is damaged: try again later"
            ) from error
        self._follow()

    def _follow(self) -> None:
        """Bring everything in line with the version in use."""
        with self._following:
            served = self.serving.current
            with self.database.session() as session:
                records.follow_classes(session, served.classes)
            self.metrics.version.set(served.version)
            self.metrics.eta.set(served.eta)
            self.metrics.classes.set(len(served.classes))
            self.inflow.alarm.add(served, [])
            self.metrics.alarm.set(self.inflow.alarm.raised)
            self._judge_again(served, "novel")
            self._judge_again(served, "known")
        self.events.tell("model", version=served.version)

    def _judge_again(self, served: Served, state: str) -> None:
        """What nobody has named yet, as the version in use sees it."""
        with self.database.session() as session:
            items = records.judged_by_others(session, served.version, state, _AGAIN)
        for start in range(0, len(items), 64):
            there = self._with_arrays(served, items[start : start + 64])
            if not there:
                continue
            verdicts = served.judge(np.stack([array for _, array in there]))
            with self.database.session() as session:
                for (item, _), verdict in zip(there, verdicts, strict=True):
                    state = "novel" if verdict.margin <= 0 else "known"
                    row = {**verdict_row(served, verdict), "feature": None, "state": state}
                    free = (Item.id == item.id) & Item.state.in_(("novel", "known"))
                    session.execute(update(Item).where(free).values(**row))

    def job(self, number: int) -> Job:
        """How far a job is. Once it is done, its version is in use."""
        with self.database.session() as session:
            job = session.get(Job, number)
        if job is None:
            raise RefusedError(404, f"there is no job {number}")
        if job.state == "done":
            self.take_over()
        return job

    def _job_queued(self, number: int) -> None:
        self._job_changed(number)
        self.learning.wake()

    def _job_changed(self, number: int, ended: bool = False) -> None:
        job = self.job(number)
        told = {"id": job.id, "state": job.state, "progress": job.progress, "doing": job.doing}
        if told != self._told:
            self._told = told
            self.events.tell("job", **told)
        if ended:
            self.metrics.jobs.labels(job.state).inc()

    def take_over(self) -> None:
        """Use the version that the file says, whoever made it; returns once all follows it."""
        try:
            with self._following:
                if self.serving.refresh():
                    self._follow()
        except ModelFileError as error:
            _log.warning("the model file cannot be read, the old version goes on: %s", error)

    def latest_novel(self) -> list[Item]:
        """What waits to be named, most of it ready to be grouped by what looks alike."""
        self._looked = time.monotonic()
        self._compare(64)
        with self.database.session() as session:
            return records.items_page(session, "novel", INBOX)

    def _compare(self, most: int = INBOX) -> None:
        """Work out what tells which inputs look alike, only while someone looks at them."""
        if time.monotonic() - self._looked > _INTEREST:
            return
        served = self.serving.current
        with self.database.session() as session:
            waiting = records.items_page(session, "novel", INBOX)
        bare = [item for item in waiting if item.feature is None][:most]
        for start in range(0, len(bare), 64):
            there = self._with_arrays(served, bare[start : start + 64])
            if not there:
                continue
            rows = served.model.inputs.rows(np.stack([array for _, array in there]))
            features = served.features(rows).astype(np.float16)
            with self.database.session() as session:
                for (item, _), feature in zip(there, features, strict=True):
                    mine = (Item.id == item.id) & (Item.version == served.version)
                    session.execute(update(Item).where(mine).values(feature=feature.tobytes()))
        if len(bare) > 64:  # more than the page that asked has got
            self.events.tell("items", novel=0, total=0)

    def _with_arrays(self, served: Served, items: list[Item]) -> list[tuple[Item, NDArray[Any]]]:
        """Items whose files are still there, with what the model saw of them."""
        inputs = served.model.inputs
        found = [(item, stored_array(self.blobs.get(item.digest), inputs)) for item in items]
        return [(item, array) for item, array in found if array is not None]

    @property
    def alive(self) -> bool:
        """Whether everything that goes on by itself still does."""
        return self.learning.alive and not any(task.done() for task in self._tasks)

    def _look_around(self) -> None:
        self.take_over()
        self._judge_again(self.serving.current, "novel")  # judged before a switch, stored after
        self._compare()

    async def _watch(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._look_around)
            except Exception:  # such as a database that is away: look again
                _log.exception("the server cannot look after itself now")
            await asyncio.sleep(_LOOK)
