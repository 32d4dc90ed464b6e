"""save and load: the same model afterwards, and a clear word about every damaged file."""

import copy
import dataclasses
import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

import limen
from conftest import blobs
from limen import ModelFileError, OpenSetClassifier, known_rate, model_file, storage
from limen.packing import unpack_estimator

ESTIMATORS = [
    LogisticRegression(max_iter=500),
    SVC(),
    RandomForestClassifier(5),
    HistGradientBoostingClassifier(max_iter=5),
    GaussianNB(),
    SGDClassifier(),
    MLPClassifier((8,), max_iter=300, solver="lbfgs"),
    make_pipeline(StandardScaler(), LogisticRegression()),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::limen.DegenerateClassWarning"),
    pytest.mark.filterwarnings("ignore::limen.UninformativeClassWarning"),
]


@pytest.fixture
def saved(tmp_path, known):
    path = tmp_path / "blobs.limen"
    OpenSetClassifier(SVC(), random_state=0).fit(*known).save(path)
    return path


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_loaded_in_the_middle_of_a_stream_it_goes_on_alike(estimator, tmp_path, known):
    X, y = known
    model = OpenSetClassifier(
        estimator, objective=known_rate(0.9), rule="mean", memory=12, random_state=1
    ).fit(X, y)
    model.learn_class(blobs([3])[0], 3)
    model.save(tmp_path / "model.limen")
    again = limen.load(tmp_path / "model.limen")
    for _ in range(2):  # as loaded, and after learning more
        assert (again.strangeness(X) == model.strangeness(X)).all()
        assert (again.predict(X) == model.predict(X)).all()
        assert again.continual_eta_.history == model.continual_eta_.history
        assert again.fold_choices_ == model.fold_choices_
        assert again.detect_novelty(X) == model.detect_novelty(X)
        assert again.expected_novel_accuracy_ == model.expected_novel_accuracy_
        for each in (model, again):
            if 4 not in each.classes_:
                each.learn_class(blobs([4])[0], 4)
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()


def test_frames_text_labels_sparse_rows_and_raw_text(tmp_path, known):
    X, y = known
    names = np.array(["ant", "bee", "cät"])
    frame = pd.DataFrame(X, columns=list("abcd"))
    words = np.array([" ".join([n] * 3) for n in names])[y]
    cases = {
        "frame": (SVC(), frame, frame.iloc[:9]),
        "sparse": (LogisticRegression(), sparse.csr_matrix(X), sparse.csr_matrix(X[:9])),
        "text": (make_pipeline(TfidfVectorizer(), LogisticRegression()), words, words[:9]),
    }
    for name, (estimator, rows, new) in cases.items():
        model = OpenSetClassifier(estimator, random_state=0).fit(rows, names[y])
        model.save(tmp_path / name)
        again = limen.load(tmp_path / name)
        assert (again.predict(rows) == model.predict(rows)).all()
        again.learn_class(new, "zebra")
        model.learn_class(new, "zebra")
        assert (again.predict(rows) == model.predict(rows)).all()


def test_numpy_settings_and_open_intervals_are_stored_as_plain_json(tmp_path, known):
    X, y = known
    model = OpenSetClassifier(
        SVC(), memory=np.int64(30), calibration_size=np.float32(0.25), unknown_label=np.int64(-5)
    ).fit(X, y)
    choice = model.fold_choices_[0]
    model.fold_choices_[0] = dataclasses.replace(choice, interval=(-np.inf, choice.interval[1]))
    model.save(tmp_path / "model")
    text = (tmp_path / "model" / "manifest.json").read_text()
    assert "Infinity" not in text
    again = limen.load(tmp_path / "model")
    assert again.fold_choices_ == model.fold_choices_
    assert (again.predict(X) == model.predict(X)).all()


def test_a_series_of_texts_and_odd_columns(tmp_path, known):
    X, y = known
    words = pd.Series(np.array(["ant ant", "bee bee", "cat cat"])[y])
    model = OpenSetClassifier(make_pipeline(TfidfVectorizer(), SVC()), random_state=0)
    model.fit(words, y).save(tmp_path / "words")
    assert (limen.load(tmp_path / "words").predict(words) == model.predict(words)).all()
    frame = pd.DataFrame(X, columns=pd.MultiIndex.from_product([["a", "b"], ["c", "d"]]))
    with pytest.raises(ModelFileError, match="columns that are not named by text"):
        OpenSetClassifier(SVC()).fit(frame, y).save(tmp_path / "multi")


def test_a_strangers_manifest_is_not_overwritten(tmp_path, known):
    (tmp_path / "manifest.json").write_text('{"name": "my web app"}')
    with pytest.raises(ModelFileError, match="is something else"):
        OpenSetClassifier(SVC()).fit(*known).save(tmp_path)
    assert "my web app" in (tmp_path / "manifest.json").read_text()


def test_saving_again_replaces_and_leaves_nothing_behind(saved):
    model = limen.load(saved)
    model.learn_class(blobs([3])[0], 3)
    model.save(saved)
    assert 3 in limen.load(saved).classes_
    assert sorted(p.suffix for p in saved.iterdir()) == [".json"] * 2 + [".safetensors", ".skops"]


def test_a_save_that_breaks_off_leaves_the_old_model(saved, known, monkeypatch):
    model = limen.load(saved)
    old = model.strangeness(known[0])
    model.learn_class(blobs([3])[0], 3)
    real = os.replace

    def disk_full(source, target):
        if str(target).endswith("manifest.json"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", disk_full)
    with pytest.raises(ModelFileError, match=r"No space left.*What was there is as it was"):
        model.save(saved)
    monkeypatch.undo()
    assert (limen.load(saved).strangeness(known[0]) == old).all()
    assert storage.read_model(saved, 1)[0]["classes"] == [0, 1, 2]


def edit(path, change):
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def part(path, suffix):
    return next(path.glob(f"*.{suffix}"))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link(path):
    shutil.move(path, path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def reshape(path, shape):
    """A memory part whose header claims another shape, with a checksum that vouches for it."""
    old = part(path, "safetensors")
    data = old.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["X"]["shape"] = shape
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + data[8 + length :]
    digest = hashlib.sha256(data).hexdigest()
    name = f"memory-{digest[:16]}.safetensors"
    (path / name).write_bytes(data)
    facts = {"file": name, "bytes": len(data), "sha256": digest}
    edit(path, lambda m: m["parts"].update(memory=facts))


def swap_parts(manifest):
    parts = manifest["parts"]
    parts["memory"], parts["estimator"] = parts["estimator"], parts["memory"]


def pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = [
    (lambda p: shutil.rmtree(p), "there is no model at"),
    (lambda p: (p / "manifest.json").unlink(), "manifest.json cannot be read"),
    (lambda p: (p / "manifest.json").write_text("{"), "manifest.json is damaged"),
    (lambda p: (p / "manifest.json").write_bytes(b"\xff\xfe"), "manifest.json is damaged"),
    (lambda p: (p / "manifest.json").write_text("[]"), "not that of a limen model"),
    (lambda p: edit(p, lambda m: m.update(format=99)), "format 99.*install a newer limen"),
    (lambda p: edit(p, lambda m: m.pop("parts")), "lacks its list of parts"),
    (lambda p: edit(p, lambda m: m.pop("classes")), "does not fit together"),
    (lambda p: edit(p, lambda m: m["statistics"].update(count=[1])), "does not fit together"),
    (lambda p: edit(p, lambda m: m["parts"]["memory"].update(file="../x")), "list of parts"),
    (lambda p: edit(p, lambda m: m["parts"]["memory"].update(file="/etc/passwd")), "list of parts"),
    (lambda p: edit(p, lambda m: m["parts"]["memory"].update(bytes=1 << 50)), "list of parts"),
    (lambda p: edit(p, lambda m: m["parts"]["memory"].update(bytes=-1)), "list of parts"),
    (lambda p: edit(p, lambda m: m["parts"].update(memory=3)), "list of parts"),
    (lambda p: edit(p, lambda m: m["config"].update(evil=1)), "does not fit together.*evil"),
    (lambda p: edit(p, lambda m: m["memory"]["X"].update(kind="magic")), "does not fit together"),
    (lambda p: edit(p, lambda m: m["estimator"].update(kind="magic")), "unknown kind 'magic'"),
    (lambda p: reshape(p, [1 << 40, 1 << 20]), "a part of the model is damaged"),
    (lambda p: edit(p, swap_parts), "does not fit together|damaged|cannot be read"),
    (lambda p: (p / "manifest.json").write_text("[" * 100_000), "manifest.json is damaged"),
    (lambda p: (p / "manifest.json").write_text(" " * (17 << 20)), "larger than it may be"),
    (lambda p: pipe(part(p, "skops")), "not a plain file"),
    (lambda p: edit(p, lambda m: m["parts"]["memory"].update(bytes=3)), "larger than it may be"),
    (lambda p: flip(part(p, "safetensors")), "truncated or altered"),
    (lambda p: flip(part(p, "skops")), "truncated or altered"),
    (lambda p: part(p, "skops").write_bytes(b""), "truncated or altered"),
    (lambda p: part(p, "skops").unlink(), "cannot be read: No such file"),
    (lambda p: link(part(p, "skops")), "cannot be read"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_a_damaged_file_is_named_and_refused(damage, message, saved):
    damage(saved)
    with pytest.raises(ModelFileError, match=message):
        limen.load(saved)


def test_what_cannot_be_stored_is_said_and_nothing_is_written(tmp_path, known):
    path = tmp_path / "no.limen"
    own = OpenSetClassifier(SVC(), objective=lambda k, n: k * n).fit(*known)
    with pytest.raises(ModelFileError, match="objective is a function"):
        own.save(path)
    pipeline = make_pipeline(FunctionTransformer(blobs_away), SVC())
    with pytest.raises(ModelFileError, match=r"cannot be stored safely.*blobs_away"):
        OpenSetClassifier(pipeline).fit(*known).save(path)
    assert not path.exists()


def blobs_away(X):
    return X


def test_other_peoples_files_are_not_overwritten(tmp_path, known):
    model = OpenSetClassifier(SVC()).fit(*known)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelFileError, match="is something else"):
        model.save(tmp_path)
    with pytest.raises(ModelFileError, match="is no limen model"):
        model.save(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


# ---- versions, and one file


def test_versions_stand_side_by_side(saved, known):
    old = limen.load(saved).strangeness(known[0])
    model = limen.load(saved).learn_class(blobs([3])[0], 3)
    assert model_file.save(model, saved, {"what": "learnt 3"}, keep=True) == 2
    assert [(v["version"], v.get("what")) for v in storage.versions(saved)] == [
        (1, None),
        (2, "learnt 3"),
    ]
    assert 3 in limen.load(saved).classes_
    storage.activate(saved, 1)
    assert (limen.load(saved).strangeness(known[0]) == old).all()
    storage.activate(saved, 2)
    assert 3 in limen.load(saved).classes_
    with pytest.raises(ModelFileError, match=r"no version 9, but \[1, 2\]"):
        storage.activate(saved, 9)
    limen.load(saved).save(saved)  # a plain save starts anew
    assert len(storage.versions(saved)) == 1
    assert sorted(p.suffix for p in saved.iterdir()) == [".json"] * 2 + [".safetensors", ".skops"]


def test_a_version_whose_parts_are_damaged_is_not_activated(saved):
    model = limen.load(saved).learn_class(blobs([3])[0], 3)
    first = storage.read_manifest(saved)["parts"]["memory"]["file"]
    model_file.save(model, saved, keep=True)
    flip(saved / first)
    with pytest.raises(ModelFileError, match="truncated or altered"):
        storage.activate(saved, 1)
    assert 3 in limen.load(saved).classes_


def test_one_file_is_as_good_as_a_folder(saved, tmp_path, known):
    model, path = limen.load(saved), tmp_path / "one.limen"
    model.save(path, as_zip=True)
    assert path.is_file()
    assert (limen.load(path).predict(known[0]) == model.predict(known[0])).all()
    model.learn_class(blobs([3])[0], 3)
    model_file.save(model, path, keep=True)  # what is a file stays one
    assert path.is_file()
    assert [v["version"] for v in storage.versions(path)] == [1, 2]
    storage.activate(path, 1)
    assert 3 not in limen.load(path).classes_
    with zipfile.ZipFile(path) as file:
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.parametrize("as_zip", [False, True])
def test_killed_at_any_moment_the_old_version_or_the_new_one_is_there(saved, tmp_path, as_zip):
    path = saved
    if as_zip:
        path = tmp_path / "one.limen"
        limen.load(saved).save(path, as_zip=True)
    program = (
        "import sys, limen; from limen import model_file\n"
        "model = limen.load(sys.argv[1]); print('ready', flush=True)\n"
        "while True: model_file.save(model, sys.argv[1], {'what': 'again'}, keep=True)\n"
    )
    rng, last = np.random.default_rng(0), 1
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(float(rng.uniform(0.01, 0.3)))
        process.kill()
        process.communicate()
        limen.load(path)
        numbers = [facts["version"] for facts in storage.versions(path)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= last
        for number in numbers:
            storage.read_model(path, number)
        last = len(numbers)


def rezipped(path, change):
    with zipfile.ZipFile(path) as file:
        files = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        change(file, files)


def bomb(file, files):
    for name, data in files.items():
        how = zipfile.ZIP_DEFLATED if name.endswith(".safetensors") else zipfile.ZIP_STORED
        data = bytes(50 << 20) if name.endswith(".safetensors") else data
        file.writestr(name, data, how)


def twice(file, files):
    for name, data in [*files.items(), *files.items()]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file.writestr(name, data)


def elsewhere(file, files):
    for name, data in files.items():
        file.writestr(f"../{name}", data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bomb, "compressed, or larger than it may be"),
        (twice, "holds 2 files called manifest.json"),
        (elsewhere, "holds 0 files called manifest.json"),
    ],
)
def test_a_hostile_zip_is_refused(change, message, saved, tmp_path):
    path = tmp_path / "one.limen"
    limen.load(saved).save(path, as_zip=True)
    rezipped(path, change)
    with pytest.raises(ModelFileError, match=message):
        limen.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelFileError, match="is no limen model"):
        limen.load(path)


def test_a_compressed_estimator_is_refused(saved):
    data = part(saved, "skops").read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w", 8) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ModelFileError, match="compressed"):
        unpack_estimator(packed.getvalue())


def test_while_one_changes_a_model_another_is_refused(saved):
    with storage.locked(saved):
        program = (
            "import sys; from limen.storage import locked, ModelFileError\n"
            "try:\n    with locked(sys.argv[1]): print('in')\n"
            "except ModelFileError as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(saved)], capture_output=True, text=True, check=True
        )
    assert "being changed by another process" in done.stdout
    with storage.locked(saved):
        pass


def mutated(rng, data):
    """The bytes with something flipped, cut, doubled or overwritten."""
    data, kind = bytearray(data), rng.integers(5)
    place = int(rng.integers(len(data)))
    if kind == 0:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del data[place : place + int(rng.integers(1, 20))]
    elif kind == 2:
        data[place:place] = data[place : place + int(rng.integers(1, 20))]
    elif kind == 3:
        data[place : place + 4] = rng.bytes(4)
    else:
        words = [b"null", b"-1", b"1e999", b"[]", b"{}", b'"x"', b"99999999999999999999", b"true"]
        data[place : place + int(rng.integers(1, 8))] = words[rng.integers(len(words))]
    return bytes(data)


class Bag:
    """Files in memory, as a container."""

    path = Path("fuzzed")

    def __init__(self, files):
        self.files = files

    def names(self):
        return list(self.files)

    def read(self, name, limit):
        if name not in self.files or len(self.files[name]) > limit:
            raise ModelFileError("not there")
        return self.files[name]


@pytest.mark.parametrize("seed", range(4))
def test_no_mutated_file_breaks_anything_but_the_loading(seed, saved):
    """5,000 files each: half mutated as they are, half with checksums that vouch for the damage."""
    rng = np.random.default_rng(seed)
    files = {p.name: p.read_bytes() for p in saved.iterdir()}
    manifest = json.loads(files["manifest.json"])
    refused, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(5000):
        name = "manifest.json"
        if number % 3 == 0:
            kind = ("memory", "estimator")[number % 2]
            name = manifest["parts"][kind]["file"]
        changed = {**files, name: mutated(rng, files[name])}
        if name != "manifest.json" and number % 2 == 0:
            facts = copy.deepcopy(manifest)
            data = changed[name]
            facts["parts"][kind] |= {
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            changed["manifest.json"] = json.dumps(facts).encode()
        try:
            facts, parts = storage.read_container(Bag(changed))
            model_file.assemble("fuzzed", facts, parts, OpenSetClassifier)
        except ModelFileError:
            refused += 1
    assert refused > 4000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # in KiB


def test_a_file_of_format_1_loads_as_ever():
    """Written when the format was fixed, and committed; it must load for good."""
    fixtures = Path(__file__).parent / "fixtures"
    model = limen.load(fixtures / "format-1")
    expected = json.loads((fixtures / "format-1-expected.json").read_text())
    X = np.array(expected["X"])
    assert model.predict(X).tolist() == expected["labels"]
    np.testing.assert_allclose(model.strangeness(X), expected["strangeness"], rtol=1e-6)
    assert storage.read_manifest(fixtures / "format-1")["format"] == 1
    model.learn_class(blobs([4])[0], 4)  # and it goes on learning
    assert 4 in model.classes_
