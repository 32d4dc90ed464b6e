"""Data shared by the tests: three blobs to know, and others to be surprised by."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# Machines are noisy: how long an example takes says nothing.
settings.register_profile("limen", deadline=None)
settings.load_profile("limen")

# A shell without job control starts what runs in its background deaf to interrupts, and what that
# starts is deaf too: programs under test are to hear them.
signal.signal(signal.SIGINT, signal.default_int_handler)

CENTRES = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [5, 20]], dtype=float)


def blobs(classes, n=40, seed=0, features=4):
    """Points around far-apart centres, `n` of each of these classes, in random order."""
    rng = np.random.default_rng(seed)
    y = np.repeat(classes, n)
    X = rng.normal(size=(len(y), features))
    X[:, :2] += CENTRES[y]
    order = rng.permutation(len(y))
    return X[order], y[order]


@pytest.fixture
def known():
    return blobs([0, 1, 2])


@pytest.fixture
def novel():
    return blobs([3])[0]


@pytest.fixture(scope="session")
def browser():
    """A real Chromium. Without one the test is skipped, unless LIMEN_BROWSER says it must run."""
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None:
        if os.environ.get("LIMEN_BROWSER") == "required":
            pytest.fail("no Chromium was found: apt-get install chromium")
        pytest.skip("no Chromium was found: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    quiet = ("background-networking", "component-update", "sync", "quic", "gpu")
    flags = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def digits_model(tmp_path_factory):
    """A model of the digits 0 to 6, as the demo makes it; copy it before changing it."""
    from limen.web.demo import make_model

    path = tmp_path_factory.mktemp("model") / "digits.limen"
    make_model(path)
    return path


@pytest.fixture
def model_copy(digits_model, tmp_path):
    return Path(shutil.copytree(digits_model, tmp_path / "digits.limen"))


@contextlib.contextmanager
def serving(*words, wait=60):
    """A real `limen serve`; gives its process and address. Whatever happens, it is ended."""
    command = [sys.executable, "-m", "limen", "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"{line!r} {process.stderr.read()}"
        end = time.monotonic() + wait
        while time.monotonic() < end:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", int(found[1]))),
            ):
                break
            time.sleep(0.05)
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()
