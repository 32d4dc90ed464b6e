"""Inputs on their way in: judged in batches, kept, counted, and in the end dropped."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import insert

from limen.app.models import Verdict
from limen.web import records
from limen.web.alarm import AlarmWindow
from limen.web.batching import Batcher
from limen.web.blobs import Blobs
from limen.web.database import Database, Item
from limen.web.events import Events
from limen.web.metrics import Metrics
from limen.web.serving import Served, Serving
from limen.web.settings import ServerSettings
from limen.web.uploads import Received

_TIDY = 100  # inputs after which is looked for what is too much


@dataclass(frozen=True)
class Judged:
    """An input with its verdict, as it is stored."""

    received: Received
    served: Served
    row: dict[str, Any]


class Inflow:
    """From what was received to what is stored."""

    def __init__(
        self,
        settings: ServerSettings,
        database: Database,
        blobs: Blobs,
        serving: Serving,
        events: Events,
        metrics: Metrics,
    ) -> None:
        self.settings, self.database, self.blobs = settings, database, blobs
        self.serving, self.events, self.metrics = serving, events, metrics
        self.alarm = AlarmWindow(settings.window, settings.webhook)
        self.batcher: Batcher[Received, Judged] = Batcher(self._judge, self._record)
        self._since_tidy = 0

    def _judge(self, inputs: list[Received]) -> list[Judged]:
        served = self.serving.current
        verdicts = served.judge(np.stack([one.array for one in inputs]))
        self.metrics.batch.observe(len(inputs))
        self.metrics.waiting.set(self.batcher.waiting)
        now = time.time()
        return [
            Judged(one, served, {**verdict_row(served, verdict), "received": now})
            for one, verdict in zip(inputs, verdicts, strict=True)
        ]

    def _record(self, judged: list[Judged]) -> list[Judged]:
        """Store a batch: the files first, then all rows at once."""
        for one in judged:
            received = one.received
            digest = self.blobs.put(received.stored)
            apart = received.view is not received.stored
            view = self.blobs.put(received.view) if apart else digest
            size = len(received.stored) + (len(received.view) if apart else 0)
            named = {"name": received.name[:200], "digest": digest, "view": view, "size": size}
            one.row.update(named, state="novel" if one.row["margin"] <= 0 else "known")
        rows = [one.row for one in judged]
        with self.database.session() as session:
            adding = insert(Item).returning(Item.id, sort_by_parameter_order=True)
            ids = session.scalars(adding, rows)
            for row, number in zip(rows, ids, strict=True):
                row["id"] = number
        self._notice(judged)
        return judged

    def _notice(self, judged: list[Judged]) -> None:
        novel = [one.row["margin"] <= 0 for one in judged]
        served = judged[-1].served
        self.metrics.inputs.labels("novel").inc(sum(novel))
        self.metrics.inputs.labels("known").inc(len(novel) - sum(novel))
        before = self.alarm.raised
        if served.version == self.serving.current.version:
            self.alarm.add(served, novel)
        self.metrics.alarm.set(self.alarm.raised)
        if self.alarm.raised != before:
            self.events.tell("alarm", **self.alarm.facts())
        self.events.tell("items", novel=sum(novel), total=len(novel))
        self._since_tidy += len(judged)
        if self._since_tidy >= _TIDY:
            self._since_tidy = 0
            self.tidy()

    def tidy(self) -> int:
        """Drop what is more than is to be kept; returns how many items."""
        settings, dropped = self.settings, 0
        while True:
            with self.database.session() as session:
                gone = records.too_many(session, settings.keep_items, settings.keep_bytes)
                for item in gone:
                    session.delete(item)
                session.flush()
                digests = {digest for item in gone for digest in (item.digest, item.view)}
                unused = digests - records.still_used(session, digests) if gone else set()
            for digest in unused - self.shown():
                self.blobs.drop(digest)
            dropped += len(gone)
            if not gone:
                return dropped

    def shown(self) -> set[str]:
        """Files of examples that the page shows."""
        return {digest for digests in self.serving.examples.values() for digest in digests}


def verdict_row(served: Served, verdict: Verdict) -> dict[str, Any]:
    """What the model said, as an item keeps it."""
    return {
        "version": served.version,
        "label": verdict.label,
        "nearest": verdict.nearest,
        "strangeness": verdict.strangeness,
        "margin": verdict.margin,
    }
