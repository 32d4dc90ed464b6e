"""What a person says of inputs: known, noise, or a class to be learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from limen.app.models import FEW
from limen.labels import check_new_label
from limen.web import records
from limen.web.blobs import Blobs
from limen.web.database import Database, Item, Job
from limen.web.events import Events
from limen.web.refusals import RefusedError
from limen.web.serving import Served, Serving
from limen.web.uploads import stored_array


@dataclass(frozen=True)
class Preview:
    """What learning a class would do."""

    label: str
    points: int
    few: bool
    noticed: float
    eta: float
    eta_after: float


class Reviews:
    """Takes down what is said, all or nothing."""

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        serving: Serving,
        events: Events,
        queued: Callable[[int], None],
    ) -> None:
        self.database, self.blobs, self.serving = database, blobs, serving
        self.events, self._queued = events, queued

    def label(self, ids: Sequence[int], label: str) -> int:
        """These are of a class the model knows."""
        if label not in self.serving.current.classes:
            raise RefusedError(
                404, f"the model knows no class {label!r}: teach it with POST /v1/classes"
            )
        return self._named(ids, "reviewed", label)

    def noise(self, ids: Sequence[int]) -> int:
        """These are nothing to learn from."""
        return self._named(ids, "noise", None)

    def undo(self, ids: Sequence[int]) -> int:
        """What was said of these is taken back."""
        with self.database.session() as session:
            self._check_there(session, ids)
            changed = records.forget_names(session, ids)
            if changed == 0:
                raise RefusedError(409, "nothing to take back: was a class learnt from these?")
        self.events.tell("labels", items=changed)
        return changed

    def _named(self, ids: Sequence[int], state: str, label: str | None) -> int:
        with self.database.session() as session:
            self._check_there(session, ids)
            changed = records.name_items(session, ids, state, label)
            if changed == 0:
                raise RefusedError(409, "a class is or was learnt from these: undo that first")
        self.events.tell("labels", items=changed)
        return changed

    def _check_there(self, session: Session, ids: Sequence[int]) -> list[Item]:
        found = records.items_by_id(session, ids)
        if missing := sorted(set(ids) - {item.id for item in found}):
            raise RefusedError(404, f"there are no items {missing[:10]}")
        return found

    def preview(self, label: str, ids: Sequence[int]) -> Preview:
        """What learning a class from these items would do; nothing is changed."""
        served = self.serving.current
        label = self._check_name(served, label)
        with self.database.session() as session:
            arrays = self._arrays(served, self._learnable(session, ids))
        rows = served.model.inputs.rows(arrays)
        classifier = served.model.classifier
        selection = classifier.preview_class(rows, label)
        return Preview(
            label=label,
            points=len(rows),
            few=len(rows) < FEW,
            noticed=float(np.mean(classifier.predict_novelty(rows))),
            eta=served.eta,
            eta_after=selection.eta,
        )

    def teach(self, label: str, ids: Sequence[int]) -> Job:
        """Have a class learnt from these items."""
        label = self._check_name(self.serving.current, label)
        with self.database.session() as session:
            items = self._learnable(session, ids)
            if records.is_queued(session, label):
                raise RefusedError(409, f"{label!r} is being learnt already")
            job = records.queue_job(session, label, [item.id for item in items])
            if job is None:
                raise RefusedError(409, "a class is being learnt from some of these items")
        self._queued(job.id)
        return job

    def _check_name(self, served: Served, label: str) -> str:
        if label in served.classes:
            raise RefusedError(409, f"the model knows {label!r} already: label the items so")
        try:
            unknown = served.model.classifier.unknown_label or "unknown"
            return str(check_new_label(label, served.model.classifier.classes_, unknown))
        except ValueError as error:
            raise RefusedError(409, str(error)) from error

    def _learnable(self, session: Session, ids: Sequence[int]) -> list[Item]:
        items = self._check_there(session, ids)
        if len(items) < 2:
            raise RefusedError(422, "at least 2 items are needed to learn a class")
        if any(
            item.state == "learning" or (item.state == "reviewed" and item.job) for item in items
        ):
            raise RefusedError(409, "a class is or was learnt from some of these items")
        return items

    def _arrays(self, served: Served, items: Sequence[Item]) -> NDArray[Any]:
        inputs = served.model.inputs
        found = [stored_array(self.blobs.get(item.digest), inputs) for item in items]
        arrays = [array for array in found if array is not None]
        if len(arrays) < 2:
            raise RefusedError(409, "the files of these items are gone")
        return np.stack(arrays)
