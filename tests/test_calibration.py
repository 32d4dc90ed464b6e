"""ClassStatistics: what is usual for a class, and what happens where nothing says."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from limen import ClassStatistics, DegenerateClassWarning


def separable(rng, n, classes=3, offset=0.0, spread=1.0):
    """Similarities whose argmax is nearly always the true class."""
    y = np.arange(n) % classes
    similarity = offset + spread * rng.normal(size=(n, classes))
    similarity[np.arange(n), y] += 4 * spread
    return similarity, y


def test_only_correctly_classified_points_count():
    similarity = np.array([[5.0, 1.0], [7.0, 1.0], [0.0, 100.0], [2.0, 3.0], [0.0, 9.0]])
    stats = ClassStatistics.from_scores(similarity, [0, 0, 0, 1, 1])  # the third is wrong
    assert stats.count.tolist() == [2, 2]
    assert stats.mean.tolist() == [6, 6]
    assert stats.std.tolist() == [1, 3]
    assert stats.thresholds(2.0).tolist() == [4, 0]
    # winner 0 with score 3: (6 - 3) / 1; winner 1 with score 9: (6 - 9) / 3
    assert stats.strangeness([[3.0, 2.0], [8.0, 9.0]]).tolist() == [3, -1]


@given(
    similarity=hnp.arrays(float, (24, 3), elements=st.floats(-100, 100)),
    eta=st.floats(-3, 3),
)
def test_known_means_the_best_similarity_exceeds_that_class_threshold(similarity, eta):
    rng = np.random.default_rng(0)
    stats = ClassStatistics.from_scores(*separable(rng, 60))
    strangeness = stats.strangeness(similarity)
    winner = similarity.argmax(axis=1)
    margin = similarity.max(axis=1) - stats.thresholds(eta)[winner]
    clear = np.abs(margin) > 1e-9
    assert ((strangeness < eta) == (margin > 0))[clear].all()


@pytest.mark.parametrize(("offset", "spread"), [(0, 1), (1e8, 1e-2), (-1e9, 1.0)])
@given(seed=st.integers(0, 1000), cut=st.integers(0, 90))
def test_merging_equals_computing_at_once(offset, spread, seed, cut):
    similarity, y = separable(np.random.default_rng(seed), 90, offset=offset, spread=spread)
    at_once = ClassStatistics([0, 1, 2]).update(similarity, y)
    parts = [
        ClassStatistics([0, 1, 2]).update(similarity[part], y[part])
        for part in (slice(cut), slice(cut, None))
    ]
    merged = parts[0].merge(parts[1])
    updated = ClassStatistics([0, 1, 2])
    updated.update(similarity[:cut], y[:cut])
    updated.update(similarity[cut:], y[cut:])
    for other in (merged, updated):
        assert other.count.tolist() == at_once.count.tolist()
        np.testing.assert_allclose(other.mean, at_once.mean, rtol=1e-12)
        np.testing.assert_allclose(other.std, at_once.std, rtol=1e-9)


def test_moments_agree_with_numpy_on_a_large_mean_with_a_small_spread():
    similarity, y = separable(np.random.default_rng(3), 3000, offset=1e6, spread=1e-3)
    stats = ClassStatistics.from_scores(similarity, y)
    for c in range(3):
        own = similarity[(y == c) & (similarity.argmax(axis=1) == c), c]
        assert stats.mean[c] == pytest.approx(own.mean(), rel=1e-15)
        assert stats.std[c] == pytest.approx(own.std(), rel=1e-9)


def test_no_correct_point_makes_everything_that_class_wins_novel():
    similarity = [[5.0, 1.0], [7.0, 1.0], [5.0, 0.0]]
    with pytest.warns(DegenerateClassWarning, match="class 1 has no correctly classified point"):
        stats = ClassStatistics.from_scores(similarity, [0, 0, 1])
    assert stats.mean[1] == np.inf
    assert stats.thresholds(1.0)[1] == np.inf
    assert stats.strangeness([[0.0, 1000.0], [6.0, 0.0]]).tolist() == [np.inf, 0]


def test_a_single_point_borrows_the_spread_of_the_others():
    with pytest.warns(DegenerateClassWarning, match="class 1 has one correctly"):
        stats = ClassStatistics.from_scores([[4.0, 0.0], [8.0, 0.0], [0.0, 5.0]], [0, 0, 1])
    assert stats.std.tolist() == [2, 2]


def test_equal_scores_borrow_and_with_nobody_to_borrow_from_use_one():
    similarity = [[0.1, 0.0]] * 7 + [[0.0, 0.3]] * 7
    with pytest.warns(DegenerateClassWarning, match="no spread"):
        stats = ClassStatistics.from_scores(similarity, [0] * 7 + [1] * 7)
    assert stats.std.tolist() == [1, 1]


def test_merging_parts_that_lack_a_class_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = ClassStatistics(["a", "b"]).update([[3.0, 0.0], [5.0, 0.0]], ["a", "a"])
        two = ClassStatistics(["a", "b"]).update([[0.0, 2.0], [0.0, 6.0]], ["b", "b"])
        assert one.merge(two).mean.tolist() == [4, 4]
        assert one.mean.tolist() == [4, np.inf]  # merge leaves its parts alone


def test_add_class_appends_a_column():
    stats = ClassStatistics.from_scores(
        [[4.0, 0.0], [8.0, 0.0], [0.0, 1.0], [0.0, 3.0]], list("aabb")
    )
    stats.add_class("zebra", [10.0, 14.0])
    assert stats.classes.tolist() == ["a", "b", "zebra"]
    assert stats.mean.tolist() == [6, 2, 12]
    assert stats.strangeness([[0.0, 0.0, 8.0]]).tolist() == [2]


def test_columns_are_the_sorted_labels_unless_classes_says_otherwise():
    similarity = [[5.0, 1.0], [6.0, 1.0], [1.0, 5.0], [1.0, 8.0]]
    assert ClassStatistics.from_scores(similarity, [7, 7, 9, 9]).classes.tolist() == [7, 9]
    swapped = ClassStatistics.from_scores(similarity, [9, 9, 7, 7], classes=[9, 7])
    assert swapped.mean.tolist() == [5.5, 6.5]
    with pytest.warns(DegenerateClassWarning):
        partial = ClassStatistics.from_scores(similarity[:2], [0, 0])
    assert partial.classes.tolist() == [0, 1]


def test_round_trip_through_plain_values():
    stats = ClassStatistics.from_scores(*separable(np.random.default_rng(0), 30))
    again = ClassStatistics.from_dict(stats.to_dict())
    assert again.std.tolist() == stats.std.tolist()
    assert again.mean.tolist() == stats.mean.tolist()


GOOD = [[5.0, 1.0], [1.0, 5.0]]
BAD = [
    (lambda: ClassStatistics.from_scores([1.0, 2.0], [0, 1]), r"shape \(n, C\), got \(2,\)"),
    (lambda: ClassStatistics.from_scores([[np.nan, 1.0]], [0]), "holds 1 NaN among 2"),
    (lambda: ClassStatistics.from_scores(GOOD, [0]), r"y must have shape \(2,\), got \(1,\)"),
    (lambda: ClassStatistics.from_scores(GOOD, [0, 5], classes=[0, 1]), "not among.*5"),
    (lambda: ClassStatistics.from_scores([[np.inf, 1.0]], [0]), "finite .* got 1 infinite"),
    (lambda: ClassStatistics([1, 1]), "distinct"),
    (lambda: ClassStatistics([0, 1]).strangeness([[1.0, 2.0, 3.0]]), "one column per class, 2"),
    (lambda: ClassStatistics([0, 1]).merge(ClassStatistics([1, 0])), "same classes"),
    (lambda: ClassStatistics([0, 1]).add_class(1), "exists already"),
    (lambda: ClassStatistics([0, 1]).add_class(2, [[1.0]]), "1-D"),
    (lambda: ClassStatistics([0, 1]).add_class("zebra"), "label must be one label of the kind"),
    (lambda: ClassStatistics([0, 1]).add_class([3, 4]), "label must be one label"),
    (
        lambda: ClassStatistics.from_dict(
            {"classes": [0, 1], "count": [1], "anchor": [1], "offset": [1], "squares": [1]}
        ),
        "one value per class",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_says_what_was_needed(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- carried on by a few points


def test_what_is_usual_moves_as_the_kept_points_do():
    usual = ClassStatistics.from_moments([0, 1], [100, 100], [10.0, 5.0], [2.0, 1.0])
    before = ClassStatistics.from_moments([0, 1], [5, 5], [9.0, 5.0], [1.0, 1.0])
    after = ClassStatistics.from_moments([0, 1, 2], [5, 5, 50], [12.0, 4.0, 7.0], [3.0, 0.5, 1.5])
    carried = usual.carried(before, after)
    np.testing.assert_allclose(carried.mean, [13, 4, 7])
    np.testing.assert_allclose(carried.std, [6, 0.5, 1.5])
    assert carried.classes.tolist() == [0, 1, 2]
    assert carried.count.tolist() == [100, 100, 50]


def test_a_class_forgotten_or_never_judged_is_taken_as_it_is_now():
    usual = ClassStatistics.from_moments([0, 1], [100, 0], [10.0, 0.0], [2.0, 0.0])
    kept = ClassStatistics.from_moments([0, 1], [5, 0], [9.0, 0.0], [1.0, 0.0])
    after = ClassStatistics.from_moments([0, 1], [0, 4], [0.0, 3.0], [0.0, 0.5])
    carried = usual.carried(kept, after)
    assert carried.mean.tolist() == [np.inf, 3]
    assert carried.count.tolist() == [0, 4]


def test_where_all_points_are_kept_nothing_is_lost():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    old, new = (rng.normal(size=(100, 2)) + k * np.eye(2)[y] for k in (4, 6))
    statistics = ClassStatistics.from_scores(old, y)
    carried = statistics.carried(statistics, ClassStatistics.from_scores(new, y))
    np.testing.assert_allclose(carried.mean, ClassStatistics.from_scores(new, y).mean)
    np.testing.assert_allclose(carried.std, ClassStatistics.from_scores(new, y).std)
