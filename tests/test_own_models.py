"""One's own data from the command line: fit, predict, learn, look, undo."""

import contextlib
import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import limen
from limen import storage
from limen.app import models
from limen.cli.app import app
from limen.cli.errors import explained

ROOT = Path(__file__).resolve().parents[1]
KNOWN = (0, 1, 2, 3)


def write_digits(folder, digit, rows, prefix="", size=None):
    data = load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    for i in np.flatnonzero(data.target == digit)[rows]:
        picture = Image.fromarray(np.round(data.images[i] * (255 / 16)).astype(np.uint8))
        picture = picture.resize(size) if size else picture
        picture.save(folder / f"{prefix}{i:04d}.png")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Known digits by folder, a mixed inbox with sixes in it, sixes to learn, and later ones."""
    root = tmp_path_factory.mktemp("pictures")
    for digit in KNOWN:
        write_digits(root / "known" / f"digit{digit}", digit, slice(0, 60))
        write_digits(root / "mixed", digit, slice(60, 80), f"old-{digit}-")
        write_digits(root / "later" / f"digit{digit}", digit, slice(80, 120))
    write_digits(root / "mixed", 6, slice(0, 60), "new-")
    write_digits(root / "six", 6, slice(60, 120))
    return root


@pytest.fixture(scope="session")
def fitted(pictures, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "digits.limen"
    ran = call("fit", pictures / "known", "--out", path, "--model", "SVC", "--jobs", 1)
    assert ran.exit_code == 0, ran.output
    return path, ran.output


@pytest.fixture
def model(fitted, tmp_path):
    return Path(shutil.copytree(fitted[0], tmp_path / "digits.limen"))


def call(*words):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def limen_process(*words, **settings):
    return subprocess.run(
        [sys.executable, "-m", "limen", *map(str, words)],
        capture_output=True,
        text=True,
        **settings,
    )


def test_fit_says_what_it_expects_of_itself(fitted):
    path, said = fitted
    assert "expects to name" in said
    assert "of what it has never seen" in said
    for digit in KNOWN:
        assert f"digit{digit}" in said
    assert "hardest to tell apart when unknown" in said
    assert models.open_model(path).inputs.shape == (8, 8)


def test_predict_names_or_says_unknown_and_raises_the_alarm(model, pictures, tmp_path):
    out = tmp_path / "verdicts.csv"
    ran = call("predict", model, pictures / "mixed", "--out", out)
    assert ran.exit_code == 0
    assert "something new is here" in ran.output
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 140
    assert list(rows[0]) == ["input", "label", "strangeness", "margin", "nearest"]
    opened = limen.load(model)
    for row in rows:
        unknown = float(row["margin"]) <= 0
        assert (row["label"] == "unknown") is unknown
        assert unknown or row["label"] == row["nearest"]
        assert float(row["strangeness"]) + float(row["margin"]) == pytest.approx(opened.eta_)
    new = [row["label"] == "unknown" for row in rows if "new-" in row["input"]]
    old = [
        row["label"] == f"digit{Path(row['input']).name[4]}"
        for row in rows
        if "old-" in row["input"]
    ]
    assert np.mean(new) > 0.6
    assert np.mean(old) > 0.6


def test_predict_as_json_lines(model, pictures):
    lines = call("predict", model, pictures / "mixed", "--json").output.splitlines()
    *verdicts, end = map(json.loads, lines)
    assert len(verdicts) == end["total"] == 140
    assert end["unknown"] == sum(v["label"] == "unknown" for v in verdicts)
    assert end["alarm"] is True
    assert end["p_value"] < 0.01


def test_novel_pictures_are_moved_and_none_is_lost(model, pictures, tmp_path):
    inbox = tmp_path / "inbox"
    for part in ("a", "b"):
        shutil.copytree(pictures / "mixed", inbox / part)
    aside = tmp_path / "aside"
    (aside / "a").mkdir(parents=True)
    taken = next((inbox / "a").glob("new-*"))
    (aside / "a" / taken.name).write_text("already here")
    before = sorted(p.name for p in inbox.rglob("*.png"))
    call("predict", model, inbox, "--move-novel", aside, "--quiet")
    left, moved = (
        list(inbox.rglob("*.png")),
        [p for p in aside.rglob("*.png") if p.stat().st_size > 20],
    )
    assert len(left) + len(moved) == len(before)
    assert (aside / "a" / taken.name).read_text() == "already here"
    assert len(moved) > 60


def test_what_cannot_be_read_is_listed_and_skipped(model, pictures, tmp_path):
    inbox = tmp_path / "inbox"
    shutil.copytree(pictures / "mixed", inbox)
    (inbox / "broken.png").write_bytes(b"not a picture")
    (inbox / "notes.txt").write_text("no picture either, and not looked at")
    ran = call("predict", model, inbox, "--out", tmp_path / "v.csv")
    assert ran.exit_code == 3
    assert "skipped" in ran.output
    assert "broken.png" in ran.output
    assert len((tmp_path / "v.csv").read_text().splitlines()) == 141


def test_pictures_of_other_sizes_and_modes_are_brought_to_shape(pictures, tmp_path):
    shutil.copytree(pictures / "known", tmp_path / "known")
    write_digits(tmp_path / "known" / "digit0", 0, slice(130, 140), "big-", size=(32, 32))
    colour = tmp_path / "known" / "digit1" / "colour.png"
    Image.new("RGB", (8, 8), (200, 10, 10)).save(colour)
    ran = call(
        *("fit", tmp_path / "known", "--out", tmp_path / "m", "--model", "GaussianNB", "--jobs", 1)
    )
    assert "pictures of 2 sizes were scaled to 8x8" in ran.output
    assert "grey pictures were brought to colour" in ran.output
    assert models.open_model(tmp_path / "m").inputs.shape == (8, 8, 3)


def test_learn_improves_then_learns_and_keeps_the_old_version(model, pictures):
    before = limen.load(model)
    told = json.loads(call("learn", model, pictures / "six", "--label", "six", "--json").output)
    after = limen.load(model)
    assert told["eta"] == [before.eta_, after.eta_]
    assert told["version"] == 2
    assert told["points"] == 60
    assert told["old_accuracy"][1] > told["old_accuracy"][0] - 0.2
    assert after.classes_.tolist() == [*before.classes_.tolist(), "six"]
    verdicts = call("predict", model, pictures / "six").output
    assert verdicts.count(": six,") > 30
    history = json.loads(call("history", model, "--json").output)
    assert [(line["version"], line["in_use"]) for line in history] == [(1, False), (2, True)]
    assert history[1]["what"] == "learnt six"
    assert call("undo", model).exit_code == 0
    assert limen.load(model).classes_.tolist() == before.classes_.tolist()
    assert call("undo", model, "--to", 2).exit_code == 0
    assert "six" in limen.load(model).classes_.tolist()


def test_undo_goes_to_where_a_version_came_from(model, pictures):
    """After a rejected version, the next one grows from the one before it, and goes back there."""
    learnt = [("learn", model, pictures / "six", "--label", name, "-q") for name in ("six", "nix")]
    call(*learnt[0])
    call("undo", model)
    call(*learnt[1])
    assert "six" not in limen.load(model).classes_
    call("undo", model)
    assert storage.read_manifest(model)["version"] == 1


def test_what_begins_well_and_ends_early_is_left_out(pictures, tmp_path):
    shutil.copytree(pictures / "known", tmp_path / "known")
    whole = tmp_path / "whole.jpg"
    Image.new("L", (64, 64), 99).save(whole)
    (tmp_path / "known" / "digit0" / "cut.jpg").write_bytes(whole.read_bytes()[:-200])
    how = ("--out", tmp_path / "m", "--model", "GaussianNB", "--jobs", 1)
    ran = call("fit", tmp_path / "known", *how)
    assert ran.exit_code == 0, ran.output
    assert "left out" in ran.output
    ran = call("predict", tmp_path / "m", tmp_path / "known" / "digit0" / "cut.jpg")
    assert ran.exit_code == 3


def test_names_are_taken_as_they_are(pictures, tmp_path):
    """Class names that mean something to rich, to CSV and to people."""
    names = ["[red]", "a[bold]b", 'x,"y"', "unknown?"]
    for digit, name in zip(KNOWN, names, strict=True):
        shutil.copytree(pictures / "known" / f"digit{digit}", tmp_path / "known" / name)
    path, out = tmp_path / "m", tmp_path / "v.csv"
    ran = call("fit", tmp_path / "known", "--out", path, "--model", "SVC", "--jobs", 1)
    assert ran.exit_code == 0, ran.output
    assert "[red]" in ran.output
    call("predict", path, pictures / "mixed", "--out", out)
    said = {row["nearest"] for row in csv.DictReader(out.read_text().splitlines())}
    assert said <= set(names)


def test_row_numbers_are_no_feature(tmp_path):
    data = load_digits()
    known = data.target < 3
    table = pd.DataFrame(data.data[known]).add_prefix("p").assign(label=data.target[known])
    table.to_csv(tmp_path / "t.csv")
    ran = call("fit", tmp_path / "t.csv", "--out", tmp_path / "m", "--jobs", 1)
    assert "taken for row numbers" in ran.output
    assert models.open_model(tmp_path / "m").inputs.columns[0] == "p0"


def test_a_dry_run_shows_the_same_and_saves_nothing(model, pictures):
    files = {p.name: p.read_bytes() for p in model.iterdir()}
    dry = json.loads(
        call("learn", model, pictures / "six", "--label", "6", "--dry-run", "--json").output
    )
    assert {p.name: p.read_bytes() for p in model.iterdir()} == files
    real = json.loads(call("learn", model, pictures / "six", "--label", "6", "--json").output)
    assert dry.pop("version") is None
    assert real.pop("version") == 2
    assert dry == real


def test_info_tells_everything_and_vouches_for_it(model, pictures):
    call("learn", model, pictures / "six", "--label", "six", "--quiet")
    told = json.loads(call("info", model, "--json").output)
    assert [one["label"] for one in told["classes"]][-1] == "six"
    assert told["versions"] == [1, 2]
    assert told["eta_history"][-1]["source"] == "discovered"
    assert told["inputs"] == {"kind": "images", "shape": [8, 8], "columns": [], "flat": True}
    assert set(told["sha256"]) == {"memory", "estimator"}
    said = call("info", model).output
    assert "discovered six: asked for" in said
    part = model / storage.read_manifest(model)["parts"]["memory"]["file"]
    part.write_bytes(part.read_bytes()[:-1])
    assert "truncated or altered" in limen_process("info", model).stderr


def test_check_passes_what_is_as_ever_and_fails_what_has_drifted(model, pictures, tmp_path):
    ran = call("check", model, pictures / "later", "--level", 1e-6, "--least", 0.7)
    assert ran.exit_code == 0, ran.output
    dark = tmp_path / "dark"
    for path in (pictures / "later").rglob("*.png"):
        target = dark / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as picture:
            Image.fromarray(np.asarray(picture) // 3).save(target)
    shutil.copytree(pictures / "six", dark / "six")
    ran = call("check", model, dark, "--json")
    assert ran.exit_code == 4
    told = json.loads(ran.output)
    assert told["failed"]
    assert told["drift"] < 1e-6
    assert told["novel"] is not None


def test_explain_draws_the_input_the_scores_and_what_is_near(model, pictures, tmp_path):
    out = tmp_path / "why.png"
    picture = next((pictures / "six").glob("*.png"))
    said = call("explain", model, picture, "--out", out).output
    assert "strangeness" in said
    with Image.open(out) as drawn:
        assert drawn.size[0] > 800
    ran = limen_process("explain", model, pictures / "six", "--out", out)
    assert ran.returncode == 1
    assert "one at a time" in ran.stderr


def test_tables_with_named_columns(tmp_path):
    data = load_digits()
    names = [f"p{i}" for i in range(64)]
    table = pd.DataFrame(data.data, columns=names).assign(digit=data.target)
    table[table["digit"] < 4].to_csv(tmp_path / "known.csv", index=False)
    table[table["digit"] == 6].drop(columns="digit").to_csv(tmp_path / "six.csv", index=False)
    path = tmp_path / "m.limen"
    ran = call(
        "fit", tmp_path / "known.csv", "--label", "digit", "--out", path, "--jobs", 1, "--zip"
    )
    assert ran.exit_code == 0, ran.output
    assert path.is_file()
    assert "something new is here" in call("predict", path, tmp_path / "six.csv").output
    assert call("learn", path, tmp_path / "six.csv", "--label", "6").exit_code == 0
    assert path.is_file()
    shuffled = table[table["digit"] == 6][names[::-1]]
    shuffled.to_parquet(tmp_path / "six.parquet")
    one, other = (call("predict", path, tmp_path / f"six.{s}").output for s in ("csv", "parquet"))
    assert one == other  # columns go by name
    table[names[:5]].to_csv(tmp_path / "few.csv", index=False)
    assert "lacks the columns" in limen_process("predict", path, tmp_path / "few.csv").stderr


def test_shels_on_pictures(pictures, tmp_path):
    path = tmp_path / "m.limen"
    ran = call(
        "fit", pictures / "known", "--out", path, "--epochs", 8, "--model", "shels", "--jobs", 1
    )
    assert ran.exit_code == 0, ran.output
    ran = call("learn", path, pictures / "six", "--label", "six", "--json")
    assert json.loads(ran.output)["version"] == 2
    out = tmp_path / "why.png"
    call("explain", path, next((pictures / "six").glob("*.png")), "--out", out)
    assert out.stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "{known}", "--model", "SVM"], "Did you mean 'SVC'"),
        (["fit", "{known}", "--method", "papr"], "Did you mean 'paper'"),
        (["fit", "{known}", "--holdout", "2"], "holdout must lie between 0 and 1"),
        (["fit", "{known}/digit0"], "holds no folders"),
        (["fit", "nowhere"], "there is no nowhere"),
        (["fit", "{known}", "--model", "VotingClassifier"], "needs estimators"),
        (["fit", "{known}", "--model", "SVC", "--epochs", "3"], "epochs go with"),
        (["predict", "nowhere.limen", "{known}"], "there is no model at"),
        (["predict", "{model}", "nowhere"], "there is no nowhere"),
        (["predict", "{known}", "{known}"], "cannot be read"),
        (["learn", "{model}", "{known}/digit0", "--label", "digit0"], "digit0"),
        (["learn", "{model}", "{known}/digit0", "--label", "unknown"], "unknown"),
        (["undo", "{model}"], "has no version before 1"),
        (["fit", "{known}", "--out", "{model}"], "is there already"),
        (["fit", "{known}", "--out", "{known}"], "cannot be read"),
        (["fit", "{known}", "--model", "CalibratedClassifierCV"], "cannot be stored"),
        (["predict", "{model}", "{known}", "--out", "nowhere/v.csv"], "no folder for it"),
        (["predict", "{model}", "{known}", "--move-novel", "{known}/new"], "lies inside"),
        (["check", "{model}", "{other}"], "holds no class that the model knows"),
        (["predict", "{model}", "{floats}"], "takes images as bytes"),
        (["undo", "{model}", "--to", "7"], "no version 7"),
    ],
)
def test_a_mistake_gets_a_sentence(words, message, model, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"{known}": str(pictures / "known"), "{model}": str(model)}
    places |= {"{other}": str(tmp_path / "other"), "{floats}": str(tmp_path / "floats.npz")}
    shutil.copytree(pictures / "six", tmp_path / "other" / "six")
    np.savez(tmp_path / "floats.npz", X=np.zeros((3, 8, 8)))
    files = {p.name: p.read_bytes() for p in model.iterdir()}
    filled = [word.replace(*pair) for word in words for pair in [_place(word, places)]]
    with explained_here() as said:
        app([str(word) for word in filled], standalone_mode=False)
    assert message in said.getvalue()
    assert {p.name: p.read_bytes() for p in model.iterdir()} == files


@contextlib.contextmanager
def explained_here():
    """As the program does with a mistake, in this process: a sentence, and exit code 1."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as left, explained():
        yield said
    assert left.value.code == 1


def _place(word, places):
    return next(((name, path) for name, path in places.items() if name in word), ("\0", ""))


def test_two_that_learn_at_once_do_not_mix(model, pictures):
    """One waits or is refused, and what the other learnt is there."""
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "limen",
                "learn",
                str(model),
                str(pictures / "six"),
                "--label",
                name,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("six", "sechs")
    ]
    ends = [(process.communicate()[1], process.returncode) for process in both]
    labels = limen.load(model).classes_.tolist()
    for (said, code), name in zip(ends, ("six", "sechs"), strict=True):
        assert (code == 0) is (name in labels)
        assert code == 0 or "being changed by another process" in said
    assert any(code == 0 for _, code in ends)


def test_interrupted_it_leaves_everything_as_it_was(model, pictures, tmp_path):
    inbox = tmp_path / "inbox"
    for number in range(20):
        shutil.copytree(pictures / "mixed", inbox / str(number))
    out = tmp_path / "verdicts.csv"
    out.write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-m", "limen", "predict", str(model), str(inbox), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    part = tmp_path / ".verdicts.csv.part"
    while not part.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode != 0
    assert "Traceback" not in said
    assert out.read_text() == "old"
    assert not part.exists()


def test_the_walk_through_of_the_docs(tmp_path):
    """At smoke size: digits for clothes, an SVC for the network."""
    out = tmp_path / "told.md"
    walk = ["--dataset", "digits", "--per-class", "60", "--folder", tmp_path / "walk"]
    how = ["--out", out, "--picture", tmp_path / "why.png", "--", "--model", "SVC", "--jobs", "1"]
    words = [sys.executable, ROOT / "examples" / "own_data.py", *walk, *how]
    subprocess.run([str(word) for word in words], check=True)
    told = out.read_text()
    for said in (
        "expects to name",
        "unknown, at most",
        "saved version 2",
        "known classes",
        "learnt 5",
    ):
        assert said in told
    assert (tmp_path / "why.png").exists()
    named = int(told.rpartition("in the inbox, ")[2].split()[0])
    assert named > 20
