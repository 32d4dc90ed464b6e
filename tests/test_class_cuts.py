"""A cut for every class."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen.class_cuts import class_cuts
from limen.selection import SHIFTS, Evidence, combine

SCORES = st.lists(st.floats(-3, 6), min_size=3, max_size=12)
BOTH = ("lonely", "crowded")


def worth(cuts, pieces, known, labels, classes):
    """What cuts are worth, straight from the formula."""
    own = dict(zip(classes, cuts, strict=True))
    kept = 0.0
    for c in classes:
        mine = known[labels == c]
        kept += len(mine) * (sum(mine < own[c]) + 10 * np.mean(known < own[c])) / (len(mine) + 10)
    kept /= len(known)

    def caught(piece, where):
        moved = [
            np.mean([z + s >= own[c] for z, c in zip(piece.strangeness, where, strict=True)])
            for s in SHIFTS
        ]
        return np.mean(moved)

    total = 0.0
    for piece in pieces:
        then = np.array([c in piece.known_then for c in classes])
        total += then.mean() * np.sqrt(kept * caught(piece, piece.won))
        elsewhere = [np.sqrt(kept * caught(piece, [c] * len(piece.won))) for c in classes]
        total += np.mean((2.0 - then) * elsewhere)
    return total


@given(st.lists(SCORES, min_size=2, max_size=3), SCORES, SCORES, st.randoms())
def test_no_class_would_gain_by_another_cut(novel, of_a, of_b, random):
    known, labels = np.array(of_a + of_b), np.repeat(["a", "b"], [len(of_a), len(of_b)])
    pieces = [
        Evidence.of(known, points, won=[random.choice(then) for _ in points], known_then=then)
        for points, then in zip(novel, ("ab", "a", "ab"), strict=False)
    ]
    pieces = [piece for piece in pieces if piece.informative] or pieces
    cuts = class_cuts(pieces, known, labels, ["a", "b"])
    tried = np.unique(np.concatenate([known, *(piece.cuts for piece in pieces)]))
    if not any(piece.informative for piece in pieces):
        assert np.array_equal(cuts, np.full(2, combine(pieces, "robust")))
        return
    best = worth(cuts, pieces, known, labels, ["a", "b"])
    for place, cut in product(range(2), tried):
        other = cuts.copy()
        other[place] = cut
        assert worth(other, pieces, known, labels, ["a", "b"]) <= best + 1e-9


def test_a_crowded_class_is_strict_and_a_lonely_one_is_not():
    rng = np.random.default_rng(0)
    known, labels = rng.normal(size=400), np.repeat(["lonely", "crowded"], 200)
    near = Evidence.of(known, rng.normal(0.8, 1, 200), won=["crowded"] * 200, known_then=BOTH)
    far = Evidence.of(known, rng.normal(5, 1, 200), won=["lonely"] * 200, known_then=BOTH)
    lonely, crowded = class_cuts([near, far], known, labels, ["lonely", "crowded"])
    one = combine([near, far], "robust")
    assert crowded < one < lonely


def test_evidence_that_lands_nowhere_in_particular_treats_like_classes_alike():
    rng = np.random.default_rng(0)
    half = rng.normal(size=100)
    known, labels = np.tile(half, 2), np.repeat([3, 5], 100)
    a, b = class_cuts([Evidence.of(known, rng.normal(3, 1, 100))], known, labels, [3, 5])
    assert a == pytest.approx(b, abs=0.3)


def test_a_class_that_joined_later_is_not_taken_to_be_safe():
    """All that was met landed on a, near by, when b was not known: b is as strict as a."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=200)
    known, labels = np.tile(half, 2), np.repeat(["a", "b"], 200)
    near = rng.normal(1.5, 1, 200)
    alone = Evidence.of(half, near, won=["a"] * 200, known_then=["a"])
    together = Evidence.of(known, near, won=["a"] * 200, known_then=["a", "b"])
    a, b = class_cuts([alone], known, labels, ["a", "b"])
    _, safe = class_cuts([together], known, labels, ["a", "b"])
    assert b < safe
    assert abs(a - b) < safe - b


def test_points_of_a_wrong_class_count_as_lost_at_every_cut():
    known = [0.0, 1.0, np.inf, 0.0, 1.0, 2.0]
    labels, novel = [0, 0, 0, 1, 1, 1], [4.0, 5.0, 6.0]
    cuts = class_cuts([Evidence.of(known, novel, won=[0, 0, 1])], known, labels, [0, 1])
    assert np.isfinite(cuts).all()


def test_no_evidence_is_an_error():
    with pytest.raises(ValueError, match="at least 1 class"):
        class_cuts([], [0.0], [0], [0])
