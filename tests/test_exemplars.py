"""Which few points of a class are kept."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen.exemplars import STRATEGIES, pick

CLOUDS = st.integers(0, 10_000).map(
    lambda seed: np.random.default_rng(seed).normal(size=(9, 2)).astype(np.float32)
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(points=CLOUDS)
def test_fewer_are_the_first_of_more(strategy, points):
    picked = [pick(points, size, strategy, rng=np.random.default_rng(1)) for size in range(1, 12)]
    assert sorted(picked[-1].tolist()) == list(range(9))  # all there are, each once
    for size, positions in enumerate(picked[:9], start=1):
        np.testing.assert_array_equal(positions, picked[-1][:size])


@given(points=CLOUDS)
def test_herding_takes_the_point_that_brings_the_mean_closest(points):
    picked = pick(points, 4, "herding", rng=np.random.default_rng(0)).tolist()
    goal = points.astype(float).mean(axis=0)
    for size in range(4):
        others = [i for i in range(9) if i not in picked[:size]]

        def miss(i, chosen=picked[:size]):
            return np.linalg.norm(points[[*chosen, i]].astype(float).mean(axis=0) - goal)

        assert miss(picked[size]) == pytest.approx(min(miss(i) for i in others), abs=1e-9)


@given(points=CLOUDS)
def test_k_centre_is_within_twice_the_best_cover(points):
    def radius(centres):
        apart = np.linalg.norm(points[:, None] - points[list(centres)][None], axis=2)
        return apart.min(axis=1).max()

    best = min(radius(centres) for centres in itertools.combinations(range(9), 3))
    assert radius(pick(points, 3, "k-centre", rng=np.random.default_rng(0))) <= 2 * best + 1e-6


def test_a_reservoir_gives_every_point_the_same_chance():
    rng, points = np.random.default_rng(0), np.zeros((10, 1))
    counts = np.bincount(
        np.concatenate([pick(points, 3, "reservoir", rng=rng) for _ in range(4000)])
    )
    assert np.abs(counts - 1200).max() < 5 * np.sqrt(4000 * 0.3 * 0.7)


def test_an_unknown_strategy_gets_a_hint():
    with pytest.raises(ValueError, match="Did you mean 'herding'"):
        pick(np.zeros((3, 1)), 2, "hearding", rng=np.random.default_rng(0))
