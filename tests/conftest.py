"""Data shared by the tests: three blobs to know, and others to be surprised by."""

import numpy as np
import pytest

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
