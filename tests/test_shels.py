"""SHELSClassifier: fit, grow, repeat bit by bit, stop cleanly, and come back from a file."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import cross_val_score, train_test_split

import limen
from limen import ModelFileError, OpenSetClassifier
from limen.packing import pack_arrays, unpack_arrays
from limen.shels import NetworkConfig, SHELSClassifier, TrainingDivergedError
from limen.storage import write_model

SMALL = NetworkConfig((1, 8, 8), ((16, 16), (32, 32)), (64,))
pytestmark = pytest.mark.filterwarnings("ignore::limen.DegenerateClassWarning")


def digits(*classes, test_size=0.3):
    data = load_digits()
    keep = np.isin(data.target, classes)
    return train_test_split(
        data.images[keep], data.target[keep], test_size=test_size, random_state=0
    )


def small(**changes):
    return SHELSClassifier(
        **{"config": SMALL, "epochs": 15, "lr": 2e-3, "random_state": 0, "threads": 1} | changes
    )


@pytest.fixture(scope="module")
def fitted():
    X, X_test, y, y_test = digits(0, 1, 2, 3)
    return small().fit(X, y), X, X_test, y, y_test


def test_it_learns(fitted):
    model, X, X_test, _, y_test = fitted
    assert model.score(X_test, y_test) > 0.95
    assert model.features(X_test).shape == (len(X_test), 64)
    assert model.similarity(X_test).shape == (len(X_test), 4)
    rows = model.network_.rows.detach().numpy()
    np.testing.assert_allclose(model.similarity(X), model.features(X) @ rows.T, rtol=1e-5)
    assert [record["epoch"] for record in model.history_] == list(range(1, 16))
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


@pytest.mark.parametrize("score", ["cosine", "prototype", "mahalanobis", "knn", "energy", "msp"])
def test_every_score_classifies_too(score, fitted):
    model, _, X_test, _, y_test = fitted
    winner = model.classes_[model.similarity(X_test, score).argmax(axis=1)]
    assert np.mean(winner == y_test) > 0.9
    renamed = clone(model).set_params(score=score)
    assert renamed.get_params()["score"] == score


def test_a_score_of_ones_own(fitted):
    model, _, X_test, *_ = fitted
    mine = model.similarity(X_test, lambda f, rows, stored: -f @ rows.T + len(stored.features))
    np.testing.assert_allclose(
        mine, len(model.stored_.features) - model.similarity(X_test), rtol=1e-4
    )


def test_plain_feature_vectors():
    X, y = load_wine(return_X_y=True)
    model = SHELSClassifier(epochs=30, lr=1e-3, random_state=0)
    assert cross_val_score(model, X, y, cv=3).mean() > 0.9


def test_text_labels_and_channels_last_colour_images():
    rng = np.random.default_rng(0)
    y = np.repeat(["red", "green", "blue"], 40)
    X = rng.integers(0, 60, (120, 12, 12, 3), dtype=np.uint8)
    for channel, name in enumerate(("red", "green", "blue")):
        X[y == name, :, :, channel] += 150
    model = SHELSClassifier(epochs=3, lr=1e-3, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert "colour images 12x12 (n, H, W, C)" in str(model.input_format_)


def test_same_seed_same_threads_same_weights_bit_by_bit(fitted):
    model, X, _, y, _ = fitted
    again = small().fit(X, y)
    for a, b in zip(model.network_.parameters(), again.network_.parameters(), strict=True):
        assert torch.equal(a, b)
    other = small(random_state=1, epochs=1).fit(X, y)
    assert not torch.equal(other.network_.rows, again.network_.rows)


def test_no_global_state_is_read_or_changed():
    X, _, y, _ = digits(0, 1)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()  # noqa: NPY002
    first = small(config=NetworkConfig((1, 8, 8), ((8,),), (16,), dropout=0.2), epochs=1).fit(X, y)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert before[2] == torch.get_num_threads()
    torch.manual_seed(6)
    second = clone(first).fit(X, y)
    assert torch.equal(first.network_.rows, second.network_.rows)


@pytest.mark.parametrize("accommodation", ["soft-freeze", "replay", "prototype"])
def test_a_new_class_is_taken_in(accommodation, fitted):
    trained, X, X_test, y, y_test = fitted
    new, new_test, *_ = digits(6)
    model = pickle.loads(pickle.dumps(trained)).set_params(
        accommodation=accommodation, accommodation_epochs=None if accommodation != "replay" else 4
    )
    model.add_class(new, 6, memory=(X, y))
    assert model.classes_.tolist() == [0, 1, 2, 3, 6]
    assert model.similarity(X_test).shape == (len(X_test), 5)
    assert model.score(X_test, y_test) > 0.8
    if accommodation != "soft-freeze":  # at the paper's beta, 130 pictures do not move it
        assert np.mean(model.predict(new_test) == 6) > 0.5
    assert set(model.stored_.labels.tolist()) == {0, 1, 2, 3, 4}
    for before, after in zip(trained.activities_, model.activities_, strict=True):
        assert (after >= before).all()  # what the new class excites is added
    with pytest.raises(ValueError, match="label 6 is known already"):
        model.add_class(new, 6)


def test_partial_fit_adds_the_classes_that_are_new(fitted):
    _, X, X_test, y, y_test = fitted
    more, more_test, labels, labels_test = digits(0, 1, 2, 3, 6, 8)
    model = small(accommodation="replay", accommodation_epochs=4).partial_fit(X, y)
    assert model.score(X_test, y_test) > 0.9
    model.partial_fit(more, labels)
    assert model.classes_.tolist() == [0, 1, 2, 3, 6, 8]
    assert model.score(more_test, labels_test) > 0.7
    with pytest.raises(ValueError, match="no class that is new"):
        model.partial_fit(X, y)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["nhw", "nchw", "nhwc"])
def test_the_callers_arrays_are_left_alone(dtype, layout):
    X, _, y, _ = digits(0, 1, 2)
    X = X.astype(dtype)
    if layout != "nhw":
        X = np.repeat(X[..., None], 3, axis=3)
        X = np.ascontiguousarray(np.moveaxis(X, 3, 1)) if layout == "nchw" else X
    known, new = np.ascontiguousarray(X[y < 2]), np.ascontiguousarray(X[y == 2])
    before = known.copy(), new.copy()
    model = small(config=None, epochs=2).fit(known, y[y < 2])
    first = model.similarity(known)
    assert (model.similarity(known) == first).all()
    model.add_class(new, 2, memory=(known, y[y < 2]))
    assert (known == before[0]).all()
    assert (new == before[1]).all()


def test_memory_that_lacks_a_class_does_not_lose_it(fitted):
    trained, X, X_test, y, y_test = fitted
    model = pickle.loads(pickle.dumps(trained)).set_params(
        accommodation="prototype", score="prototype"
    )
    only = y == 0
    model.add_class(digits(6)[0], 6, memory=(X[only], y[only]))
    assert set(model.stored_.labels.tolist()) == {0, 1, 2, 3, 4}
    assert model.score(X_test, y_test) > 0.9
    model.add_class(digits(8)[0], 8, memory=([], []))
    assert np.isfinite(model.similarity(X_test)).all()


def test_an_accommodation_that_spoils_what_it_is_given_spoils_nothing(fitted):
    def vandal(lesson):
        for activity in lesson.activities:
            activity.zero_()
        lesson.stored.features[:] = 0
        raise RuntimeError("and leaves")

    trained, _, X_test, *_ = fitted
    model = pickle.loads(pickle.dumps(trained)).set_params(accommodation=vandal)
    with pytest.raises(RuntimeError, match="and leaves"):
        model.add_class(digits(6)[0], 6)
    assert (model.similarity(X_test, "knn") == trained.similarity(X_test, "knn")).all()
    assert all(
        torch.equal(a, b) for a, b in zip(model.activities_, trained.activities_, strict=True)
    )
    model.set_params(accommodation=lambda lesson: None).add_class(digits(6)[0], 6)  # noqa: ARG005
    assert model.similarity(X_test).shape[1] == len(model.classes_) == 5


def test_another_range_than_in_fit_is_refused():
    X, _, y, _ = digits(0, 1)
    as_bytes, as_floats = (X * 15).astype(np.uint8), X / 16
    model = small(epochs=1).fit(as_bytes, y)
    with pytest.raises(ValueError, match="floats up to 1, but fit saw bytes"):
        model.predict(as_floats)
    assert len(model.predict(as_bytes.astype(np.float64))) == len(X)
    with pytest.raises(ValueError, match="X holds bytes, but fit saw floats up to 1"):
        small(epochs=1).fit(as_floats, y).predict(as_bytes)


def test_features_far_from_zero_keep_their_digits():
    X, y = load_wine(return_X_y=True)
    model = SHELSClassifier(epochs=20, lr=1e-3, random_state=0)
    assert model.fit(X + 1e9, y).score(X + 1e9, y) > 0.9
    constant = np.column_stack([X, np.full(len(X), 0.1)])
    shifted = np.column_stack([X, np.full(len(X), 0.1001)])
    assert clone(model).fit(constant, y).score(shifted, y) > 0.9
    with pytest.raises(ValueError, match="too far from those in fit"):
        model.predict(np.full_like(X, 1e300))


@pytest.mark.parametrize(
    ("label", "message"),
    [("six", "of the kind of the known labels"), ([6, 7], "one number or one text"), (2, "known")],
)
def test_a_new_label_is_checked(label, message, fitted):
    with pytest.raises(ValueError, match=message):
        fitted[0].add_class(digits(6)[0], label)
    with pytest.raises(ValueError, match="inconsistent"):
        fitted[0].add_class(digits(6)[0], 6, memory=(fitted[1], fitted[3][:-1]))


def test_generators_seed_it_too_and_gradients_may_be_off_outside():
    X, _, y, _ = digits(0, 1)
    with torch.no_grad():
        rows = [
            small(random_state=np.random.default_rng(3), epochs=1).fit(X, y).network_.rows
            for _ in range(2)
        ]
    assert torch.equal(*rows)


def test_weights_that_are_no_numbers_are_noticed_even_after_the_last_step():
    X, _, y, _ = digits(0, 1)
    with pytest.raises(TrainingDivergedError):
        small(lr=1e38, epochs=1, batch_size=10_000).fit(X, y)


def test_a_score_of_the_wrong_shape_is_refused(fitted):
    with pytest.raises(ValueError, match="score must give one column per class"):
        fitted[0].similarity(fitted[1], lambda f, rows, stored: f)  # noqa: ARG005


def test_partial_fit_keeps_the_parameters_themselves(fitted):
    events = []
    model = small(progress=events.append, epochs=1, accommodation="prototype")
    model.partial_fit(fitted[1], fitted[3])
    model.partial_fit(digits(6)[0], np.full(len(digits(6)[0]), 6))
    assert model.progress == events.append
    assert model.classes_.tolist() == [0, 1, 2, 3, 6]


def test_soft_freezing_holds_what_matters_and_beta_decides_how_hard(fitted):
    trained, *_ = fitted
    new, *_ = digits(6)

    def moved(beta):
        model = pickle.loads(pickle.dumps(trained)).set_params(beta=beta, accommodation_lr=1e-3)
        model.add_class(new, 6)
        old, now = trained.network_.rows, model.network_.rows[:4]
        return float((old - now).norm().detach())

    assert moved(3000.0) < moved(0.0)


def test_replay_without_memory_says_what_to_do(fitted):
    model = pickle.loads(pickle.dumps(fitted[0])).set_params(accommodation="replay")
    with pytest.raises(ValueError, match="pass memory="):
        model.add_class(digits(6)[0], 6)
    assert model.classes_.tolist() == [0, 1, 2, 3]


def test_an_accommodation_of_ones_own(fitted):
    def copy_the_first_row(lesson):
        with torch.no_grad():
            lesson.network.rows[-1] = lesson.network.rows[0]
        return [{"phase": "mine", "epoch": 1}]

    model = pickle.loads(pickle.dumps(fitted[0])).set_params(accommodation=copy_the_first_row)
    model.add_class(digits(6)[0], 6)
    assert torch.equal(model.network_.rows[-1], model.network_.rows[0])
    assert model.history_[-1]["phase"] == "mine"


class Interrupt:
    """Raises in the middle of training, as Ctrl-C would."""

    def __init__(self, error):
        self.error, self.steps = error, 0

    def __call__(self, event):
        self.steps += "done" in event
        if self.steps == 5:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("power cut")])
def test_an_interrupted_lesson_leaves_the_estimator_as_it_was(error, fitted):
    trained, X, X_test, y, _ = fitted
    model = pickle.loads(pickle.dumps(trained))
    before = model.similarity(X_test)
    for lesson in (
        lambda: model.fit(X, y),
        lambda: model.add_class(digits(6)[0], 6, memory=(X, y)),
    ):
        model.set_params(progress=Interrupt(error))
        with pytest.raises(type(error)):
            lesson()
        assert (model.similarity(X_test) == before).all()
        assert model.classes_.tolist() == [0, 1, 2, 3]
        assert len(model.history_) == 15
    fresh = small(progress=Interrupt(error))
    with pytest.raises(type(error)):
        fresh.fit(X, y)
    assert not hasattr(fresh, "network_")


def test_a_loss_that_is_no_number_names_the_epoch_and_what_to_try():
    X, _, y, _ = digits(0, 1)
    with pytest.raises(
        TrainingDivergedError, match=r"in epoch 1 of 2 .*try a lower lr \(now 1e\+30"
    ):
        small(lr=1e30, epochs=2).fit(X, y)


def test_an_own_progress_function_sees_every_step_and_epoch():
    X, _, y, _ = digits(0, 1)
    events = []
    small(epochs=2, batch_size=50, progress=events.append).fit(X, y)
    steps = -(-len(X) // 50)
    assert sum("done" in e for e in events) == 2 * steps
    assert [e["epoch"] for e in events if "loss" in e] == [1, 2]


def test_the_bar_is_silent_off_a_terminal_and_shows_when_asked():
    code = """if True:
        import numpy as np
        from limen.shels import SHELSClassifier
        X = np.random.default_rng(0).random((60, 4)); y = np.arange(60) % 3
        SHELSClassifier(epochs=2, progress=PROGRESS).fit(X, y)
    """
    silent, shown = (
        subprocess.run(
            [sys.executable, "-c", code.replace("PROGRESS", wish)],
            capture_output=True,
            text=True,
            check=True,
            env={"COLUMNS": "120", "TERM": "xterm", "FORCE_COLOR": "1", "PATH": ""},
        ).stderr
        for wish in ("None", "True")
    )
    assert silent == ""
    assert "training" in shown
    assert "accuracy" in shown


BAD = [
    ({"config": "mnits"}, "Did you mean 'mnist'"),
    ({"config": "cifar10"}, "the network takes inputs of shape"),
    ({"accommodation": "reply"}, "Did you mean 'replay'"),
    ({"score": "cosin"}, "Did you mean 'cosine'"),
    ({"lr": 0}, "lr must be positive"),
    ({"batch_size": 0}, "batch_size must be a whole number, at least 1"),
    ({"epochs": -1}, "epochs must be a whole number, at least 0"),
    ({"epochs": 1.5}, "epochs must be a whole number"),
    ({"threads": 0}, "threads must be a whole number, at least 1"),
    ({"accommodation": 3}, "unknown accommodation 3"),
    ({"random_state": "seed"}, "random_state must be a whole number or a generator"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD)
def test_bad_parameters_are_named(parameters, message):
    X, _, y, _ = digits(0, 1)
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(X, y)


def test_one_class_is_not_enough_and_shapes_must_agree(fitted):
    X, _, y, _ = digits(0)
    with pytest.raises(ValueError, match="at least 2 classes"):
        small().fit(X, y)
    with pytest.raises(ValueError, match="as in fit"):
        fitted[0].predict(np.zeros((2, 9, 9)))
    with pytest.raises(ValueError, match="memory holds labels that are not known"):
        fitted[0].add_class(X, 9, memory=(X, y + 5))


def test_presets():
    mnist = SHELSClassifier.preset("mnist")
    assert mnist._accommodation_lr() == pytest.approx(1e-5)
    assert mnist.set_params(accommodation="replay")._accommodation_lr() == 1e-4
    assert SHELSClassifier.preset("fashion-mnist")._accommodation_lr() == pytest.approx(5e-5)
    assert SHELSClassifier.preset("cifar10", epochs=1).epochs == 1
    with pytest.raises(ValueError, match="Did you mean 'cifar10'"):
        SHELSClassifier.preset("cifar")


# --- in the open-set classifier -------------------------------------------------------------------


def open_set(**changes):
    return OpenSetClassifier(
        small(**{"accommodation": "replay", "accommodation_epochs": 4} | changes),
        method="paper",
        similarity="dot",
        random_state=0,
    )


@pytest.mark.parametrize("accommodation", ["soft-freeze", "replay", "prototype"])
def test_the_papers_system_in_one_line(accommodation):
    X, X_test, y, y_test = digits(0, 1, 2, 3)
    new, new_test, *_ = digits(6)
    model = open_set(accommodation=accommodation).fit(X, y)
    assert list(model.fold_choices_) == [0, 1, 2, 3]
    assert np.mean(model.predict(X_test) == y_test) > 0.5
    assert model.predict_novelty(new).mean() > model.predict_novelty(X_test).mean()
    before = model.eta_
    model.learn_class(new, 6)
    assert model.accommodation_ == "add_class"
    assert model.eta_ == pytest.approx((before + model.continual_eta_.history[-1].eta) / 2)
    if accommodation == "replay":
        assert np.mean(model.predict(new_test) == 6) > 0.3


def test_the_network_of_the_open_set_classifier_is_seeded_by_it():
    X, _, y, _ = digits(0, 1, 2)
    runs = [
        OpenSetClassifier(small(random_state=None, epochs=2), random_state=4, n_jobs=n).fit(X, y)
        for n in (1, 2)
    ]
    # Scores by matrix products differ in the last digits with the number of threads.
    assert runs[0].eta_ == pytest.approx(runs[1].eta_, rel=1e-3)
    assert torch.equal(runs[0].estimator_.network_.rows, runs[1].estimator_.network_.rows)


def test_saved_in_the_middle_of_a_stream_it_goes_on_alike(tmp_path):
    X, X_test, y, _ = digits(0, 1, 2, 3)
    model = open_set(epochs=6).fit(X, y).learn_class(digits(6)[0], 6)
    model.save(tmp_path / "digits.limen")
    again = limen.load(tmp_path / "digits.limen")
    assert (again.strangeness(X_test) == model.strangeness(X_test)).all()
    for each in (model, again):
        each.learn_class(digits(8)[0], 8)
    assert again.eta_ == model.eta_
    assert (again.strangeness(X_test) == model.strangeness(X_test)).all()
    assert again.estimator_.get_params() == model.estimator_.get_params()
    assert torch.equal(again.estimator_.network_.rows, model.estimator_.network_.rows)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "net.limen"
    fitted[0].save(path)
    return path


def test_the_estimator_alone_can_be_saved(saved, fitted):
    model, X, X_test, y, _ = fitted
    again = SHELSClassifier.load(saved)
    assert (again.similarity(X_test) == model.similarity(X_test)).all()
    assert again.get_params() == model.get_params()
    assert again.n_features_in_ == model.n_features_in_ == 8
    grown = [
        pickle.loads(pickle.dumps(m)).set_params(accommodation="replay") for m in (model, again)
    ]
    for each in grown:
        each.add_class(digits(6)[0], 6, memory=(X, y))
    assert (grown[0].similarity(X_test) == grown[1].similarity(X_test)).all()


def edit(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def reseal(path, name, change):
    """Alter an array as somebody would who can compute checksums too."""
    manifest = json.loads((path / "manifest.json").read_text())
    arrays = unpack_arrays(next(path.glob("weights-*")).read_bytes())
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    facts = {k: v for k, v in manifest.items() if k not in ("format", "parts")}
    write_model(path, facts, {"weights": pack_arrays(arrays)})


def truncate(path):
    part = next(path.glob("weights-*"))
    part.write_bytes(part.read_bytes()[:-100])


HOSTILE = [
    (truncate, "truncated or altered"),
    (lambda p: edit(p, lambda m: m.update(format=2)), "install a newer limen"),
    (lambda p: edit(p, lambda m: m.pop("estimator")), "does not fit together"),
    (lambda p: edit(p, lambda m: m["estimator"]["classes"].append(9)), "does not fit together"),
    (
        lambda p: edit(p, lambda m: m["estimator"]["network"].update(hidden=[10**9])),
        "does not fit together",
    ),
    (
        lambda p: edit(p, lambda m: m["estimator"]["params"].update(score="__import__('os')")),
        "does not fit together",
    ),
    (
        lambda p: edit(p, lambda m: m["estimator"]["params"].update(surprise=1)),
        "does not fit together",
    ),
    (lambda p: edit(p, lambda m: m["estimator"]["input"].update(scale=0)), "does not fit together"),
    (lambda p: edit(p, lambda m: m["estimator"]["input"].update(layout="x")), "does not fit"),
    (lambda p: edit(p, lambda m: m["estimator"]["classes"].__setitem__(0, 1)), "does not fit"),
    (lambda p: reseal(p, "network.rows", lambda a: a * np.nan), "does not fit together"),
    (lambda p: reseal(p, "network.rows", lambda a: a.astype(np.float64)), "does not fit together"),
    (lambda p: reseal(p, "activity.0", lambda a: a[:-1]), "does not fit together"),
    (lambda p: reseal(p, "stored.labels", lambda a: a + 1), "does not fit together"),
]


@pytest.mark.parametrize(("damage", "message"), HOSTILE)
def test_a_hostile_file_is_refused(damage, message, saved):
    damage(saved)
    with pytest.raises(ModelFileError, match=message):
        SHELSClassifier.load(saved)


def test_functions_are_not_stored(fitted, tmp_path):
    model = pickle.loads(pickle.dumps(fitted[0])).set_params(score=limen.shels.scores.dot)
    with pytest.raises(ModelFileError, match="score is a function"):
        model.save(tmp_path / "no.limen")


def test_every_score_comes_from_one_embedding(fitted):
    model, X = fitted[0], fitted[2]
    looked = model.embedding(X)
    np.testing.assert_array_equal(looked.features, model.features(X))
    for score in ("dot", "knn", "map-knn", "deep-knn"):
        np.testing.assert_allclose(
            model.similarity_of_features(looked, score), model.similarity(X, score)
        )
    with pytest.raises(ValueError, match="needs the embedding"):
        model.similarity_of_features(looked.features, "deep-knn")


def test_deep_scores_survive_saving_and_a_new_class(fitted, tmp_path):
    _, X, X_test, y, _ = fitted
    model = copy.deepcopy(fitted[0]).set_params(score="deep-knn", accommodation="prototype")
    model.add_class(X[y == 0], 99, memory=(X, y))
    model.save(tmp_path / "model")
    again = SHELSClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.similarity(X_test), model.similarity(X_test))
    assert again.similarity(X_test).shape == (len(X_test), 5)


def test_scale_and_augmentation_are_settings_like_others(tmp_path):
    X, X_test, y, y_test = digits(0, 1, 2)
    plain = small(random_state=0).fit(X, y)
    changed = small(random_state=0, scale=10.0, augment="shift").fit(X, y)
    again = small(random_state=0, scale=10.0, augment="shift").fit(X, y)
    np.testing.assert_array_equal(changed.similarity(X_test), again.similarity(X_test))
    assert not np.allclose(changed.similarity(X_test), plain.similarity(X_test))
    assert changed.score(X_test, y_test) > 0.9
    changed.save(tmp_path / "model")
    assert SHELSClassifier.load(tmp_path / "model").scale == 10.0
    with pytest.raises(ValueError, match="Did you mean 'shift-flip'"):
        small(augment="shift_flip").fit(X, y)
    with pytest.raises(ValueError, match="scale must be positive"):
        small(scale=0).fit(X, y)


def test_feature_rows_are_not_augmented():
    X, y = load_wine(return_X_y=True)
    one, other = (small(config=None, random_state=0, augment=a).fit(X, y) for a in (None, "shift"))
    np.testing.assert_array_equal(one.similarity(X), other.similarity(X))


def test_a_normalised_network_learns_saves_and_grows(tmp_path):
    X, X_test, y, y_test = digits(0, 1, 2, 3)
    config = NetworkConfig((1, 8, 8), ((16,), (16,)), (32,), norm=True)
    old = y < 3
    settings = {"config": config, "epochs": 6, "schedule": "one-cycle", "scale": 10.0}
    model = small(**settings, accommodation="replay").fit(X[old], y[old])
    model.add_class(X[y == 3], 3, memory=(X[old], y[old]))
    assert model.score(X_test, y_test) > 0.9
    model.save(tmp_path / "model")
    again = SHELSClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.similarity(X_test), model.similarity(X_test))
    with pytest.raises(ValueError, match="Did you mean 'one-cycle'"):
        small(schedule="onecycle").fit(X, y)


def test_distillation_keeps_what_was_said_of_the_old_classes(fitted):
    """The more it weighs, the less the answers for the old classes change."""
    model, X, X_test, y, _ = fitted
    new, *_ = digits(6)
    before = model.similarity(X_test, "cosine")
    moved = []
    for weight in (0.0, 300.0):
        grown = copy.deepcopy(model).set_params(
            accommodation="replay", accommodation_epochs=2, distillation=weight
        )
        grown.add_class(new, 6, (X[:40], y[:40]))
        moved.append(np.abs(grown.similarity(X_test, "cosine")[:, :4] - before).mean())
    assert moved[1] < 0.8 * moved[0]


def test_only_what_is_remembered_is_compared_with(fitted):
    model, X, X_test, y, _ = fitted
    kept = np.concatenate([np.flatnonzero(y == c)[:3] for c in range(4)])
    again = copy.deepcopy(model).remember(X[kept], y[kept])
    assert np.bincount(again.stored_.labels).tolist() == [3, 3, 3, 3]
    np.testing.assert_array_equal(again.similarity(X_test), model.similarity(X_test))
    ours = again.similarity(X[kept], "knn")
    assert ours.shape == (12, 4)
    assert not np.array_equal(ours, model.similarity(X[kept], "knn"))
    with pytest.raises(ValueError, match=r"no example of \[2, 3\]"):
        again.remember(X[y < 2], y[y < 2])


@pytest.mark.parametrize("score", ["prototype", "mahalanobis", "knn", "map-knn", "deep-knn"])
def test_a_stored_example_is_not_compared_with_itself(fitted, score):
    """Judged one fifth after the other by the rest, as examples that were never stored are."""
    model, X, _, y, _ = fitted
    kept = np.concatenate([np.flatnonzero(y == c)[:20] for c in range(4)])
    model = copy.deepcopy(model).remember(X[kept], y[kept])
    turn = np.tile(np.arange(20) % 5, 4)
    told = np.empty((80, 4))
    for now in range(5):
        others = copy.deepcopy(model).remember(X[kept[turn != now]], y[kept[turn != now]])
        told[turn == now] = others.similarity(X[kept[turn == now]], score)
    np.testing.assert_allclose(model.similarity_of_stored(score), told, rtol=1e-3, atol=1e-5)
    flattered = model.similarity(X[kept], score)[np.arange(80), y[kept]]
    assert np.mean(flattered - told[np.arange(80), y[kept]]) > 0


def test_an_only_example_is_compared_with_itself_for_want_of_others(fitted):
    model, X, _, y, _ = fitted
    kept = np.array([np.flatnonzero(y == c)[0] for c in range(4)])
    model = copy.deepcopy(model).remember(X[kept], y[kept])
    np.testing.assert_allclose(
        model.similarity_of_stored("knn"), model.similarity(X[kept], "knn"), rtol=1e-4
    )


def test_all_scores_from_one_look(fitted):
    model, _, X_test, *_ = fitted
    looked = model.similarities(X_test)
    assert set(looked) == set(model.score_names)
    for name, similarity in looked.items():
        np.testing.assert_allclose(similarity, model.similarity(X_test, name), rtol=1e-4)
    assert small(score=lambda f, rows, _stored: f @ rows.T).score_names == ()


def test_the_score_is_chosen_for_shels_too():
    X, X_test, y, y_test = digits(0, 1, 2, 3)
    new, new_test, *_ = digits(6)
    model = OpenSetClassifier(
        small(accommodation="replay", accommodation_epochs=4),
        fold_params={"epochs": 5},
        memory=20,
        memory_choice="herding",
        random_state=0,
    ).fit(X, y)
    assert {score for score, _ in model.selection_.table} == set(model.estimator_.score_names)
    assert np.mean(model.predict(X_test) == y_test) > 0.5
    model.learn_class(new, 6)
    assert np.mean(model.predict(new_test) == 6) > 0.3


def test_normalisation_is_added_to_any_network():
    X, _, y, _ = digits(0, 1, 2)
    assert small(epochs=1, norm=True).fit(X, y).network_.config.norm
    rows = X.reshape(len(X), -1)
    assert small(config=None, epochs=1, norm=True).fit(rows, y).score(rows, y) > 0


def test_turns_are_told_apart_and_come_back_from_a_file(tmp_path, fitted):
    _, X, X_test, y, y_test = fitted
    model = small(turns=4, scale=10.0).fit(X, y)
    assert model.score(X_test, y_test) > 0.95
    assert model.network_.turned.shape == (4, 3, 64)
    model.save(tmp_path / "turned")
    again = SHELSClassifier.load(tmp_path / "turned")
    new = digits(7)[0]
    for grown in (model, again):
        grown.set_params(accommodation="replay", accommodation_steps=5, distillation=1.0)
        grown.add_class(new, 7, (X, y))
    assert again.network_.turned.shape == (5, 3, 64)
    np.testing.assert_array_equal(again.similarity(X_test), model.similarity(X_test))


def test_statistics_of_all_points_are_carried_on_while_the_network_stays(tmp_path, fitted):
    _, X, X_test, y, y_test = fitted
    model = small(accommodation="prototype").fit(X, y)
    assert "deep-mahalanobis" in model.score_names
    model.remember(X[:40], y[:40]).add_class(digits(7)[0], 7, (X[:40], y[:40]))
    X_new, y_new = digits(0, 1, 2, 3, 7)[1::2]
    model.save(tmp_path / "held")
    for held in (model, SHELSClassifier.load(tmp_path / "held")):
        held.set_params(score="deep-mahalanobis")
        assert held.score(X_test, y_test) > 0.95
        assert held.score(X_new, y_new) > 0.9
    assert model.stored_.statistics.count.sum() == len(y) + len(digits(7)[0])


@pytest.mark.parametrize("score", ["prototype", "knn", "deep-knn", "deep-mahalanobis"])
def test_a_class_left_out_is_as_if_it_had_never_been_learnt(fitted, score):
    _, X, X_test, y, _ = fitted
    five = digits(5)[0]
    never, grown = (small(accommodation="prototype").fit(X, y) for _ in range(2))
    never.add_class(five, 5)
    grown.add_class(digits(7)[0], 7).add_class(five, 5)
    left = grown.without_class(7)
    for model in (left, never):  # stored examples are drawn at random: compare with the same
        model.remember(np.concatenate([X, five]), np.append(y, [5] * len(five)))
    assert left.classes_.tolist() == never.classes_.tolist() == [0, 1, 2, 3, 5]
    np.testing.assert_array_equal(left.similarity(X_test, score), never.similarity(X_test, score))
    assert grown.classes_.tolist() == [0, 1, 2, 3, 7, 5]
    assert grown.similarity(X_test, score).shape == (len(X_test), 6)
    assert left.add_class(digits(7)[0], 7).classes_.tolist() == [0, 1, 2, 3, 5, 7]


def test_what_cannot_be_left_out_is_refused(fitted):
    model, _, _, _, _ = fitted
    with pytest.raises(ValueError, match="class 8 is not known"):
        model.without_class(8)
    with pytest.raises(ValueError, match="only of a network that stays as it is"):
        model.without_class(0)


def test_statistics_end_where_the_network_changes(fitted):
    _, X, X_test, y, _ = fitted
    model = small(accommodation="prototype").fit(X, y)
    model.set_params(accommodation="replay", accommodation_steps=2)
    model.add_class(digits(7)[0], 7, (X, y))
    assert "deep-mahalanobis" not in model.score_names
    with pytest.raises(ValueError, match="a network that stays as it is"):
        model.similarity(X_test, "deep-mahalanobis")
