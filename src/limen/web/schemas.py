"""What goes over the wire."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from limen.web.database import Item, Job, State

MOST = 1000  # items in one request


def _whole(value: Any) -> Any:
    """JSON does not tell 5.0 from 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Number = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True), BeforeValidator(_whole)]


# One line that every database can store and every page can show, with no space around it.
_EDGE = r"[^\s\x00-\x1f\x7f-\x9f]"
_PLAIN = rf"^{_EDGE}(?:[^\x00-\x1f\x7f-\x9f]*{_EDGE})?$"
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=_PLAIN)]


def _different(numbers: list[int]) -> list[int]:
    if len(set(numbers)) < len(numbers):
        raise ValueError("the same item is named twice")
    return numbers


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """Why a request was refused."""

    detail: Any = Field(description="The reason, or a list of what is wrong with the request.")


class ItemOut(BaseModel):
    """An input and what is said of it. Score direction: novel where strangeness >= eta."""

    id: int
    name: str = Field(description="What the client called it.")
    received: datetime
    state: State
    label: str = Field(description="What the model says: a class, or its word for unknown.")
    novel: bool
    strangeness: float | None = Field(description="Higher is stranger; null: infinite.")
    margin: float | None = Field(description="eta - strangeness: positive is known.")
    nearest: str = Field(description="The class it looks most like.")
    named: str | None = Field(description="What a person said, if anyone did.")
    version: int = Field(description="Of the model that judged it.")
    media: str = Field(description="Where the picture, or the row, can be had.")

    @classmethod
    def of(cls, item: Item) -> Self:
        return cls.of_row({name: getattr(item, name) for name in _ITEM})

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Self:
        return cls(
            id=row["id"],
            name=row["name"],
            received=when(row["received"]),
            state=row["state"],
            label=row["label"],
            novel=row["margin"] <= 0,
            strangeness=finite(row["strangeness"]),
            margin=finite(row["margin"]),
            nearest=row["nearest"],
            named=row.get("named"),
            version=row["version"],
            media=f"/media/{row['view']}",
        )


_ITEM = (
    *("id", "name", "received", "state", "label", "margin", "strangeness"),
    *("nearest", "named", "version", "view"),
)


class Prediction(BaseModel):
    version: int = Field(description="Of the model that judged.")
    eta: float
    items: list[ItemOut]


class Page(BaseModel):
    items: list[ItemOut]
    next: int | None = Field(description="Give it as `before` for the next page; null: no more.")


class IsKnown(Strict):
    """An item is of this known class."""

    label: Name


class IsNoise(Strict):
    """An item is nothing to learn from."""

    noise: Literal[True]


class ClassIn(Strict):
    """A class to be learnt from items."""

    name: Name
    items: Annotated[
        list[Number],
        Field(min_length=2, max_length=MOST, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_different),
    ]


class PreviewOut(BaseModel):
    """What learning a class would do."""

    label: str
    points: int
    few: bool = Field(description="Too few points to judge the class well.")
    noticed: float = Field(description="Share of the points that are novel to the model now.")
    eta: float
    eta_after: float = Field(description="The cut once the class has been met; an estimate.")


class JobOut(BaseModel):
    id: int
    label: str
    points: int
    state: Literal["queued", "running", "done", "failed"]
    created: datetime
    finished: datetime | None
    progress: float = Field(description="Between 0 and 1.")
    doing: str
    version: int | None = Field(description="The version that knows the class.")
    lesson: dict[str, Any] | None = Field(
        description="Once done: eta and accuracy on held-out points, before and after."
    )
    error: str | None

    @classmethod
    def of(cls, job: Job) -> Self:
        return cls(
            id=job.id,
            label=job.label,
            points=job.points,
            state=job.state,  # type: ignore[arg-type]
            created=when(job.created),
            finished=None if job.finished is None else when(job.finished),
            progress=job.progress,
            doing=job.doing,
            version=job.version,
            lesson=job.lesson,
            error=job.error,
        )


class AlarmOut(BaseModel):
    """The batch test over the latest inputs."""

    raised: bool
    unknown: int
    total: int
    expected: float = Field(description="So many known inputs would be called unknown, at most.")
    p_value: float


class ClassOut(BaseModel):
    name: str
    kept: int = Field(description="Points the model keeps of it.")
    cut: float | None = Field(description="The similarity it demands.")
    named: int = Field(description="Items that a person said are of it.")
    examples: list[str]


class ModelOut(BaseModel):
    version: int
    kind: str
    inputs: dict[str, Any]
    eta: float
    score: str
    rule: str
    expected_known: float
    expected_novel: float
    classes: list[ClassOut]
    alarm: AlarmOut
    counts: dict[str, int] = Field(description="Items by state.")


class VersionOut(BaseModel):
    version: int
    parent: int | None
    in_use: bool
    made: str | None
    what: str | None
    classes: list[str]
    eta: float | None


class Health(BaseModel):
    status: str


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
