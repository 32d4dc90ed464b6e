"""How a server is set up: what it serves, where it listens, what it keeps and what it refuses."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

_SHORTEST_TOKEN = 12


class ServerError(ValueError):
    """The server cannot be started like this; the message says why and what to do."""


@dataclass(frozen=True)
class Limits:
    """What one client may ask for.

    Attributes
    ----------
    body : int
        Bytes of a request.
    picture : int
        Bytes of one uploaded picture.
    pixels : int
        Of one uploaded picture, before it is decoded.
    inputs : int
        Pictures or rows in one request.
    rate : float
        Requests a second from one address, in the long run; 0: any number.
    """

    body: int = 32 << 20
    picture: int = 16 << 20
    pixels: int = 40_000_000
    inputs: int = 256
    rate: float = 1000.0


@dataclass(frozen=True)
class ServerSettings:
    """All settings of a server.

    Attributes
    ----------
    model : Path
        The model file. Its versions are made and used here.
    store : Path, optional
        Folder for inputs and the embedded database. Default: beside the model.
    db : str, optional
        URL of a database. Default: SQLite in `store`.
    token : str, optional
        What clients must show. Needed to listen anywhere but on this machine.
    hosts : tuple of str
        Names under which the server may be asked for, besides that of `host`.
    keep_items, keep_bytes : int
        How many inputs are kept, and how many bytes of them; the oldest go first.
    window : int
        The alarm looks at this many of the latest inputs.
    webhook : str, optional
        URL that is told when the alarm is raised.
    """

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000
    store: Path | None = None
    db: str | None = None
    token: str | None = None
    hosts: tuple[str, ...] = ()
    keep_items: int = 100_000
    keep_bytes: int = 2 << 30
    window: int = 200
    webhook: str | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def folder(self) -> Path:
        return self.store or self.model.with_name(f"{self.model.name}.server")

    @property
    def database(self) -> str:
        return self.db or f"sqlite:///{self.folder.absolute() / 'limen.sqlite'}"

    @property
    def allowed_hosts(self) -> frozenset[str] | None:
        """Names a request may ask for; None: any. Keeps other sites' pages off this machine."""
        if not is_loopback(self.host) and not self.hosts:
            return None  # a token is needed there, and a foreign page has none
        return frozenset({"localhost", "127.0.0.1", "::1", self.host.lower(), *self.hosts})

    def check(self) -> None:
        """Refuse what would be unsafe or cannot work."""
        if self.token is not None and len(self.token) < _SHORTEST_TOKEN:
            raise ServerError(f"the token must have at least {_SHORTEST_TOKEN} characters")
        if not is_loopback(self.host) and self.token is None:
            raise ServerError(
                f"{self.host} can be reached from other machines: give a --token (or LIMEN_TOKEN), "
                "or listen on 127.0.0.1"
            )
        if self.webhook is not None and not self.webhook.startswith(("http://", "https://")):
            raise ServerError(f"the webhook must be an http or https URL, got {self.webhook!r}")
        for name in ("keep_items", "keep_bytes", "window"):
            if getattr(self, name) < 1:
                raise ServerError(f"{name} must be at least 1, got {getattr(self, name)}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
