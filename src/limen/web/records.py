"""Questions to the database, and the few changes it sees. Each runs inside a session."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, Update, func, or_, select, update
from sqlalchemy.orm import Session

from limen.web.database import STATES, Item, Job

# When room is needed, what is known goes first and what waits to be named last.
_LEAST_WANTED = ("known", "reviewed", "noise", "novel")


def items_page(
    session: Session, state: str | None, limit: int, before: int | None = None
) -> list[Item]:
    """The latest items, or those before one."""
    query = select(Item).order_by(Item.id.desc()).limit(limit)
    if state is not None:
        query = query.where(Item.state == state)
    if before is not None:
        query = query.where(Item.id < before)
    return list(session.scalars(query))


def items_by_id(session: Session, ids: Collection[int]) -> list[Item]:
    return list(session.scalars(select(Item).where(Item.id.in_(ids)).order_by(Item.id)))


def counts(session: Session) -> dict[str, int]:
    """State -> how many items."""
    query = select(Item.state, func.count()).group_by(Item.state)
    found = {state: number for state, number in session.execute(query)}  # noqa: C416
    return {state: found.get(state, 0) for state in STATES}


def counts_by_name(session: Session) -> dict[str, int]:
    """What a person said -> of how many items."""
    query = select(Item.named, func.count()).where(Item.named.is_not(None)).group_by(Item.named)
    return {str(name): count for name, count in session.execute(query)}


def latest_strangeness(session: Session, limit: int) -> list[float]:
    """Strangeness of the latest inputs."""
    return list(session.scalars(select(Item.strangeness).order_by(Item.id.desc()).limit(limit)))


def latest_novelty(session: Session, version: int, limit: int) -> list[bool]:
    """Whether the latest inputs that a version judged first were novel, oldest first."""
    query = (
        select(Item.margin <= 0)
        .where(Item.version == version)
        .order_by(Item.id.desc())
        .limit(limit)
    )
    return [bool(novel) for novel in session.scalars(query)][::-1]


def name_items(session: Session, ids: Collection[int], state: str, named: str | None) -> int:
    """What a person says of items that nothing is or was learnt from; returns of how many."""
    learnt = (Item.state == "reviewed") & Item.job.is_not(None)
    free = Item.id.in_(ids) & (Item.state != "learning") & ~learnt
    return _changed(session, update(Item).where(free).values(state=state, named=named, job=None))


def forget_names(session: Session, ids: Collection[int]) -> int:
    """Undo: what the model said counts again."""
    mine = Item.id.in_(ids) & Item.state.in_(("reviewed", "noise")) & Item.job.is_(None)
    return _back_to_verdict(session, mine)


def is_queued(session: Session, label: str) -> bool:
    """Whether a class of this name waits or is being learnt."""
    under_way = Job.state.in_(("queued", "running"))
    return session.scalar(select(Job.id).where(Job.label == label, under_way)) is not None


def queue_job(session: Session, label: str, ids: Collection[int]) -> Job | None:
    """A class to be learnt from items; None if something is learnt from some of them already."""
    job = Job(label=label, points=len(ids))
    session.add(job)
    session.flush()
    free = Item.id.in_(ids) & (Item.state != "learning")
    learning = update(Item).where(free).values(state="learning", named=label, job=job.id)
    return job if _changed(session, learning) == len(ids) else None


def claim_job(session: Session) -> Job | None:
    """The job that has waited longest, running from now on; None if none waits."""
    job = session.scalar(select(Job).where(Job.state == "queued").order_by(Job.id).limit(1))
    if job is None:
        return None
    mine = update(Job).where(Job.id == job.id, Job.state == "queued")
    if _changed(session, mine.values(state="running", doing="starting")) != 1:
        return None  # another server was faster
    return job


def report_job(session: Session, job: int, progress: float, doing: str) -> None:
    session.execute(update(Job).where(Job.id == job).values(progress=progress, doing=doing))


def finish_job(session: Session, job: int, version: int, lesson: dict[str, Any]) -> bool:
    """The class is learnt: its items are reviewed. False if that was known already."""
    done = {"version": version, "lesson": lesson, "progress": 1.0, "doing": "learnt"}
    changed = _changed(
        session,
        update(Job)
        .where(Job.id == job, Job.state != "done")
        .values(state="done", finished=time.time(), error=None, **done),
    )
    if changed:
        mine = select(Job.label).where(Job.id == job).scalar_subquery()
        session.execute(update(Item).where(Item.job == job).values(state="reviewed", named=mine))
    return bool(changed)


def fail_job(session: Session, job: int, reason: str) -> bool:
    """Nothing was learnt: its items are novel again. False if the job had ended already."""
    changed = _changed(
        session,
        update(Job)
        .where(Job.id == job, Job.state.in_(("queued", "running")))
        .values(state="failed", finished=time.time(), doing="failed", error=reason[:1000]),
    )
    if changed:
        _release(session, job)
    return bool(changed)


def jobs_page(session: Session, limit: int) -> list[Job]:
    return list(session.scalars(select(Job).order_by(Job.id.desc()).limit(limit)))


def follow_classes(session: Session, classes: Collection[str]) -> None:
    """After another version was taken: items of classes it knows are reviewed, others are not."""
    for job in session.scalars(select(Job).where(Job.state == "done")):
        if job.label in classes:
            named = {"state": "reviewed", "named": job.label}
            session.execute(update(Item).where(Item.job == job.id).values(**named))
        else:
            values = {"state": "novel", "named": None}
            session.execute(update(Item).where(Item.job == job.id).values(**values))


def judged_by_others(session: Session, version: int, state: str, limit: int) -> list[Item]:
    """The latest items in this state that another version judged."""
    query = select(Item).where(Item.version != version, Item.state == state)
    return list(session.scalars(query.order_by(Item.id.desc()).limit(limit)))


def too_many(session: Session, keep_items: int, keep_bytes: int, most: int = 1000) -> list[Item]:
    """Items to be dropped to stay within the limits: the least wanted, the oldest first."""
    count, size = session.execute(
        select(func.count(), func.coalesce(func.sum(Item.size), 0)).select_from(Item)
    ).one()
    dropped: list[Item] = []
    for state in _LEAST_WANTED:
        if count <= keep_items and size <= keep_bytes:
            break
        oldest = select(Item).where(Item.state == state).order_by(Item.id)
        for item in session.scalars(oldest.limit(most)):
            if count <= keep_items and size <= keep_bytes:
                break
            dropped.append(item)
            count, size = count - 1, size - item.size
    return dropped


def all_files(session: Session) -> set[str]:
    """Every file that belongs to an item."""
    pairs = session.execute(select(Item.digest, Item.view))
    return {digest for pair in pairs for digest in pair}


def still_used(session: Session, digests: Iterable[str]) -> set[str]:
    """Which of these files belong to an item."""
    wanted = list(digests)
    query = select(Item.digest, Item.view).where(
        or_(Item.digest.in_(wanted), Item.view.in_(wanted))
    )
    return {digest for pair in session.execute(query) for digest in pair}


def learning_items(session: Session, job: int) -> Sequence[Item]:
    return session.scalars(select(Item).where(Item.job == job).order_by(Item.id)).all()


def _release(session: Session, job: int) -> None:
    _back_to_verdict(session, Item.job == job)
    session.execute(update(Item).where(Item.job == job).values(job=None))


def _back_to_verdict(session: Session, which: ColumnElement[bool]) -> int:
    changed = 0
    for state, judged in (("novel", Item.margin <= 0), ("known", Item.margin > 0)):
        query = update(Item).where(which, judged).values(state=state, named=None)
        changed += _changed(session, query)
    return changed


def _changed(session: Session, change: Update) -> int:
    """Carry out a change; returns of how many rows."""
    result = session.execute(change)
    assert isinstance(result, CursorResult)
    return int(result.rowcount)
