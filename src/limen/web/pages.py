"""The pages a person sees: rendered here, brought up to date by a little script."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Field

from limen._version import __version__
from limen.app.models import FEW
from limen.web import records
from limen.web.api import Identity, read_inputs, service_of
from limen.web.charts import eta_history, histogram
from limen.web.database import Item
from limen.web.groups import grouped
from limen.web.guard import COOKIE, same, session_of
from limen.web.overview import model_facts, version_facts
from limen.web.refusals import RefusedError
from limen.web.schemas import MOST, Name, when
from limen.web.service import INBOX, Service
from limen.web.uploads import stored_array

router = APIRouter(include_in_schema=False)
_LATEST = 1000  # inputs in the histogram
_TOLD = "limen_told"  # a word for the next page; a cookie, since anyone can make a link
_ROOM = 3000  # characters of such a cookie
_COLUMNS = 4  # of a row that are shown
_templates = Environment(
    loader=PackageLoader("limen.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_templates.filters["when"] = lambda seconds: when(seconds).strftime("%Y-%m-%d %H:%M:%S UTC")
_templates.filters["number"] = lambda value: f"{value:.2f}"
_templates.filters["commonest"] = lambda values: max(set(values), key=values.count)
_templates.filters["percent"] = lambda share: f"{share:.0%}"
Ticked = Annotated[int, Field(ge=1, le=2**31 - 1)]
Ids = Annotated[list[Ticked], Form(max_length=MOST)]


def render(request: Request, template: str, **facts: Any) -> HTMLResponse:
    """A page within the frame that all share."""
    service = service_of(request)
    fresh = "x-refresh" not in request.headers  # the script only brings a page up to date
    told, undo = _told(request) if fresh else ("", [])
    frame = {
        "model": model_facts(service),
        "limen": __version__,
        "path": request.url.path,
        "told": told,
        "undo": undo,
    }
    page = HTMLResponse(_templates.get_template(template).render(**frame, **facts))
    if fresh:
        page.delete_cookie(_TOLD)
    return page


def error_page(status: int, reason: str) -> HTMLResponse:
    """What a person sees when something cannot be done."""
    page = _templates.get_template("error.html.j2").render(status=status, reason=reason)
    return HTMLResponse(page, status)


@router.get("/")
def inbox(request: Request, sort: Annotated[str, Query(max_length=20)] = "alike") -> HTMLResponse:
    """What was judged novel and nobody has named yet."""
    service = service_of(request)
    items = service.latest_novel()
    with service.database.session() as session:
        latest = records.latest_strangeness(session, _LATEST)
        running = [job for job in records.jobs_page(session, 20) if job.finished is None]
    return render(
        request,
        "inbox.html.j2",
        groups=_sorted(service, items, sort),
        rows=_rows(service, items),
        sort=sort,
        shown=len(items),
        histogram=histogram(latest, service.serving.current.eta),
        latest=len(latest),
        running=running,
    )


def _sorted(service: Service, items: list[Item], sort: str) -> list[list[Item]]:
    if sort == "newest" or not items:
        return [items] if items else []
    if sort == "strangest":
        return [sorted(items, key=lambda item: -item.strangeness)]
    return grouped(items, service.serving.current.alike)


@router.get("/classes")
def classes(request: Request) -> HTMLResponse:
    """What the model knows."""
    return render(request, "classes.html.j2")


@router.get("/history")
def history(request: Request) -> HTMLResponse:
    """How the cut came about, and all versions."""
    service = service_of(request)
    with service.database.session() as session:
        jobs = records.jobs_page(session, 20)
    facts = service.serving.current.facts
    return render(
        request,
        "history.html.j2",
        eta=eta_history(facts["eta"]["history"]),
        pieces=facts["eta"]["history"],
        versions=version_facts(service)[::-1],
        jobs=jobs,
    )


@router.get("/items")
def reviewed(request: Request, state: Annotated[str, Query(max_length=20)] = "reviewed") -> Any:
    """Items in some state, to look at and to take back."""
    service = service_of(request)
    with service.database.session() as session:
        items = records.items_page(session, state, INBOX)
    return render(request, "items.html.j2", items=items, rows=_rows(service, items), state=state)


@router.get("/say")
def nothing_said() -> Response:
    """Where a page that came from a form is asked for again."""
    return RedirectResponse("/", 303)


@router.post("/say")
def say(
    request: Request,
    what: Annotated[str, Form(max_length=20)],
    item: Ids | None = None,
    name: Annotated[str, Form(max_length=200)] = "",
    known: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """What a person says of the items that are ticked."""
    service, ids = service_of(request), list(item or [])
    if not ids:
        return _back("/", "Nothing is ticked: choose some inputs first.")
    if what == "teach":
        return _asked_to_teach(request, service, name, ids)
    if what == "known":
        changed = service.reviews.label(ids, known)
        return _back("/", f"{_count(changed)} named {known}.", ids)
    if what == "undo":
        changed = service.reviews.undo(ids)
        return _back("/", f"{_count(changed)} back where they were.")
    changed = service.reviews.noise(ids)
    return _back("/", f"{_count(changed)} called noise.", ids)


def _asked_to_teach(request: Request, service: Service, name: str, ids: list[int]) -> Response:
    name = " ".join(name.split())
    if not name or not name.isprintable() or len(name) > 100:
        return _back("/", "Give the new class a name of at most 100 characters.")
    if name in service.serving.current.classes:
        changed = service.reviews.label(ids, name)
        return _back("/", f"{name} is known already: {_count(changed)} named so.", ids)
    with service.database.session() as session:
        items = records.items_by_id(session, ids)
    preview = service.reviews.preview(name, ids)
    return render(
        request,
        "teach.html.j2",
        preview=preview,
        items=items,
        rows=_rows(service, items[:60]),
        least=FEW,
    )


@router.post("/teach")
def teach(request: Request, name: Annotated[Name, Form()], item: Ids) -> Response:
    """Learn it."""
    job = service_of(request).reviews.teach(name, item)
    return RedirectResponse(f"/jobs/{job.id}", 303)


@router.get("/jobs/{id}")
def job(request: Request, id: Identity) -> HTMLResponse:
    """How far learning a class is, and what it brought."""
    service = service_of(request)
    found = service.job(id)
    with service.database.session() as session:
        items = list(records.learning_items(session, id))
    served = service.serving.current
    parent = served.facts.get("parent") if served.version == found.version else None
    known = found.label in served.classes
    return render(request, "job.html.j2", job=found, items=items, known=known, parent=parent)


@router.post("/versions/{version}")
def use(request: Request, version: Identity) -> Response:
    """Take another version."""
    service_of(request).activate(version)
    return _back("/history", f"Version {version} is in use.")


@router.post("/try")
async def try_pictures(request: Request) -> Response:
    """The drop zone without a script: the pictures go to the inbox or to the known."""
    service = service_of(request)
    judged = await service.inflow.batcher.submit(await read_inputs(request, service))
    found = ", ".join(
        f"{one.received.name}: {one.row['label']} (nearest {one.row['nearest']})"
        for one in judged[:5]
    )
    return _back("/", found)


@router.get("/media/{digest}")
def media(request: Request, digest: Annotated[str, InPath(pattern="^[0-9a-f]{64}$")]) -> Response:
    """A picture, or a row, by its content."""
    data = service_of(request).blobs.get(digest)
    if data is None:
        raise HTTPException(404, "there is no such picture")
    kind = "image/png" if data.startswith(b"\x89PNG") else "application/json"
    forever = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(data, media_type=kind, headers=forever)


@router.get("/login")
def login_form() -> HTMLResponse:
    return HTMLResponse(_templates.get_template("login.html.j2").render(wrong=False))


@router.post("/login")
def login(request: Request, token: Annotated[str, Form(max_length=1000)]) -> Response:
    """Exchange the token for a cookie that only this site gets."""
    settings = service_of(request).settings
    if settings.token is None:
        return RedirectResponse("/", 303)
    secret = settings.token.encode()
    client = request.client.host if request.client else "?"
    if not request.app.state.wrong_tokens.has(client):
        raise RefusedError(429, "too many wrong tokens: wait a minute")
    if not same(token.encode(errors="replace"), secret):
        request.app.state.wrong_tokens.take(client)
        return HTMLResponse(_templates.get_template("login.html.j2").render(wrong=True), 401)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE,
        session_of(secret).decode(),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _back(path: str, told: str, undo: list[int] | None = None) -> Response:
    """To another page, with a word on what was done and how to take it back."""
    answer = RedirectResponse(path, 303)
    ids = ",".join(map(str, undo or []))
    value = quote(json.dumps([told[:200], ids if len(ids) < _ROOM else ""]))
    answer.set_cookie(_TOLD, value, max_age=30, httponly=True, samesite="strict")
    return answer


def _told(request: Request) -> tuple[str, list[int]]:
    """What was done just now, and the items for which it can be taken back."""
    try:
        told, ids = json.loads(unquote(request.cookies.get(_TOLD, "")))
        return str(told), [int(number) for number in ids.split(",") if number]
    except (ValueError, TypeError, AttributeError):
        return "", []


def _rows(service: Service, items: Sequence[Item]) -> dict[int, str]:
    """What a row says, of models of tables: its first columns."""
    inputs = service.serving.current.model.inputs
    if inputs.kind == "images":
        return {}
    names = inputs.columns or tuple(f"x{place}" for place in range(math.prod(inputs.shape)))
    shown = {}
    for item in items:
        row = stored_array(service.blobs.get(item.digest), inputs)
        values = [] if row is None else row.tolist()[:_COLUMNS]
        shown[item.id] = ", ".join(
            f"{name} {value:.4g}" for name, value in zip(names, values, strict=False)
        )
    return shown


def _count(number: int) -> str:
    return f"{number} input" if number == 1 else f"{number} inputs"
