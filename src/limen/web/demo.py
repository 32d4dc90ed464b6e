"""A digits model that has never seen some digits, and a feed that sends both kinds."""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limen.app.models import Settings, fit, save
from limen.web.uploads import png

_log = logging.getLogger("limen.web")
KNOWN = (0, 1, 2, 3, 4, 5, 6)
_EVERY = 1.2  # seconds
_SENT = 4  # pictures at a time


def make_model(path: Path) -> None:
    """Fit a model to the known digits and put it at `path`."""
    X, y = _digits()
    old = np.isin(y, KNOWN) & (np.arange(len(y)) % 2 == 0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "digits.npz"
        np.savez(data, X=X[old], y=y[old].astype(str))
        model = fit(data, Settings(model="SVC", jobs=1))
    save(model, path, "fitted to seven digits")


def stream(seed: int = 0) -> Iterator[list[bytes]]:
    """Batches of pictures for ever: digits the model knows, and more and more of one it does not.

    Each novel digit has its time, then the next one comes.
    """
    X, y = _digits()
    fresh = np.arange(len(y)) % 2 == 1  # never fitted on
    rng = np.random.default_rng(seed)
    novel = [digit for digit in range(10) if digit not in KNOWN]
    for number in itertools.count():
        turn = novel[number // 30 % len(novel)]
        share = 0.0 if number < 3 else 0.6
        wanted = [turn if rng.random() < share else int(rng.choice(KNOWN)) for _ in range(_SENT)]
        rows = [int(rng.choice(np.flatnonzero(fresh & (y == digit)))) for digit in wanted]
        yield [png(X[row]) for row in rows]


@contextlib.contextmanager
def feed(address: str, token: str | None = None, every: float = _EVERY) -> Iterator[None]:
    """Send the stream to a server, as any client would, until left."""
    over = threading.Event()

    def send() -> None:
        for pictures in stream():
            if over.wait(every):
                return
            try:
                _post(f"{address}/v1/predict", pictures, token)
            except urllib.error.HTTPError as error:
                _log.warning("the feed was not taken: %s", error)
            except OSError:
                continue  # the server starts, or stops

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _post(url: str, pictures: list[bytes], token: str | None) -> None:
    edge = uuid.uuid4().hex
    parts = []
    for number, picture in enumerate(pictures):
        head = f'Content-Disposition: form-data; name="files"; filename="feed-{number}.png"'
        kind = "Content-Type: image/png"
        parts.append(f"--{edge}\r\n{head}\r\n{kind}\r\n\r\n".encode() + picture + b"\r\n")
    body = b"".join(parts) + f"--{edge}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={edge}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=10):
        pass


def _digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * 15.9375).astype(np.uint8)
    return images, digits.target
