"""Choosing score, rule and cut by what held-out classes have shown."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from limen import search_eta
from limen.selection import COMBINATIONS, Evidence, combine, expected_value, select

SCORES = st.lists(st.floats(-5, 5), min_size=2, max_size=40)


def pieces(*etas, discovered=()):
    """Sharp evidence: known just below each eta, novel just above."""
    return [
        Evidence.of([e - 2, e - 0.1], [e + 0.1, e + 2], discovered=i in discovered)
        for i, e in enumerate(etas)
    ]


def test_the_paper_s_rule_and_the_plain_means():
    evidence = pieces(1.0, 3.0, 5.0, 7.0, discovered=(2, 3))
    assert combine(evidence, "halving") == pytest.approx(((1 + 3) / 2 + 5) / 2 / 2 + 7 / 2)
    assert combine(evidence, "mean") == pytest.approx(4)
    assert combine([*evidence, *pieces(100.0)], "median") == pytest.approx(5)


def test_consensus_listens_to_those_who_care():
    sharp = Evidence.of(np.linspace(0, 0.99, 50), np.linspace(1.01, 2, 50))
    flat = Evidence.of(np.linspace(0, 0.5, 50), np.linspace(9.5, 10, 50))
    assert combine([sharp, flat], "mean") == pytest.approx(3.0)
    assert combine([sharp, flat], "consensus") == pytest.approx(1.0, abs=0.02)


@given(SCORES, SCORES)
def test_one_piece_gets_the_cut_it_asks_for_by_every_rule(known, novel):
    piece = Evidence.of(known, novel)
    best = search_eta(known, novel).value
    for rule in ("halving", "mean", "median"):
        assert combine([piece], rule) == piece.eta
    chosen = combine([piece], "consensus")
    at = np.sqrt(np.mean(np.array(known) < chosen) * np.mean(np.array(novel) >= chosen))
    assert at == pytest.approx(best, abs=1e-9)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=4))
@example([([0.0, 0.0], [0.0, 0.0]), ([0.0, 0.0], [0.0, 2.225073858507e-311])])
def test_consensus_is_best_for_the_pieces_together(scores):
    """Of those that have something to say, if any has."""
    evidence = [Evidence.of(known, novel) for known, novel in scores]
    evidence = [piece for piece in evidence if piece.informative] or evidence

    def together(eta):
        return np.mean([piece.value(eta, "gmean") for piece in evidence])

    best = together(combine(evidence, "consensus"))
    for cut in np.concatenate([piece.cuts for piece in evidence]):
        assert together(cut) <= best + 1e-9


def test_a_class_may_lie_nearer_than_those_met():
    piece = Evidence.of(np.linspace(0, 1, 101), np.linspace(3, 4, 101))
    assert piece.value(0.5, "total", -2.0) == pytest.approx(0.75, abs=0.01)  # from 1 to 2 now
    assert piece.value(1.5, "total", -2.0) == pytest.approx(0.75, abs=0.01)
    assert piece.value(1.5, "gmean", -2.6) == pytest.approx(0, abs=0.1)
    # Every cut from 1 to 3 is best for these points, but not for classes that may come.
    assert combine([piece], "consensus") == pytest.approx(2)
    assert 1 < combine([piece], "robust") < 1.9


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=3))
def test_robust_is_best_for_shifted_pieces_together(scores):
    """Shifts by the middles of seven equal parts of a normal distribution."""
    shifts = [NormalDist().inv_cdf((place + 0.5) / 7) for place in range(7)]
    evidence = [Evidence.of(known, novel) for known, novel in scores]
    evidence = [piece for piece in evidence if piece.informative] or evidence

    def together(eta):
        return np.mean([piece.value(eta, "gmean", s) for piece in evidence for s in shifts])

    best = together(combine(evidence, "robust"))
    for cut in np.concatenate([piece.cuts for piece in evidence]):
        assert together(cut) <= best + 1e-9


def test_a_rule_is_judged_on_the_piece_left_out():
    evidence = pieces(1.0, 1.0, 4.0)
    # Without the 4 the mean is 1; without one of the others it is 2.5.
    by_hand = np.mean(
        [
            evidence[0].value(2.5, "gmean"),
            evidence[1].value(2.5, "gmean"),
            evidence[2].value(1.0, "gmean"),
        ]
    )
    assert expected_value(evidence, "mean") == pytest.approx(by_hand)


def test_score_and_rule_are_chosen_together():
    rng = np.random.default_rng(0)
    good = [Evidence.of(rng.normal(0, 1, 300), rng.normal(4, 1, 300)) for _ in range(4)]
    bad = [Evidence.of(rng.normal(0, 1, 300), rng.normal(0.5, 1, 300)) for _ in range(4)]
    found = select({"bad": bad, "good": good})
    assert found.score == "good"
    assert found.eta == combine(good, found.rule)
    assert found.expected == max(found.table.values())
    assert len(found.table) == 2 * len(COMBINATIONS)
    assert select({"bad": bad, "good": good}, rules=["mean"]).rule == "mean"


def test_objectives_of_every_kind():
    evidence = pieces(1.0, 2.0)
    assert combine(evidence, "consensus", "pooled") == combine(evidence, "consensus", "total")
    mostly_known = combine(evidence, "consensus", lambda known, novel: known + 0.01 * novel)
    assert mostly_known >= 1.9


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="Did you mean 'median'"):
        combine(pieces(1.0), "medain")
    with pytest.raises(ValueError, match="evidence is empty"):
        combine([])
    with pytest.raises(ValueError, match="at least 1 score"):
        select({})
