"""Tables of the server, in SQLite or PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    String,
    create_engine,
    event,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from limen.web.settings import ServerError

SCHEMA = 1
_Key = BigInteger().with_variant(Integer, "sqlite")

# What has become of an input. The model says the first two, a person the others.
State = Literal["novel", "known", "reviewed", "noise", "learning"]
STATES: tuple[State, ...] = get_args(State)


class Base(DeclarativeBase):
    pass


class Schema(Base):
    __tablename__ = "limen_schema"
    version: Mapped[int] = mapped_column(primary_key=True)


class Item(Base):
    """An input, what the model said of it, and what a person said.

    ``digest`` names the input as the model sees it, ``view`` the picture to show; ``feature`` tells
    which novel inputs are alike, by the model that judged it.
    """

    __tablename__ = "items"
    id: Mapped[int] = mapped_column(_Key, primary_key=True)
    received: Mapped[float] = mapped_column(Double, default=time.time)
    name: Mapped[str] = mapped_column(String(200), default="")
    digest: Mapped[str] = mapped_column(String(64))
    view: Mapped[str] = mapped_column(String(64))
    size: Mapped[int] = mapped_column(Integer, default=0)
    version: Mapped[int]
    label: Mapped[str] = mapped_column(String(200))
    nearest: Mapped[str] = mapped_column(String(200))
    strangeness: Mapped[float] = mapped_column(Double)
    margin: Mapped[float] = mapped_column(Double)
    state: Mapped[str] = mapped_column(String(10))
    named: Mapped[str | None] = mapped_column(String(200), default=None)
    job: Mapped[int | None] = mapped_column(_Key, default=None)
    feature: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)

    __table_args__ = (Index("items_by_state", "state", "id"), Index("items_by_digest", "digest"))


class Job(Base):
    """A class that is to be learnt, is being learnt, or was."""

    __tablename__ = "jobs"
    id: Mapped[int] = mapped_column(_Key, primary_key=True)
    label: Mapped[str] = mapped_column(String(200))
    points: Mapped[int]
    state: Mapped[str] = mapped_column(String(10), default="queued")
    created: Mapped[float] = mapped_column(Double, default=time.time)
    finished: Mapped[float | None] = mapped_column(Double, default=None)
    progress: Mapped[float] = mapped_column(Double, default=0.0)
    doing: Mapped[str] = mapped_column(String(200), default="waiting")
    version: Mapped[int | None] = mapped_column(default=None)
    lesson: Mapped[dict[str, Any] | None] = mapped_column(JSON, default=None)
    error: Mapped[str | None] = mapped_column(String(1000), default=None)


class Database:
    """An engine with its tables; `session` for a transaction that is all or nothing."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        try:
            Base.metadata.create_all(self.engine)
            with self.session() as session:
                found = session.scalar(select(Schema.version))
                if found is None:
                    session.add(Schema(version=SCHEMA))
                elif found > SCHEMA:
                    raise ServerError(
                        f"the database is of a newer limen (schema {found}, this one knows "
                        f"{SCHEMA}): install that one"
                    )
        except SQLAlchemyError as error:
            shown = make_url(url).render_as_string(hide_password=True)
            raise ServerError(f"cannot use the database {shown}: {_reason(error)}") from error

    @contextmanager
    def session(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        self.engine.dispose()


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    except (ArgumentError, NoSuchModuleError) as error:
        raise ServerError(
            f"the database URL is not understood ({error}): sqlite:///FILE or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME fit"
        ) from error
    except ModuleNotFoundError as error:
        raise ServerError(
            f"this database needs {error.name}: pip install -c constraints.txt '.[postgres]'"
        ) from error
    if engine.dialect.name == "sqlite":
        if engine.url.database in (None, "", ":memory:"):
            raise ServerError("a database in memory is lost at once: give sqlite:///FILE")
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Readers do not wait for the writer; whatever is killed, what was committed stays."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _reason(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
