"""search_eta and eta_curve: by hand, against brute force, and on input that makes no sense."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limen import cost, eta_curve, known_rate, search_eta
from limen._intervals import _SMALL
from limen.objectives import resolve_objective

OBJECTIVES = [
    "gmean",
    "total",
    "pooled",
    "f1",
    known_rate(0.9),
    cost(miss=5, false_alarm=1, novel_share=0.1),
    lambda known, novel: novel - 2 * abs(known - 0.5),  # not monotone
]

coarse = st.integers(-3, 3).map(float)  # many ties
fine = st.floats(-1e6, 1e6)
wild = st.one_of(coarse, st.floats(allow_nan=False), st.sampled_from([np.inf, -np.inf]))


def scores(values):
    return st.lists(values, min_size=1, max_size=12)


def accuracies(known, novel, cut, known_weight=None, novel_weight=None):
    known_accuracy = np.average(np.asarray(known) < cut, weights=known_weight)
    novel_accuracy = np.average(np.asarray(novel) >= cut, weights=novel_weight)
    return np.array([known_accuracy]), np.array([novel_accuracy])


def value_of(objective, known, novel, cut, known_weight=None, novel_weight=None):
    k, n = accuracies(known, novel, cut, known_weight, novel_weight)
    known_total = len(known) if known_weight is None else np.sum(known_weight)
    novel_total = len(novel) if novel_weight is None else np.sum(novel_weight)
    share = novel_total / (known_total + novel_total)
    if objective == "gmean":
        value = np.sqrt(k * n)
    elif objective == "total":
        value = (k + n) / 2
    elif objective == "pooled":
        value = (1 - share) * k + share * n
    elif objective == "f1":
        caught, wrong = share * n, (1 - share) * (1 - k)
        value = 2 * caught / (caught + wrong + share)
    elif callable(objective):
        value = objective(k, n)
    else:
        value = objective.function(share)(k, n)
    return float(value[0])


def every_cut(known, novel):
    finite = sorted({s for s in [*known, *novel] if abs(s) < np.finfo(float).max})
    return [*finite, np.nextafter(finite[-1], np.inf)] if finite else [0.0]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: getattr(o, "name", str(o)[:10]))
@given(known=scores(wild), novel=scores(wild))
def test_brute_force_over_all_cuts_never_beats_the_search(objective, known, novel):
    choice = search_eta(known, novel, objective)
    best = max(value_of(objective, known, novel, cut) for cut in every_cut(known, novel))
    assert choice.value == pytest.approx(best, abs=1e-12)
    assert value_of(objective, known, novel, choice.eta) == pytest.approx(best, abs=1e-12)
    assert np.isfinite(choice.eta)
    assert choice.interval[0] < choice.eta <= choice.interval[1]
    known_accuracy, novel_accuracy = accuracies(known, novel, choice.eta)
    assert choice.known_accuracy == known_accuracy[0]
    assert choice.novel_accuracy == pytest.approx(novel_accuracy[0], abs=1e-15)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: getattr(o, "name", str(o)[:10]))
@given(data=st.data(), known=scores(coarse), novel=scores(coarse))
def test_brute_force_never_beats_the_weighted_search(objective, data, known, novel):
    weights = [
        data.draw(
            st.lists(
                st.sampled_from([0.0, 0.1, 1.0, 2.5]), min_size=len(s), max_size=len(s)
            ).filter(any)
        )
        for s in (known, novel)
    ]
    choice = search_eta(known, novel, objective, known_weight=weights[0], novel_weight=weights[1])
    best = max(value_of(objective, known, novel, c, *weights) for c in every_cut(known, novel))
    assert choice.value == pytest.approx(best, abs=1e-9)
    assert value_of(objective, known, novel, choice.eta, *weights) == pytest.approx(best, abs=1e-9)


@given(data=st.data(), known=scores(coarse), novel=scores(coarse))
def test_a_whole_weight_counts_like_repeating_the_point(data, known, novel):
    repeats = data.draw(st.lists(st.integers(0, 3), min_size=len(known), max_size=len(known)))
    if not any(repeats):
        repeats[0] = 1
    weighted = search_eta(known, novel, known_weight=repeats)
    repeated = search_eta(np.repeat(known, repeats), novel)
    assert weighted.eta == repeated.eta
    assert weighted.value == pytest.approx(repeated.value)


@given(data=st.data(), known=scores(fine), novel=scores(fine))
def test_the_order_of_scores_does_not_matter(data, known, novel):
    shuffled = search_eta(data.draw(st.permutations(known)), data.draw(st.permutations(novel)))
    assert shuffled == search_eta(known, novel)


@given(
    known=scores(coarse),
    novel=scores(coarse),
    scale=st.sampled_from([0.25, 2.0, 1024.0]),
    shift=st.integers(-100, 100),
)
def test_shifting_and_scaling_the_scores_moves_the_cut_alike(known, novel, scale, shift):
    plain = search_eta(known, novel)
    moved = search_eta(scale * np.array(known) + shift, scale * np.array(novel) + shift)
    assert moved.value == plain.value
    assert moved.eta == pytest.approx(scale * plain.eta + shift, abs=1e-9)


BY_HAND = [
    # known, novel, objective, eta, value, known accuracy, novel accuracy, interval
    ([1, 2], [5, 6], "gmean", 3.5, 1.0, 1.0, 1.0, (2, 5)),
    ([1, 3], [2, 4], "total", 1.5, 0.75, 0.5, 1.0, (1, 2)),  # ties with (3, 4]: the lower
    ([1, 3], [2, 5], "total", 4.0, 0.75, 1.0, 0.5, (3, 5)),  # the wider of the two
    ([1, 2, 3, 4], [2.5], "pooled", np.nextafter(4, 5), 0.8, 1.0, 0.0, (4, np.inf)),
    ([1, 1, 1], [1], "gmean", np.nextafter(1, 2), 0.0, 1.0, 0.0, (1, np.inf)),  # nothing to tell
    ([2], [1], "total", np.nextafter(2, 3), 0.5, 1.0, 0.0, (2, np.inf)),  # upside down
    ([5, 6, 7], [1, 2, 3], "gmean", np.nextafter(7, 8), 0.0, 1.0, 0.0, (7, np.inf)),
    ([3], [1, 2], "pooled", 1.0, 2 / 3, 0.0, 1.0, (-np.inf, 1)),  # call all novel
    ([1, 2, 3, 4], [3.5, 8], known_rate(1.0), 6.0, 0.5, 1.0, 0.5, (4, 8)),
    ([1, np.inf], [2, 3], "gmean", 1.5, 0.5**0.5, 0.5, 1.0, (1, 2)),
    ([np.inf], [np.inf], "total", 0.0, 0.5, 0.0, 1.0, (-np.inf, np.inf)),
    ([-np.inf, 1], [2], "total", 1.5, 1.0, 1.0, 1.0, (1, 2)),
]


@pytest.mark.parametrize(
    ("known", "novel", "objective", "eta", "value", "known_accuracy", "novel_accuracy", "interval"),
    BY_HAND,
)
def test_cases_worked_out_by_hand(
    known, novel, objective, eta, value, known_accuracy, novel_accuracy, interval
):
    choice = search_eta(known, novel, objective)
    assert choice.eta == eta
    assert choice.value == pytest.approx(value)
    assert (choice.known_accuracy, choice.novel_accuracy) == (known_accuracy, novel_accuracy)
    assert choice.interval == interval


def test_f1_by_hand():
    # Cut at 1.5: all three novel caught, one known flagged: 2 * 3 / (3 + 1 + 3).
    assert search_eta([1, 4], [2, 3, 5], "f1").value == pytest.approx(6 / 7)
    # Cut at 4.5: two of three caught, none flagged: 2 * 2 / (2 + 0 + 3); at 1.5 only 6 / 9.
    assert search_eta([1, 4, 4, 4], [2, 5, 5], "f1").value == pytest.approx(0.8)


def test_known_rate_that_no_cut_keeps_says_by_how_much_it_is_missed():
    choice = search_eta([1, np.inf], [0, 2], known_rate(0.9))
    assert choice.value == pytest.approx(0.5 - 0.9)
    assert choice.known_accuracy == 0.5


def test_mathematically_equal_values_tie_whatever_their_rounding():
    # Cuts at 1/4 x 1 and 3/4 x 1/3: both 0.25 on paper. The second interval is wider.
    known = [0, 2, 2, 7]
    novel = [1, 1, 5]
    choice = search_eta(known, novel, lambda k, n: k * n)
    assert choice.interval == (2, 5)


def test_neighbouring_floats_leave_no_middle_but_the_cut_still_separates():
    low = 1.0
    high = np.nextafter(low, 2)
    choice = search_eta([low], [high])
    assert choice.eta == high
    assert choice.value == 1.0


def test_single_precision_scores_give_a_cut_that_holds_in_single_precision():
    low = np.float32(1)
    known = np.array([low], np.float32)
    novel = np.array([np.nextafter(low, np.float32(2))])
    choice = search_eta(known, novel)
    assert np.float32(choice.eta) == choice.eta
    assert (known < choice.eta).all()
    assert (novel >= choice.eta).all()


@pytest.mark.parametrize("objective", OBJECTIVES[:6], ids=lambda o: getattr(o, "name", o))
@pytest.mark.parametrize(
    "kind",
    [
        "smooth",
        "ties",
        "outliers",
        "single",
        "weights",
        "infinite",
        "heavy",
        "same",
        "heavy weights",
    ],
)
def test_skipping_bins_changes_nothing(objective, kind):
    rng = np.random.default_rng(7)
    known, novel = rng.normal(size=_SMALL), rng.normal(1.5, 2, size=_SMALL // 2)
    weights = {}
    if kind == "ties":
        known, novel = known.round(2), novel.round(2)
    elif kind == "outliers":
        known[:3], novel[:2] = 1e300, -1e300
    elif kind == "single":
        known, novel = known.astype(np.float32), novel.astype(np.float32)
    elif kind.startswith("heavy"):
        known, novel = np.exp(9 * known), np.exp(9 * novel)
    elif kind == "same":
        novel = rng.normal(size=novel.size)
    if kind.endswith("weights"):
        weights = {"known_weight": rng.random(known.size), "novel_weight": rng.random(novel.size)}
    elif kind == "infinite":
        known[:100], novel[:50] = np.inf, -np.inf
    share = novel.size / (known.size + novel.size)
    if weights:
        share = weights["novel_weight"].sum() / sum(w.sum() for w in weights.values())
    sorted_whole = resolve_objective(objective).function(share)  # a plain function: all is sorted
    skipped = search_eta(known, novel, objective, **weights)
    whole = search_eta(known, novel, sorted_whole, **weights)
    assert skipped.interval == whole.interval
    assert skipped.value == pytest.approx(whole.value, rel=1e-12)


def test_range_too_wide_to_bin_is_still_searched():
    rng = np.random.default_rng(0)
    known = np.append(rng.normal(size=_SMALL), [-1.7e308, 1.7e308])
    choice = search_eta(known, [5.0, 6.0])
    assert choice.novel_accuracy == 1.0
    assert 4 < choice.eta <= 5.0


BAD = [
    ({"known": [], "novel": [1]}, "known is empty.*got 0"),
    ({"known": [1], "novel": []}, "novel is empty.*got 0"),
    ({"known": [1, np.nan, np.nan], "novel": [1]}, "known holds 2 NaN among 3"),
    ({"known": [1], "novel": [[1, 2]]}, r"novel must be one-dimensional.*\(1, 2\)"),
    ({"known": 3.0, "novel": [1]}, "known must be one-dimensional"),
    ({"known": ["a"], "novel": [1]}, "known must hold real numbers"),
    ({"known": [1j], "novel": [1]}, "known must hold real numbers"),
    (
        {"known": [1], "novel": [1], "known_weight": [-1]},
        "known_weight.*not negative, got 1 that are not",
    ),
    ({"known": [1], "novel": [1], "novel_weight": [np.nan]}, "novel_weight.*got 1"),
    ({"known": [1], "novel": [1], "novel_weight": [1, 2]}, r"novel_weight.*\(1,\), got \(2,\)"),
    ({"known": [1], "novel": [1], "novel_weight": [0]}, "novel_weight sums to 0"),
    ({"known": [1], "novel": [1], "objective": "gmeen"}, "Did you mean 'gmean'"),
    ({"known": [1], "novel": [1], "objective": "cost"}, r"pass limen\.cost"),
    ({"known": [1], "novel": [1], "objective": lambda k, n: 1.0}, "one value per cut"),  # noqa: ARG005
    ({"known": [1], "novel": [1], "objective": lambda k, n: k * np.nan}, "objective.*NaN"),  # noqa: ARG005
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_names_the_argument_and_what_came(arguments, message):
    with pytest.raises(ValueError, match=message):
        search_eta(**arguments)


def test_objective_of_the_wrong_type():
    with pytest.raises(TypeError, match="objective must be a name"):
        search_eta([1], [2], objective=3)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: known_rate(1.5), "share must be .* between 0 and 1, got 1.5"),
        (lambda: known_rate(float("nan")), "share"),
        (lambda: cost(miss=-1, false_alarm=1, novel_share=0.5), "miss must be .* at least 0"),
        (lambda: cost(miss=1, false_alarm=1, novel_share=2), "novel_share"),
    ],
)
def test_objective_settings_are_checked(factory, message):
    with pytest.raises(ValueError, match=message):
        factory()


def test_curve_holds_every_cut_and_both_ends():
    curve = eta_curve(known=[1.0, 2.0, 2.0], novel=[2.0, 3.0])
    assert curve.known_accuracy.tolist() == pytest.approx([0, 1 / 3, 1, 1])
    assert curve.novel_accuracy.tolist() == [1, 1, 0.5, 0]
    assert curve.eta.tolist() == [1, 1.5, 2.5, np.nextafter(3, 4)]


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 200_000))
def test_curve_is_thinned_and_keeps_its_ends(size):
    rng = np.random.default_rng(size)
    curve = eta_curve(rng.normal(size=size), rng.normal(size=size))
    assert len(curve.eta) == min(2 * size + 1, 2000)
    assert (curve.known_accuracy[0], curve.novel_accuracy[0]) == (0, 1)
    assert (curve.known_accuracy[-1], curve.novel_accuracy[-1]) == (1, 0)
    assert (np.diff(curve.eta) >= 0).all()
    assert (np.diff(curve.known_accuracy) >= 0).all()
    assert (np.diff(curve.novel_accuracy) <= 0).all()
