"""ContinualEta: how evidence moves the cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen import ContinualEta

etas = st.lists(st.floats(-10, 10), min_size=1, max_size=6)


def test_halving_by_hand():
    eta = ContinualEta("halving").start([1.0, 2.0, 3.0])
    assert eta.value == 2
    assert eta.update(1.0).value == 1.5
    assert eta.update(0.5).value == 1.0


def test_mean_by_hand():
    eta = ContinualEta("mean").start([1.0, 2.0, 3.0])
    assert eta.update(6.0).value == 3.0
    assert eta.update(3.0).value == 3.0


@given(folds=etas, discoveries=etas)
def test_both_rules_stay_within_the_evidence(folds, discoveries):
    for rule in ("halving", "mean"):
        eta = ContinualEta(rule).start(folds)
        for discovery in discoveries:
            eta.update(discovery)
        evidence = folds + discoveries
        assert min(evidence) - 1e-9 <= eta.value <= max(evidence) + 1e-9


def test_history_says_where_each_piece_came_from():
    eta = ContinualEta().start({"cat": 1.0, "dog": 2.0}).update(0.5, label="zebra")
    assert [(e.source, e.label, e.eta, e.value) for e in eta.history] == [
        ("held out", "cat", 1.0, 1.5),
        ("held out", "dog", 2.0, 1.5),
        ("discovered", "zebra", 0.5, 1.0),
    ]


@given(folds=etas, discoveries=etas)
def test_json_round_trip_goes_on_exactly_where_it_was(folds, discoveries):
    eta = ContinualEta("mean").start(folds)
    for discovery in discoveries:
        eta.update(discovery)
    again = ContinualEta.from_json(json.dumps(json.loads(eta.to_json())))
    assert again.history == eta.history
    assert again.update(1.25).value == eta.update(1.25).value


def test_starting_anew_forgets():
    eta = ContinualEta().start([5.0]).update(7.0)
    assert eta.start([1.0]).value == 1.0
    assert len(eta.history) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ContinualEta("halvin"), "Did you mean 'halving'"),
        (lambda: ContinualEta().value, "call start"),
        (lambda: ContinualEta().update(1.0), "call start"),
        (lambda: ContinualEta().start([]), "fold_etas is empty"),
        (lambda: ContinualEta().start([float("nan")]), "fold_etas must be finite"),
        (lambda: ContinualEta().start([1.0]).update(float("inf")), "eta must be finite"),
        (lambda: ContinualEta.from_json("{}"), "not a stored ContinualEta"),
        (lambda: ContinualEta.from_json("nonsense"), "not a stored ContinualEta"),
    ],
)
def test_bad_input_says_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
