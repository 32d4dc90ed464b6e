"""OpenSetClassifier: one contract for every estimator, and what happens when things go wrong."""

import copy
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from skorch import NeuralNetClassifier
from torch import nn

from conftest import CENTRES, blobs
from limen import (
    DegenerateClassWarning,
    FoldError,
    LeaveOneClassOut,
    NoveltyAlarm,
    OpenSetClassifier,
    UninformativeClassWarning,
    cost,
    known_rate,
    search_eta,
)
from limen.selection import COMBINATIONS, combine
from limen.shels import SHELSClassifier


class NearestMean(ClassifierMixin, BaseEstimator):
    """An incremental classifier that takes in new classes by partial_fit, unlike scikit-learn's."""

    def fit(self, X, y):
        self.means_ = {}
        return self.partial_fit(X, y)

    def partial_fit(self, X, y):
        self.means_ = self.means_ | {c: X[y == c].mean(axis=0) for c in np.unique(y)}
        self.classes_ = np.array(list(self.means_))
        return self

    def decision_function(self, X):
        means = np.array(list(self.means_.values()))
        return -np.linalg.norm(X[:, None] - means, axis=2)

    def predict(self, X):
        return self.classes_[self.decision_function(X).argmax(axis=1)]


class Growing(NearestMean):
    """Says itself how to add a class, and how similar an input is."""

    def add_class(self, X, label, memory):
        self.memory_seen_ = [np.asarray(part) for part in memory]
        self.partial_fit(X, np.full(len(X), label))

    def similarity(self, X, score="distance"):
        distance = -self.decision_function(X)
        return -(distance ** {"distance": 1, "squared": 2}[score])


class SkorchLike:
    """fit, predict_proba, classes_ and nothing else: no get_params, no mixin."""

    def fit(self, X, y):
        self.inner = LogisticRegression(max_iter=500).fit(X, y)
        self.classes_ = self.inner.classes_
        return self

    def predict_proba(self, X):
        return self.inner.predict_proba(X).astype(np.float32)


MODELS = [
    OpenSetClassifier(LogisticRegression(max_iter=500)),
    OpenSetClassifier(SVC()),
    OpenSetClassifier(RandomForestClassifier(n_estimators=30)),
    OpenSetClassifier(GaussianNB(var_smoothing=1e-2)),
    OpenSetClassifier(SGDClassifier()),
    OpenSetClassifier(MLPClassifier((16,), max_iter=400, solver="lbfgs")),
    OpenSetClassifier(make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))),
    OpenSetClassifier(NearestMean()),
    OpenSetClassifier(Growing()),
    OpenSetClassifier(SkorchLike()),
    OpenSetClassifier(
        SHELSClassifier(
            epochs=15, lr=1e-3, accommodation="replay", accommodation_epochs=6, threads=1
        ),
        similarity="dot",
    ),
]
# Far from all it knows a linear model is surer than ever: some held-out blobs it cannot notice.
pytestmark = pytest.mark.filterwarnings("ignore::limen.UninformativeClassWarning")
# A model sure of everything gives all points of a class the same score: no spread, and a warning.
saturated = pytest.mark.filterwarnings("ignore::limen.DegenerateClassWarning")


@pytest.fixture(params=MODELS, ids=lambda m: type(m.estimator).__name__)
def model(request):
    again = copy.deepcopy(request.param)
    return again.set_params(random_state=0)


def shuffled_digits(classes):
    X, y = load_digits(return_X_y=True)
    keep = np.isin(y, classes)
    return train_test_split(X[keep], y[keep], random_state=0, stratify=y[keep])


def test_contract_on_digits(model):
    X, X_test, y, y_test = shuffled_digits([0, 1, 2, 3, 4])
    new, new_test, *_ = shuffled_digits([6])
    model.fit(X, y)

    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert list(model.fold_choices_) == [0, 1, 2, 3, 4]
    chosen = model.selection_
    assert model.eta_ == combine(model.evidence_[chosen.score], chosen.rule)
    assert chosen.expected == max(chosen.table.values())
    assert 0 < model.expected_known_accuracy_ <= 1
    assert 0 < model.expected_novel_accuracy_ <= 1

    # Three ways to say the same thing.
    strangeness = model.strangeness(X_test)
    assert (model.decision_function(X_test) == model.eta_ - strangeness).all()
    assert (model.predict_novelty(X_test) == (strangeness >= model.eta_)).all()
    predicted = model.predict(X_test)
    assert ((predicted == -1) == model.predict_novelty(X_test)).all()
    similarity = model.class_similarity(X_test)
    winner = similarity.argmax(axis=1)
    above = similarity.max(axis=1) > model.thresholds_[winner]
    assert (above == ~model.predict_novelty(X_test)).mean() > 0.99  # but for rounding at the cut

    # It knows what it knows better than a coin, and sees more novelty in the novel.
    assert np.mean(predicted == y_test) > 0.5
    assert model.predict_novelty(new).mean() > model.predict_novelty(X_test).mean()

    model.learn_class(new, 6)
    evidence = model.continual_eta_.history[-1]
    assert evidence.value == model.eta_
    assert list(model.taken_for_) == [0, 1, 2, 3, 4, 6]
    assert (evidence.source, evidence.label) == ("discovered", 6)
    assert sorted(model.classes_.tolist()) == [0, 1, 2, 3, 4, 6]
    assert np.mean(model.predict(new_test) == 6) > 0.5
    assert len(model.thresholds_) == 6


@saturated
@pytest.mark.parametrize("calibration", ["holdout", "train"])
def test_same_seed_same_model(model, calibration, known, novel):
    X, y = known
    model.set_params(calibration=calibration)
    runs = [copy.deepcopy(model).fit(X, y).learn_class(novel, 3) for _ in range(2)]
    assert runs[0].eta_ == runs[1].eta_
    assert (runs[0].strangeness(X) == runs[1].strangeness(X)).all()


@saturated
def test_fitted_twice_is_fitted_anew(model, known, novel):
    eta = model.fit(*known).eta_
    model.learn_class(novel, 3)
    assert model.fit(*known).eta_ == eta
    assert model.classes_.tolist() == [0, 1, 2]


def test_expected_accuracy_judges_each_fold_by_the_cut_of_the_others():
    """Recomputed from scratch, with the same split, for calibration on training points."""
    X, y = blobs([0, 1, 2, 3], seed=4)
    X[:, 0] /= 6  # make it hard enough that the accuracies are not all one
    model = OpenSetClassifier(NearestMean(), method="paper", calibration="train").fit(X, y)
    etas, knowns, novels = {}, {}, {}
    for held_out in range(4):
        inner = NearestMean().fit(X[y != held_out], y[y != held_out])
        similarity = inner.decision_function(X)
        own = similarity[y != held_out]
        wins = inner.classes_[own.argmax(axis=1)]
        labels = y[y != held_out]
        mean, std = {}, {}
        for column, c in enumerate(inner.classes_):
            correct = own[(wins == c) & (labels == c), column]
            mean[c], std[c] = correct.mean(), correct.std()

        def strange(scores, classes=inner.classes_, mean=mean, std=std):
            winner = classes[scores.argmax(axis=1)]
            return np.array(
                [(mean[w] - s) / std[w] for w, s in zip(winner, scores.max(axis=1), strict=True)]
            )

        z_known, z_novel = strange(own), strange(similarity[y == held_out])
        etas[held_out] = search_eta(z_known[wins == labels], z_novel).eta
        knowns[held_out] = lambda eta, z=z_known, ok=wins == labels: np.mean(ok & (z < eta))
        novels[held_out] = lambda eta, z=z_novel: np.mean(z >= eta)
    assert {c: choice.eta for c, choice in model.fold_choices_.items()} == pytest.approx(etas)
    other = {c: np.mean([e for k, e in etas.items() if k != c]) for c in etas}
    assert model.expected_known_accuracy_ == pytest.approx(
        np.mean([knowns[c](other[c]) for c in etas]), abs=0.01
    )
    assert model.expected_novel_accuracy_ == pytest.approx(
        np.mean([novels[c](other[c]) for c in etas]), abs=0.01
    )


def test_statistics_come_from_points_kept_out_of_training(known):
    X, y = known

    class Remembers(NearestMean):
        def fit(self, X, y):
            self.seen_ = {row.tobytes() for row in X}
            return super().fit(X, y)

    model = OpenSetClassifier(Remembers(), calibration_size=0.25, random_state=0).fit(X, y)
    assert len(model.estimator_.seen_) == 90
    rows, labels = model.memory_.calibration_rows()
    assert np.bincount(labels).tolist() == [10, 10, 10]
    assert not {row.tobytes() for row in rows} & model.estimator_.seen_


def test_the_paper_s_method_takes_the_first_similarity_and_halves(known, novel):
    model = OpenSetClassifier(LogisticRegression(), method="paper", random_state=0).fit(*known)
    assert list(model.selection_.table) == [("auto", "halving")]
    folds = [c.eta for c in model.fold_choices_.values() if c.informative]
    assert model.eta_ == pytest.approx(np.mean(folds))
    before = model.eta_
    model.learn_class(novel, 3)
    assert model.eta_ == pytest.approx((before + model.continual_eta_.history[-1].eta) / 2)


def test_similarity_and_rule_are_chosen_unless_given(known, novel):
    """Of margins and probabilities, by every rule; what the user names is not chosen over."""
    logistic = LogisticRegression(C=0.1)
    model = OpenSetClassifier(logistic, rule="chosen", random_state=0).fit(*known)
    methods = ("decision_function", "predict_proba")
    assert set(model.selection_.table) == {(m, r) for m in methods for r in COMBINATIONS}
    assert model.selection_.score in methods
    model.learn_class(novel, 3)
    assert {len(pieces) for pieces in model.evidence_.values()} == {4}
    given = {"similarity": "predict_proba", "rule": "median"}
    model = OpenSetClassifier(logistic, random_state=0, **given).fit(*known)
    assert list(model.selection_.table) == [("predict_proba", "median")]
    assert model.eta_ == np.median([c.eta for c in model.fold_choices_.values() if c.informative])


def test_folds_may_be_trained_for_less(known):
    fits = []

    class Counting(NearestMean):
        def __init__(self, epochs=9):
            self.epochs = epochs

        def fit(self, X, y):
            fits.append((self.epochs, len(np.unique(y))))
            return super().fit(X, y)

    OpenSetClassifier(Counting(), fold_params={"epochs": 2}).fit(*known)
    assert sorted(fits) == [(2, 2), (2, 2), (2, 2), (9, 3)]


def test_what_a_class_was_taken_for_while_it_was_novel():
    """Class 3 sits on top of class 1, so class 1 is what it looks like, and the reverse."""
    X, y = blobs([0, 1, 2])
    near, _ = blobs([1], seed=5)
    X, y = np.vstack([X, near + 0.5]), np.append(y, np.full(len(near), 3))
    model = OpenSetClassifier(NearestMean(), random_state=0).fit(X, y)
    assert list(model.taken_for_[3]) == [1]
    assert list(model.taken_for_[1]) == [3]
    assert model.taken_for_[3][1] > 0.3
    assert model.taken_for_[0] == model.taken_for_[2] == {}


@pytest.mark.parametrize("strategy", ["reservoir", "herding", "k-centre"])
def test_a_bounded_memory_keeps_so_many_and_carries_on_what_is_usual(strategy, known, novel):
    X, y = known
    model = OpenSetClassifier(
        NearestMean(), memory=10, memory_choice=strategy, random_state=0, similarity="auto"
    ).fit(X, y)
    assert np.bincount(model.memory_.y).tolist() == [10, 10, 10]
    model.learn_class(novel, 3)
    assert np.bincount(model.memory_.y).tolist() == [10, 10, 10, 10]
    # Refitted on what memory keeps, the means move a little; what is usual moves with them.
    assert model.predict_novelty(X).mean() < 0.3
    with pytest.raises(ValueError, match="Did you mean 'herding'"):
        model.set_params(memory_choice="herdin").fit(X, y)


def test_forests_need_the_holdout():
    """On their own training points a forest looks surer than it is, so its cut is too strict."""
    X, X_test, y, y_test = shuffled_digits([0, 1, 2, 3, 4])
    forest = RandomForestClassifier(50)
    known_accuracy = {}
    for how in ("train", "holdout"):
        model = OpenSetClassifier(forest, method="paper", calibration=how, random_state=0)
        known_accuracy[how] = np.mean(model.fit(X, y).predict(X_test) == y_test)
    assert known_accuracy["holdout"] > known_accuracy["train"] + 0.05


def test_text_labels_and_dataframes_through_a_pipeline(known, novel):
    X, y = known
    names = np.array(["ant", "bee", "cat"])
    columns = ["a", "b", "c", "colour"]
    frame = pd.DataFrame(X, columns=columns)
    frame["colour"] = np.where(X[:, 0] > 5, "red", "blue")
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["colour"]), remainder=StandardScaler()
        ),
        SVC(),
    )
    model = OpenSetClassifier(pipeline, random_state=0).fit(frame, names[y])
    assert set(model.predict(frame)) <= {"ant", "bee", "cat", "unknown"}
    assert np.mean(model.predict(frame) == names[y]) > 0.6
    assert model.feature_names_in_.tolist() == columns
    new = pd.DataFrame(novel, columns=columns)
    new["colour"] = "red"
    model.learn_class(new, "salamander")
    assert np.mean(model.predict(new) == "salamander") > 0.5
    assert model.classes_.tolist() == ["ant", "bee", "cat", "salamander"]


def test_raw_text_is_input_too():
    words = {"fruit": "apple pear plum", "pets": "cat dog hamster", "sky": "cloud rain wind"}
    rng = np.random.default_rng(0)

    def documents(text, n=30):
        return [" ".join(rng.choice(text.split(), 6)) for _ in range(n)]

    X = [document for text in words.values() for document in documents(text)]
    y = np.repeat(list(words), 30)
    model = OpenSetClassifier(make_pipeline(TfidfVectorizer(), MultinomialNB()), random_state=0)
    model.fit(X, y)
    assert (model.predict(documents("brick steel glass")) == "unknown").all()
    model.learn_class(documents("brick steel glass"), "building")
    assert np.mean(model.predict(documents("brick steel glass")) == "building") > 0.5


def test_sparse_rows():
    X, y = blobs([0, 1, 2])
    model = OpenSetClassifier(LogisticRegression(), random_state=0)
    dense = model.fit(X, y).learn_class(blobs([3])[0], 3).strangeness(X)
    sparse_X = sparse.coo_matrix(X)
    again = model.fit(sparse_X, y).learn_class(sparse.csc_matrix(blobs([3])[0]), 3)
    np.testing.assert_allclose(again.strangeness(sparse_X), dense, atol=1e-3)


def test_accommodation_takes_the_first_the_estimator_has(known, novel):
    def learnt(estimator):
        model = OpenSetClassifier(estimator, random_state=0).fit(*known)
        return model.learn_class(novel, 3)

    assert learnt(Growing()).accommodation_ == "add_class"
    assert learnt(NearestMean()).accommodation_ == "partial_fit"
    assert learnt(LogisticRegression()).accommodation_ == "refit"
    # scikit-learn's partial_fit takes an unseen label without a word and learns nothing of it.
    assert learnt(SGDClassifier()).accommodation_ == "refit"


def test_add_class_is_given_what_is_stored(known, novel):
    model = OpenSetClassifier(Growing(), memory=10, random_state=0).fit(*known)
    model.learn_class(novel, 3)
    X, y = model.estimator_.memory_seen_
    assert np.bincount(y).tolist() == [5, 5, 5]  # ten a class, half of them for calibration
    assert X.shape == (15, 4)
    assert np.bincount(model.memory_.y).tolist() == [10, 10, 10, 10]


def test_every_class_has_a_cut_of_its_own(known, novel):
    model = OpenSetClassifier(LogisticRegression(), rule="by-class", random_state=0).fit(*known)
    assert np.ptp(model.statistics_.leeway) > 0
    similarity = model.class_similarity(novel)
    won = similarity.argmax(axis=1)
    assert np.array_equal(
        model.predict_novelty(novel), similarity.max(axis=1) <= model.thresholds_[won]
    )
    one = OpenSetClassifier(LogisticRegression(), random_state=0).fit(*known)
    assert not one.statistics_.leeway.any()
    assert one.eta_ == model.eta_
    moved = one.strangeness(novel) - model.strangeness(novel)
    assert moved == pytest.approx(model.statistics_.leeway[won])


def test_a_new_class_is_evidence_of_strangeness_without_leeway(known, novel):
    """What a class teaches does not depend on the cuts in use when it was met."""
    models = [
        OpenSetClassifier(LogisticRegression(), rule=rule, random_state=0).fit(*known)
        for rule in ("by-class", "robust")
    ]
    for model in models:
        model.learn_class(novel, 3)
    pieces = [model.evidence_["decision_function"][-1] for model in models]
    assert pieces[0].eta == pieces[1].eta
    assert pieces[0].known_then == (0, 1, 2)
    assert set(pieces[0].won.tolist()) <= {0, 1, 2}


def test_bounded_memory_still_learns(known, novel):
    model = OpenSetClassifier(LogisticRegression(), memory=10, random_state=0).fit(*known)
    model.learn_class(novel, 3)
    X, y = blobs([0, 1, 2, 3], seed=9)
    assert np.mean(model.predict(X) == y) > 0.5


def test_similarity_may_be_a_name_a_score_or_a_function(known):
    X, y = known

    def fitted(how, estimator):
        return OpenSetClassifier(estimator, similarity=how, random_state=0).fit(X, y)

    proba = fitted("predict_proba", LogisticRegression())
    inner = proba.estimator_
    np.testing.assert_allclose(proba.class_similarity(X), np.log(inner.predict_proba(X)))
    margins = OpenSetClassifier(LogisticRegression(), method="paper", random_state=0).fit(X, y)
    assert (margins.class_similarity(X) == margins.estimator_.decision_function(X)).all()
    squared = fitted("squared", Growing())
    assert (squared.class_similarity(X) == squared.estimator_.similarity(X, "squared")).all()
    own = fitted(lambda e, X: 2 * e.decision_function(X), NearestMean())
    assert (own.class_similarity(X) == 2 * own.estimator_.decision_function(X)).all()


@pytest.mark.parametrize(
    "objective",
    ["total", "pooled", "f1", known_rate(0.9), cost(miss=3, false_alarm=1, novel_share=0.2)],
    ids=str,
)
def test_every_objective_fits(objective, known):
    model = OpenSetClassifier(LogisticRegression(), objective=objective, random_state=0)
    assert np.isfinite(model.fit(*known).eta_)


def test_a_higher_known_rate_gives_a_higher_cut():
    X, _, y, _ = shuffled_digits([0, 1, 2, 3])
    etas = [
        OpenSetClassifier(SVC(), objective=known_rate(r), random_state=0).fit(X, y).eta_
        for r in (0.5, 1.0)
    ]
    assert etas[0] < etas[1]


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [
        (np.array([0, 1, 2], np.uint8), -1),
        (np.array([1.0, 2.0, 3.0]), -1),
        (np.array(["a", "b", "c"]), "unknown"),
        (np.array(["a", "b", "c"], dtype=object), "unknown"),
    ],
)
def test_the_unknown_label_fits_the_kind_of_labels(labels, unknown, known):
    X, y = known
    model = OpenSetClassifier(SVC(), random_state=0).fit(X, labels[y])
    far = np.full((1, 4), 1e3)
    assert model.predict(far).tolist() == [unknown]
    assert model.set_params(unknown_label=99 if unknown == -1 else "??").predict(far)[0] in (
        99,
        "??",
    )


def test_the_alarm_by_hand(known):
    model = OpenSetClassifier(SVC(), random_state=0, alarm_level=0.01).fit(*known)
    model.calibration_strangeness_ = np.arange(19.0)
    model.eta_ = 18.0  # one of 19 calibration points at or above it
    batch = np.vstack([np.full((3, 4), 1e3), [*CENTRES[0], 0, 0]])
    alarm = model.detect_novelty(np.repeat(batch, [1, 1, 1, 7], axis=0))
    strange = model.strangeness(batch)
    expected_flags = int((strange[:3] >= 18).sum() + 7 * (strange[3] >= 18))
    assert (alarm.flagged, alarm.total) == (expected_flags, 10)
    # Clopper and Pearson: at this rate, one or fewer of 19 would be seen once in a hundred.
    assert stats.binom.cdf(1, 19, alarm.expected_rate) == pytest.approx(0.01)
    expected_p = stats.binom.sf(expected_flags - 1, 10, alarm.expected_rate)
    assert alarm.p_value == pytest.approx(expected_p)
    assert bool(alarm) is (alarm.p_value < 0.01)


@pytest.mark.parametrize("points", [25, 50, 200])
def test_false_alarms_stay_near_the_level_however_few_points_calibrate(points):
    """200 models, each shown one batch of known points; at level 0.05 about 20 alarms at most."""
    rng = np.random.default_rng(points)
    alarms = 0
    for _ in range(200):
        usual, batch = rng.normal(size=points), rng.normal(size=200)
        alarms += bool(NoveltyAlarm.judge(batch, usual, eta=1.3, level=0.05))
    assert alarms <= 20


def test_the_alarm_rings_for_the_new():
    X, y = blobs([0, 1, 2], n=300)
    model = OpenSetClassifier(SVC(), random_state=0).fit(X, y)
    mixed = np.vstack([blobs([0, 1, 2], n=10, seed=1)[0], blobs([3], n=10, seed=1)[0]])
    alarm = model.detect_novelty(mixed)
    assert alarm
    assert "something new is here" in str(alarm)


class Failing(LogisticRegression):
    """Fails as told, to see what is left behind."""

    def __init__(self, fail_without=None, fail_with=None):
        super().__init__()
        self.fail_without, self.fail_with = fail_without, fail_with

    def fit(self, X, y):
        if self.fail_without is not None and self.fail_without not in y:
            raise RuntimeError("out of luck")
        if self.fail_with is not None and self.fail_with in y:
            raise RuntimeError("never that class")
        return super().fit(X, y)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_failing_fold_says_which_class_was_held_out(n_jobs, known):
    with pytest.raises(FoldError, match="with class 1 held out: out of luck"):
        OpenSetClassifier(Failing(fail_without=1), n_jobs=n_jobs).fit(*known)


def state_of(model):
    return {k: copy.deepcopy(v) for k, v in vars(model).items() if k != "estimator"}


@pytest.mark.parametrize(
    ("rows", "label", "error", "message"),
    [
        (blobs([3])[0], 3, RuntimeError, "never that class"),
        (blobs([3])[0], 2, ValueError, r"label 2 is known already: \[0, 1, 2\]"),
        (blobs([3])[0], "zebra", ValueError, "of the kind of the known labels, such as 0"),
        (blobs([3])[0], -1, ValueError, "means unknown"),
        (blobs([3])[0], np.array([3, 3]), ValueError, "label must be one number or one text"),
        (blobs([3])[0], None, ValueError, "label must be one number or one text, got NoneType"),
        (blobs([3])[0], 3.5, ValueError, "of the kind of the known labels"),
        (blobs([3])[0][:, :3], 4, ValueError, "3 features.*expecting 4"),
        (blobs([3])[0][:1], 4, ValueError, "at least 2 points to be learnt, got 1"),
        (blobs([3])[0][0], 4, ValueError, "Reshape your data"),
        (np.full((5, 4), np.nan), 4, ValueError, "NaN"),
    ],
)
def test_a_failed_lesson_leaves_the_model_exactly_as_it_was(rows, label, error, message, known):
    X, y = known
    model = OpenSetClassifier(Failing(fail_with=3), random_state=0).fit(X, y)
    before, strangeness = state_of(model), model.strangeness(X)
    with pytest.raises(error, match=message):
        model.learn_class(rows, label)
    after = state_of(model)
    assert before.keys() == after.keys()
    assert before["eta_"] == after["eta_"]
    assert before["classes_"].tolist() == after["classes_"].tolist()
    assert before["continual_eta_"].history == after["continual_eta_"].history
    assert before["_rng"].bit_generator.state == after["_rng"].bit_generator.state
    assert before["memory_"].y.tolist() == after["memory_"].y.tolist()
    assert (model.strangeness(X) == strangeness).all()
    model.learn_class(blobs([4])[0], 4)  # and it can go on


BAD = [
    ({}, lambda X, y: (X[y < 2], y[y < 2]), "at least 3 known classes are needed, got 2 classes"),
    ({}, lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    ({}, lambda X, y: (X, np.append(y[:-1], 9)), "class 9 has 1"),
    ({}, lambda X, y: (X, y - 1), "unknown_label -1 is one of the classes"),
    ({"unknown_label": "novel"}, None, "unknown_label must be of the kind of the labels"),
    ({"unknown_label": 7.5}, None, "unknown_label must be a whole number, as labels are"),
    ({"fold_params": {"max_it": 2}}, None, "fold_params 'max_it'. Did you mean 'max_iter'"),
    ({"unknown_label": [7]}, None, "unknown_label must be one number or one text, got list"),
    ({}, lambda X, y: (X, y + 0.5), "Unknown label type"),
    ({}, lambda X, y: (X[:, :0], y), "0 feature"),
    ({"objective": "gmeam"}, None, "Did you mean 'gmean'"),
    ({"rule": "half"}, None, "unknown rule 'half'"),
    ({"calibration": "hold-out"}, None, "Did you mean 'holdout'"),
    ({"calibration_size": 1.0}, None, "calibration_size must lie between 0 and 1"),
    ({"memory": 1}, None, "memory must be None or at least 2"),
    ({"memory": 2.5}, None, "memory must be None or at least 2"),
    ({"alarm_level": 0}, None, "alarm_level must lie between"),
    ({"similarity": "predict_probas"}, None, "Did you mean 'predict_proba'"),
    ({"similarity": lambda e, X: e.predict(X)}, None, "one column per class"),
    ({"estimator": SVC(decision_function_shape="ovo")}, None, None),
]


@pytest.mark.parametrize(("parameters", "change", "message"), BAD)
def test_bad_input_says_what_to_do(parameters, change, message, known):
    X, y = blobs([0, 1, 2, 3, 4]) if message is None else known
    if change:
        X, y = change(X, y)
    model = OpenSetClassifier(**{"estimator": LogisticRegression(), **parameters})
    with pytest.raises(ValueError, match=message or "decision_function_shape='ovr'"):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"similarity": 3}, "similarity must be a name or a function, got 3"),
        ({"fold_params": ["C"]}, "fold_params must map names of parameters to values"),
    ],
)
def test_another_kind_of_parameter_is_refused(parameters, message, known):
    with pytest.raises(TypeError, match=message):
        OpenSetClassifier(LogisticRegression(), **parameters).fit(*known)


def test_an_estimator_without_scores_is_told_so(known):
    class Mute(BaseEstimator, ClassifierMixin):
        def fit(self, X, y):  # noqa: ARG002
            self.classes_ = np.unique(y)
            return self

    with pytest.raises(FoldError, match="Mute has none of similarity, decision_function"):
        OpenSetClassifier(Mute()).fit(*known)


def test_folds_in_parallel_give_the_same_model(known):
    X, y = known
    alone = OpenSetClassifier(SVC(), random_state=0).fit(X, y)
    together = OpenSetClassifier(SVC(), random_state=0, n_jobs=2).fit(X, y)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        threads = OpenSetClassifier(SVC(), random_state=0).fit(X, y)
    assert alone.eta_ == together.eta_ == threads.eta_


def test_images_are_rows_too():
    rng = np.random.default_rng(0)

    class Flat(NearestMean):
        def partial_fit(self, X, y):
            return super().partial_fit(X.reshape(len(X), -1), y)

        def decision_function(self, X):
            return super().decision_function(X.reshape(len(X), -1))

    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 3, 5)) + 10 * y[:, None, None]
    model = OpenSetClassifier(Flat(), random_state=0).fit(X, y)
    assert np.mean(model.predict(X) == y) > 0.7
    with pytest.raises(ValueError, match=r"rows of shape \(3, 5\), as in fit"):
        model.predict(X[:, :, :4])
    with pytest.raises(ValueError, match="pass X"):
        model.predict(X[0])


def test_leave_one_class_out_is_a_scikit_learn_splitter(known):
    X, y = known
    splitter = LeaveOneClassOut()
    assert splitter.get_n_splits(X, y) == 3
    for label, (train, test) in enumerate(splitter.split(X, y)):
        assert set(y[test]) == {label}
        assert sorted([*train, *test]) == list(range(len(y)))
    # No classifier can name a class it never saw.
    assert cross_val_score(GaussianNB(), X, y, cv=splitter).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="y is needed"):
        splitter.get_n_splits(X)
    with pytest.raises(ValueError, match="at least 2 classes"):
        list(splitter.split(X, np.zeros(len(X))))
    with pytest.raises(ValueError, match="NaN"):
        list(splitter.split(X, np.where(y == 0, np.nan, y)))


def test_a_class_that_no_cut_can_catch_has_no_say():
    """On iris a linear model is surest of all about setosa when it has never seen one."""
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UninformativeClassWarning, match="class 0 cannot be told"):
        model = OpenSetClassifier(LogisticRegression(max_iter=500), random_state=0).fit(X, y)
    told = [e.label for e in model.continual_eta_.history]
    assert 0 not in told
    assert not model.fold_choices_[0].informative
    assert model.predict_novelty(X).mean() < 0.5


def test_a_model_without_shades_calls_everything_known():
    """Every leaf of a full tree is sure: nothing can be told, so nothing is called novel."""
    X, _, y, _ = shuffled_digits([0, 1, 2, 3])
    with pytest.warns((UninformativeClassWarning, DegenerateClassWarning)):
        model = OpenSetClassifier(DecisionTreeClassifier(), random_state=0).fit(X, y)
    assert model.predict_novelty(X).mean() < 0.05


def test_columns_that_are_not_the_classes_are_refused_even_if_they_are_as_many():
    X, y = blobs([0, 1, 2])
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        OpenSetClassifier(SVC(decision_function_shape="ovo"), random_state=0).fit(X, y)


def test_a_network_of_fixed_width_serves_fewer_classes():
    class Wide(NearestMean):
        def decision_function(self, X):
            scores = np.full((len(X), 10), -1e9)
            scores[:, self.classes_] = super().decision_function(X)
            return scores

        def predict(self, X):
            return self.decision_function(X).argmax(axis=1)

    X, y = blobs([0, 2, 3])
    wide = OpenSetClassifier(Wide(), random_state=0).fit(X, y).learn_class(blobs([4])[0], 7)
    narrow = OpenSetClassifier(NearestMean(), random_state=0).fit(X, y)
    narrow.learn_class(blobs([4])[0], 7)
    assert (wide.strangeness(X) == narrow.strangeness(X)).all()


def test_a_small_memory_keeps_the_old_classes():
    X, X_test, y, y_test = shuffled_digits([0, 1, 2, 3, 4])
    new, *_ = shuffled_digits([6])
    for memory, least in ((20, 0.6), (60, 0.75)):
        model = OpenSetClassifier(SVC(), memory=memory, random_state=0).fit(X, y)
        model.learn_class(new, 6)
        assert np.mean(model.predict(X_test) == y_test) > least
        assert np.bincount(model.memory_.y).max() <= memory


def test_a_failed_fit_leaves_a_fitted_model_as_it_was(known):
    X, y = known
    model = OpenSetClassifier(SVC(), random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="at least 3 known classes"):
        model.fit(X[:, :2], np.minimum(y, 1))
    assert (model.predict(X) == before).all()


def test_frames_and_arrays_can_be_mixed(known, novel):
    X, y = known
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = OpenSetClassifier(SVC(), random_state=0).fit(frame, y)
    with pytest.warns(UserWarning, match="feature names"):
        model.learn_class(novel, 3)
    again = OpenSetClassifier(SVC(), random_state=0).fit(frame, y)
    again.learn_class(pd.DataFrame(novel, columns=list("abcd")), 3)
    assert (model.strangeness(frame) == again.strangeness(frame)).all()


def test_pickling_cloning_and_searching(known):
    X, y = known
    model = OpenSetClassifier(SVC(), objective=known_rate(0.9), random_state=0).fit(X, y)
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()
    assert clone(model).get_params()["objective"] == known_rate(0.9)
    search = GridSearchCV(clone(model), {"estimator__C": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.5
    assert model.n_features_in_ == 4
    for dtype in (np.float32, np.int64):
        assert len(model.predict(X.astype(dtype))) == len(X)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((2, 4), np.nan))


def test_a_skorch_network(known):
    net = NeuralNetClassifier(
        nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5), nn.Softmax(dim=1)),
        optimizer=torch.optim.Adam,
        max_epochs=40,
        lr=0.02,
        train_split=None,
        verbose=0,
    )
    torch.manual_seed(0)
    X, y = known
    model = OpenSetClassifier(net, random_state=0).fit(X.astype(np.float32), y)
    model.learn_class(blobs([3])[0].astype(np.float32), 3)
    assert 3 in model.classes_


class OnlyCodes(LogisticRegression):
    """Refuses labels with gaps, as XGBoost does."""

    def fit(self, X, y):
        if not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise ValueError(f"Invalid classes inferred from unique values of `y`: {np.unique(y)}")
        return super().fit(X, y)


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [5, 7, 8, 9], ["ant", "bee", "cat", "dog"]])
def test_an_estimator_that_demands_codes_gets_them(names, known, novel):
    X, y = known
    strict, plain = (
        OpenSetClassifier(estimator, random_state=0)
        .fit(X, np.array(names)[y])
        .learn_class(novel, names[3])
        for estimator in (OnlyCodes(max_iter=500), LogisticRegression(max_iter=500))
    )
    assert (strict.predict(X) == plain.predict(X)).all()
    assert strict.classes_.tolist() == plain.classes_.tolist() == names


def test_an_estimator_that_fails_for_another_reason_says_its_own(known):
    X, y = known
    with pytest.raises(ValueError, match="'C' parameter of SVC must be"):
        OpenSetClassifier(SVC(C=-1)).fit(X, y + 5)


def test_a_second_fit_forgets_the_names_of_the_first(known):
    X, y = known
    model = OpenSetClassifier(SVC(), random_state=0)
    model.fit(pd.DataFrame(X, columns=list("abcd")), y)
    model.fit(X, y).predict(X)
    assert not hasattr(model, "feature_names_in_")


def test_a_small_memory_with_a_large_holdout_keeps_something_to_train_on(known, novel):
    model = OpenSetClassifier(NearestMean(), memory=4, calibration_size=0.9, random_state=0)
    model.fit(*known).learn_class(novel, 3)
    assert model.memory_.training.sum() == 4


def test_a_preview_tells_the_cut_that_learning_leads_to_and_changes_nothing(known, novel):
    model = OpenSetClassifier(SVC(), random_state=0).fit(*known)
    eta, strangeness = model.eta_, model.strangeness(novel)
    preview = model.preview_class(novel, 3)
    assert model.eta_ == eta
    assert model.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(model.strangeness(novel), strangeness)
    assert model.learn_class(novel, 3).eta_ == preview.eta
    with pytest.raises(ValueError, match="known already"):
        model.preview_class(novel, 3)
    with pytest.raises(ValueError, match="at least 2"):
        model.preview_class(novel[:1], 4)
