"""The API, version 1."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response, status
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException

from limen.app.inputs import Inputs
from limen.web import records
from limen.web.database import Item, State
from limen.web.overview import model_facts, version_facts
from limen.web.refusals import RefusedError
from limen.web.schemas import (
    MOST,
    ClassIn,
    ClassOut,
    IsKnown,
    IsNoise,
    ItemOut,
    JobOut,
    ModelOut,
    Page,
    Prediction,
    PreviewOut,
    Problem,
    VersionOut,
)
from limen.web.service import Service
from limen.web.settings import Limits
from limen.web.uploads import Received, read_picture, read_row

_REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": reason}
    for code, reason in {
        400: "A body that cannot be read.",
        401: "A token is needed.",
        403: "The request comes from elsewhere.",
        413: "More than is taken.",
        422: "Not understood.",
        429: "Too many requests.",
    }.items()
}
_MISSING: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such thing."}
}
_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Not possible now."}
}
router = APIRouter(prefix="/v1", responses=_REFUSED)
Identity = Annotated[int, InPath(ge=1, le=2**31 - 1)]
_TOGETHER = 8  # times the pixels of the largest picture may be in one request
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/bmp", "image/webp")


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@router.post(
    "/predict",
    response_model=Prediction,
    responses={
        415: {"model": Problem, "description": "Not a kind of input that this model takes."},
        503: {"model": Problem, "description": "Too much is waiting."},
    },
    openapi_extra={"requestBody": {"required": True, "content": {}}},  # see `describe_inputs`
)
async def predict(request: Request) -> Response:
    """Judge pictures (multipart files, or one as the body) or feature rows (JSON); all are kept."""
    service = service_of(request)
    received = await read_inputs(request, service)
    judged = await service.inflow.batcher.submit(received)
    items = [ItemOut.of_row(one.row) for one in judged]
    served = judged[-1].served
    answer = Prediction(version=served.version, eta=served.eta, items=items)
    # Checked by its own types already: once is enough for what is asked most often.
    return Response(answer.model_dump_json(), media_type="application/json")


def describe_inputs(schema: dict[str, Any], inputs: Inputs, limits: Limits) -> None:
    """Write into the OpenAPI schema what this very model takes."""
    most = {"minItems": 1, "maxItems": limits.inputs}
    content: dict[str, Any] = {}
    if inputs.kind == "images":
        binary = {"type": "string", "format": "binary"}
        several = {"files": {"type": "array", "items": binary, **most}}
        form = {"type": "object", "required": ["files"], "properties": several}
        content["multipart/form-data"] = {"schema": form}
        content |= {kind: {"schema": binary} for kind in _PICTURES}
    else:
        size = math.prod(inputs.shape)
        number = {"type": "number", "minimum": -1e37, "maximum": 1e37}
        row: dict[str, Any] = {"type": "array", "items": number, "minItems": size, "maxItems": size}
        if inputs.columns:
            named = dict.fromkeys(inputs.columns, number)
            table = {"type": "object", "required": [*inputs.columns], "properties": named}
            row = {"anyOf": [row, table]}
        rows = {"rows": {"type": "array", "items": row, **most}}
        body = {"type": "object", "required": ["rows"], "properties": rows}
        content["application/json"] = {"schema": {**body, "additionalProperties": False}}
    schema["paths"]["/v1/predict"]["post"]["requestBody"]["content"] = content


async def read_inputs(request: Request, service: Service) -> list[Received]:
    """The inputs of a request, whichever way they were sent."""
    inputs, limits = service.serving.current.model.inputs, service.settings.limits
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _from_form(request, service)
    if kind == "application/json":
        if inputs.kind != "table":
            raise RefusedError(415, "this model takes pictures, not rows: send them as multipart")
        rows = _parsed_rows(await _short_body(request, inputs, limits))
        if len(rows) > limits.inputs:
            raise RefusedError(413, f"at most {limits.inputs} rows are taken at once")
        return [read_row(f"row {number}", row, inputs) for number, row in enumerate(rows)]
    if kind in _PICTURES:
        return await _decoded(service, [("picture", await request.body())])
    raise RefusedError(415, "send multipart/form-data, application/json, or a picture")


async def _from_form(request: Request, service: Service) -> list[Received]:
    limits = service.settings.limits
    try:
        async with request.form(max_files=limits.inputs, max_fields=16) as form:
            files = [file for file in form.getlist("files") if isinstance(file, UploadFile)]
            sent = [(_shown_name(file.filename), await file.read()) for file in files]
    except MultiPartException as error:
        raise RefusedError(400, error.message) from error
    except HTTPException as error:  # what FastAPI makes of the same
        raise RefusedError(400, str(error.detail)) from error
    if not sent:
        raise RefusedError(422, "there are no files: send them as fields named 'files'")
    return await _decoded(service, sent)


async def _decoded(service: Service, sent: list[tuple[str, bytes]]) -> list[Received]:
    """Pictures, in one of few threads: whoever sends large ones waits for others who do."""
    inputs, limits = service.serving.current.model.inputs, service.settings.limits

    def read_all() -> list[Received]:
        left, received = _TOGETHER * limits.pixels, []
        for name, data in sent:
            one, pixels = read_picture(name, data, inputs, limits)
            received.append(one)
            if (left := left - pixels) < 0:
                raise RefusedError(413, "these pictures are too large together: send fewer")
        return received

    return await to_thread.run_sync(read_all, limiter=service.decoding)


async def _short_body(request: Request, inputs: Inputs, limits: Limits) -> bytes:
    """JSON holds up everyone while it is read: no more of it than the rows can need."""
    most, body = 64 * limits.inputs * (1 + math.prod(inputs.shape)), b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise RefusedError(413, f"rows may have at most {most} bytes together")
    return body


def _parsed_rows(body: bytes) -> list[Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "the body is not JSON") from error
    rows = value.get("rows") if isinstance(value, dict) and set(value) == {"rows"} else None
    if not isinstance(rows, list) or not rows:
        raise RefusedError(422, 'the body must be {"rows": [[...], ...]}')
    return rows


def _shown_name(name: str | None) -> str:
    """A client's file name, only ever shown: no path, nothing unprintable."""
    last = (name or "picture").replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:100] or "picture"


@router.get("/items", response_model=Page)
def items(
    request: Request,
    state: Annotated[State | None, Query(description="Only these; default: all.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Page:
    """Inputs that were judged, the latest first."""
    with service_of(request).database.session() as session:
        found = records.items_page(session, state, limit, before)
    more = found[-1].id if len(found) == limit else None
    return Page(items=[ItemOut.of(item) for item in found], next=more)


@router.get("/items/{id}", response_model=ItemOut, responses=_MISSING)
def item(request: Request, id: Identity) -> ItemOut:
    """One input."""
    return _item(service_of(request), id)


@router.post("/items/{id}/label", response_model=ItemOut, responses={**_MISSING, **_CONFLICT})
def label(request: Request, id: Identity, said: IsKnown | IsNoise) -> ItemOut:
    """Say that an item is of a known class, or noise."""
    service = service_of(request)
    if isinstance(said, IsKnown):
        service.reviews.label([id], said.label)
    else:
        service.reviews.noise([id])
    return _item(service, id)


@router.delete("/items/{id}/label", response_model=ItemOut, responses={**_MISSING, **_CONFLICT})
def unlabel(request: Request, id: Identity) -> ItemOut:
    """Take back what was said of an item."""
    service_of(request).reviews.undo([id])
    return _item(service_of(request), id)


def _item(service: Service, number: int) -> ItemOut:
    with service.database.session() as session:
        found = session.get(Item, number)
    if found is None:
        raise HTTPException(404, f"there is no item {number}")
    return ItemOut.of(found)


@router.get("/classes", response_model=list[ClassOut])
def classes(request: Request) -> Any:
    """The classes the model knows."""
    return model_facts(service_of(request)).classes


@router.post(
    "/classes",
    response_model=JobOut,
    status_code=status.HTTP_202_ACCEPTED,
    responses={**_MISSING, **_CONFLICT},
)
def teach(request: Request, wanted: ClassIn) -> JobOut:
    """Start learning a new class from items; the job tells how far it is."""
    return JobOut.of(service_of(request).reviews.teach(wanted.name, wanted.items))


@router.post("/classes/preview", response_model=PreviewOut, responses={**_MISSING, **_CONFLICT})
def preview(request: Request, wanted: ClassIn) -> Any:
    """What learning a class would do; nothing is changed."""
    return PreviewOut.model_validate(
        service_of(request).reviews.preview(wanted.name, wanted.items), from_attributes=True
    )


@router.get("/jobs", response_model=list[JobOut])
def jobs(request: Request, limit: Annotated[int, Query(ge=1, le=MOST)] = 20) -> list[JobOut]:
    """Classes that were, are or are to be learnt, the latest first."""
    with service_of(request).database.session() as session:
        return [JobOut.of(job) for job in records.jobs_page(session, limit)]


@router.get("/jobs/{id}", response_model=JobOut, responses=_MISSING)
def job(request: Request, id: Identity) -> JobOut:
    """How far a job is."""
    return JobOut.of(service_of(request).job(id))


@router.get("/model", response_model=ModelOut)
def model(request: Request) -> ModelOut:
    """The model in use."""
    return model_facts(service_of(request))


@router.get("/models", response_model=list[VersionOut])
def models(request: Request) -> list[VersionOut]:
    """All versions of the model, the oldest first."""
    return version_facts(service_of(request))


@router.post(
    "/models/{version}/activate", response_model=ModelOut, responses={**_MISSING, **_CONFLICT}
)
def activate(request: Request, version: Identity) -> ModelOut:
    """Use another version from now on: undo, or redo."""
    service_of(request).activate(version)
    return model_facts(service_of(request))


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}},
        503: {"model": Problem, "description": "Too many listen."},
    },
)
async def events(request: Request) -> StreamingResponse:
    """What happens, as server-sent events: items, labels, job, model, alarm."""
    service = service_of(request)
    if service.events.full:
        raise HTTPException(503, "too many pages are listening")
    return StreamingResponse(service.events.listen(), media_type="text/event-stream")
