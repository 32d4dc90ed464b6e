"""The process that learns a class, so that predictions go on meanwhile.

The server writes one line of JSON to its standard input and keeps that open: once it is closed, the
server is gone, and so is this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from limen import storage
from limen.app.models import Lesson, open_model, save, teach
from limen.datasets import DatasetError
from limen.storage import ModelFileError
from limen.web import records
from limen.web.blobs import Blobs
from limen.web.database import Database, Job
from limen.web.uploads import stored_array

_EVERY = 0.3  # seconds between two reports


def main() -> None:
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)  # predictions go first
    database = Database(order["db"])
    try:
        learn(database, Path(order["model"]), Blobs(Path(order["blobs"])), order["job"])
    except (DatasetError, ModelFileError, ValueError) as error:
        with database.session() as session:
            records.fail_job(session, order["job"], str(error))


def learn(database: Database, path: Path, blobs: Blobs, number: int) -> int:
    """Teach the model at `path` the class of a job; returns the version that knows it."""
    report = _reporter(database, number)
    with storage.locked(path):
        with database.session() as session:
            job = session.get_one(Job, number)
            kept = [blobs.get(item.digest) for item in records.learning_items(session, number)]
        model = open_model(path)
        found = [stored_array(data, model.inputs) for data in kept]
        arrays = [array for array in found if array is not None]
        if len(arrays) < 2:
            raise DatasetError(
                f"{len(arrays)} of {len(kept)} inputs are still there: at least 2 are needed"
            )
        report(0.05, f"judging {len(arrays)} inputs")
        estimator = model.classifier.estimator_
        if "progress" in getattr(estimator, "get_params", dict)():
            estimator.set_params(progress=_training(report))
        lesson = teach(model, model.inputs.rows(np.stack(arrays)), job.label)
        if "progress" in getattr(estimator, "get_params", dict)():
            lesson.model.classifier.estimator_.set_params(progress=None)
        report(0.95, "saving")
        facts = lesson_facts(lesson)
        version = save(
            lesson.model,
            path,
            f"learnt {job.label}",
            {"job": number, "lesson": facts},
            keep=True,
        )
    with database.session() as session:
        records.finish_job(session, number, version, facts)
    return version


def lesson_facts(lesson: Lesson) -> dict[str, Any]:
    """What learning did, as JSON can tell it."""
    facts = asdict(lesson)
    del facts["model"]
    return {**facts, "notes": list(lesson.model.notes)}


def _reporter(database: Database, number: int) -> Callable[[float, str], None]:
    last = 0.0

    def report(progress: float, doing: str) -> None:
        nonlocal last
        if time.monotonic() - last < _EVERY and progress not in (0.05, 0.95):
            return
        last = time.monotonic()
        with database.session() as session:
            records.report_job(session, number, progress, doing)

    return report


def _training(report: Callable[[float, str], None]) -> Callable[[dict[str, Any]], None]:
    """Turns the events of a training into a share of the whole."""

    def progress(event: dict[str, Any]) -> None:
        if "done" in event:
            epochs, steps = event["epochs"], event["steps"]
            share = (event["epoch"] - 1 + event["done"] / steps) / epochs
            report(0.1 + 0.85 * share, f"learning, epoch {event['epoch']} of {epochs}")

    return progress


def _end_with_the_server() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
