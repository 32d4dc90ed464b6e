"""Data shared by the tests: three blobs to know, and others to be surprised by."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import settings

# Machines are noisy: how long an example takes says nothing.
settings.register_profile("limen", deadline=None)
settings.load_profile("limen")

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
