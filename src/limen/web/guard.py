"""What stands before every request: who asks, from where, how much and how often."""

from __future__ import annotations

import collections
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limen.web.settings import ServerSettings

_log = logging.getLogger("limen.web")
COOKIE = "limen_session"
_FREE = ("/healthz", "/readyz", "/login", "/static/")  # without a token
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_CLIENTS = 10_000  # addresses remembered for the rate limit
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware: host, rate, size, token and origin are checked, headers are set."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        wrong: Buckets,
        answer: Callable[[Request, int, str], Response],
    ) -> None:
        self._app, self._settings, self._wrong = app, settings, wrong
        self._make_answer = answer
        self._hosts = settings.allowed_hosts
        self._buckets = Buckets(settings.limits.rate, 2 * settings.limits.rate)
        self._secret = settings.token.encode() if settings.token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = _with_headers(send, scope["path"])
        if refused := self._refused(scope, headers):
            await self._answer(scope, receive, send, *refused)
            return
        most, got, begun = self._settings.limits.body, 0, False

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > most:
                raise HTTPException(413, f"a request may have at most {most} bytes")
            return message

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, noting)
        except Exception:
            number = secrets.token_hex(4)
            _log.exception("%s %s failed (%s)", scope["method"], scope["path"], number)
            if not begun:
                reason = f"this failed; the log has it as {number}"
                await self._answer(scope, receive, send, 500, reason)

    def _refused(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Status and reason, if the request goes no further."""
        client = (scope.get("client") or ("?", 0))[0]
        if self._hosts is not None and _host_of(headers.get("host", "")) not in self._hosts:
            return 403, "this server does not answer to that name: see limen serve --allow-host"
        if self._settings.limits.rate and not self._buckets.take(client):
            return 429, "too many requests: slow down"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._settings.limits.body:
            return 413, f"a request may have at most {self._settings.limits.body} bytes"
        if scope["method"] not in _SAFE_METHODS and not _same_site(headers):
            return 403, "this request comes from a page of another site"
        if self._secret is None or scope["path"].startswith(_FREE):
            return None
        if not self._wrong.has(client):
            return 429, "too many wrong tokens: wait a minute"
        if self._shown_token(headers):
            return None
        if "authorization" in headers or COOKIE in headers.get("cookie", ""):
            self._wrong.take(client)
        return 401, "a token is needed: Authorization: Bearer TOKEN"

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, status: int, reason: str
    ) -> None:
        """Refuse; a person without a token is shown where to give it."""
        request = Request(scope)
        wants_page = "text/html" in request.headers.get("accept", "")
        answer = self._make_answer(request, status, reason)
        if status == 401 and wants_page and scope["method"] == "GET":
            answer = RedirectResponse("/login", 303)
        elif status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        elif status == 429:
            answer.headers["Retry-After"] = "1"
        await answer(scope, receive, send)

    def _shown_token(self, headers: Headers) -> bool:
        assert self._secret is not None
        kind, _, shown = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and same(shown.strip().encode(), self._secret):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value.encode(), session_of(self._secret))


class Buckets:
    """A token bucket for each key; those of keys not seen for long are forgotten."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, max(burst, 1.0)
        self._left: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

    def has(self, key: str) -> bool:
        """Whether there is something to take."""
        left, since = self._left.get(key, (self._burst, 0.0))
        return left + (time.monotonic() - since) * self._rate >= 1

    def take(self, key: str) -> bool:
        enough, now = self.has(key), time.monotonic()
        left, since = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        self._left[key] = (left - 1 if enough else left, now)
        if len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return enough


def same(shown: bytes, secret: bytes) -> bool:
    """Compare in a time that does not tell where they differ, nor how long the secret is."""
    return hmac.compare_digest(hashlib.sha256(shown).digest(), hashlib.sha256(secret).digest())


def session_of(secret: bytes) -> bytes:
    """What a browser keeps instead of the token."""
    return hmac.new(secret, b"limen session", hashlib.sha256).hexdigest().encode()


def _host_of(value: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{value}").hostname or "").lower()
    except ValueError:
        return ""


def _same_site(headers: Headers) -> bool:
    """Browsers say where a request comes from; other programs say nothing."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:
        return False


def _with_headers(send: Send, path: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if not path.startswith(("/static/", "/media/")):
                headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
