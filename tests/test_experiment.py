"""The protocol: what a run is, what it records, and that nothing interrupts it for good."""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from limen.datasets import DatasetError
from limen.experiment.config import ConfigError, RunConfig, difference, read_settings
from limen.experiment.files import RunFolderError, read_arrays, write_bytes
from limen.experiment.judging import Step, aligned, view
from limen.experiment.plan import (
    Unit,
    calibration_rows,
    class_order,
    data_of,
    steps_of,
    training_rows,
    units_of,
)
from limen.experiment.policies import accuracies, keeping, seed_record, separation
from limen.experiment.run import RunFolder, run
from limen.experiment.units import run_stream
from limen.shels.scores import scores_to_try

BLOBS = 6


@pytest.fixture(scope="session")
def blobs(tmp_path_factory):
    """Six classes of points in a file: trained in a moment."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(BLOBS), 60)
    X = rng.normal(size=(len(y), 8)) + 4 * np.eye(BLOBS, 8)[y]
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    np.savez(path, X=X.astype(np.float32), y=y)
    return path


def tiny(blobs, **changes):
    settings = {"dataset": str(blobs), "known": 4, "epochs": 3, "lr": 1e-3}
    return RunConfig.resolve({**settings, "accommodation_epochs": 2, **changes})


@pytest.fixture(scope="session")
def finished(blobs, tmp_path_factory):
    """A finished run of two seeds, with its models."""
    out = tmp_path_factory.mktemp("run") / "blobs"
    events = []
    run(tiny(blobs), range(2), out, keep_models=True, report=events.append)
    return out, events


def records(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("seed-*.json"))}


# ---- settings


def test_presets_are_the_papers_and_a_tenth_of_it():
    paper = {
        name: RunConfig.resolve({"dataset": name}) for name in ("mnist", "fashion-mnist", "cifar10")
    }
    assert [config.epochs for config in paper.values()] == [10, 20, 35]
    assert [config.accommodation_lr for config in paper.values()] == [1e-5, 5e-5, 5e-5]
    assert all(c.batch_size == 32 and c.per_class is None for c in paper.values())
    small = RunConfig.resolve({"dataset": "mnist", "preset": "small"})
    assert (small.per_class, small.epochs) == (1000, 6)


def test_the_paper_preset_is_what_shels_calls_its_preset():
    from limen.shels import SHELSClassifier

    for name in ("digits", "mnist", "fashion-mnist", "cifar10"):
        config, model = RunConfig.resolve({"dataset": name}), SHELSClassifier.preset(name)
        for setting in ("epochs", "lr", "batch_size", "alpha", "beta", "accommodation"):
            assert getattr(config, setting) == getattr(model, setting)
        assert config.accommodation_lr == pytest.approx(model._accommodation_lr())
        assert config.accommodation_epochs == model._accommodation_epochs()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "mnist", "epoch": 3}, "Did you mean 'epochs'"),
        ({"dataset": "mnits"}, "Did you mean 'mnist'"),
        ({"dataset": "mnist", "preset": "smal"}, "Did you mean 'small'"),
        ({"dataset": "mnist", "score": "cosin"}, "Did you mean 'cosine'"),
        ({}, "dataset is needed"),
        ({"dataset": "mnist", "epochs": "three"}, "epochs must be int, got 'three'"),
        ({"dataset": "mnist", "epochs": 0}, "epochs must be at least 1"),
        ({"dataset": "mnist", "lr": -1}, "lr must be above 0"),
        ({"dataset": "mnist", "known": 2}, "known must be at least 3"),
        ({"dataset": "mnist", "known": True}, "known must be int"),
        ({"dataset": "mnist", "novel": "mnist"}, "another data set"),
        ({"dataset": "mnist", "turns": 2}, "turns must be 1 or 4"),
        ({"dataset": "mnist", "rule": "by-class"}, "goes with method limen"),
        ({"dataset": "mnist", "novel": "digits", "policy_detects": True}, "does not go with"),
    ],
)
def test_a_wrong_setting_is_explained(settings, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig.resolve(settings)


def test_a_toml_file_gives_settings_as_flags_do(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('dataset = "digits"\nper-class = 50\nlr = 1e-3\n')
    assert RunConfig.resolve(read_settings(path)).per_class == 50
    path.write_text("dataset = digits")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_settings(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_settings(tmp_path / "none.toml")


def test_a_given_learning_rate_moves_that_of_new_classes_with_it():
    config = RunConfig.resolve({"dataset": "mnist", "lr": 1e-3})
    assert config.accommodation_lr == pytest.approx(1e-4)


def test_difference_names_each_setting_that_changed():
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 3}) == "  b: 2 there, 3 now"
    assert difference({"a": 1}, {"a": 1}) == ""


# ---- what a seed is made of


def test_the_seed_draws_the_order_of_classes():
    config = RunConfig.resolve({"dataset": "mnist"})
    known, coming = class_order(config, 10, seed=3)
    assert (len(known), len(coming)) == (5, 5)
    assert sorted(known + coming) == list(range(10))
    assert class_order(config, 10, 3) == (known, coming)
    assert class_order(config, 10, 4) != (known, coming)
    assert [unit.held_out for unit in units_of(config, 10, 3)] == [None, *sorted(known)]


def test_steps_are_counted_as_they_are_taken(blobs, monkeypatch):
    import limen.shels.estimator as estimator
    from limen.experiment import units

    config, taken = tiny(blobs), []
    original = estimator.train

    def counting(*args, **settings):
        settings["report"] = lambda event: taken.append(1) if "done" in event else None
        return original(*args, **settings)

    monkeypatch.setattr(estimator, "train", counting)
    monkeypatch.setattr("limen.shels.accommodation.train", counting)
    data = units.data_of(config)
    for unit in units_of(config, BLOBS, 0)[:2]:
        taken.clear()
        carry_out = units.run_stream if unit.held_out is None else units.run_fold
        carry_out(config, unit, None)
        assert len(taken) == steps_of(config, data, unit)


def step(train, train_right, test, test_right, novel, **facts):
    arrays = {
        "train": np.array(train, dtype=float),
        "train_right": np.array(train_right, dtype=bool),
        "test": np.array(test, dtype=float),
        "test_right": np.array(test_right, dtype=bool),
        "novel": np.array(novel, dtype=float),
        "confusion": np.eye(2, dtype=int),
    }
    return Step(**{"known": [0, 1], "next": 2, "arrays": arrays, "learnt": None, **facts})


def test_the_five_figures_by_hand():
    # Known: 4 test points; two right and below the cut, one wrong, one at the cut. Novel: 2 of 3.
    faced = step([0], [1], [0.1, 0.2, 0.3, 2.0], [1, 1, 0, 1], [1.9, 2.0, 5.0])
    found = accuracies(faced.arrays, 2.0)
    assert found["known"] == 0.5
    assert found["novel"] == pytest.approx(2 / 3)
    assert found["total"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found["pooled"] == pytest.approx(4 / 7)
    assert found["gmean"] == pytest.approx((1 / 3) ** 0.5)


def test_keeping_a_share_of_the_known():
    z = np.arange(100.0)
    assert np.mean(z < keeping(z, 0.95)) == 0.95
    assert np.mean(z < keeping(z, 0.951)) == 0.96
    assert np.mean(z < np.nextafter(keeping(z, 0.95), -1)) == 0.94  # no lower cut would do
    assert keeping(np.array([1.0, np.inf, np.inf]), 0.95) == np.nextafter(1, 2)
    assert keeping(np.array([np.inf]), 0.95) == 1.0


def test_separation_by_hand():
    found = separation(np.arange(20.0), np.array([18.5, 30.0]))
    assert found["auroc"] == pytest.approx(1 - 1 / 40)  # one pair of forty is the wrong way round
    assert found["fpr95"] == 0.0  # 18 keeps 19 of 20; both novel points lie above
    assert separation(np.arange(20.0), np.array([17.0, 30.0]))["fpr95"] == 0.5


def test_every_policy_puts_its_cut_where_the_paper_says():
    # Best cut of a fold: between the highest known and the lowest novel strangeness.
    folds = {
        0: {"known": [0.0, 1.0], "novel": [1.8, 3.0], "won": [1, 2]},
        1: {"known": [0.0, 1.0, np.inf], "novel": [4.0, 5.0], "won": [0, 2]},
    }
    folds = {c: {n: np.array(values) for n, values in f.items()} for c, f in folds.items()}
    first = step([0, 1], [1, 1], [0.5, 1.7], [1, 1], [6.0, 7.0], learnt=True)
    second = step([0, 2], [1, 1], [0.5, 2.5], [1, 1], [3.0], learnt=None)
    record = seed_record(RunConfig.resolve({"dataset": "mnist"}), 0, folds, [first, second])
    assert [fold["etas"]["gmean"]["eta"] for fold in record["folds"]] == [1.4, 2.5]
    # At the mean cut of 1.95 half of class 0 is taken for known, as class 1.
    assert [fold["taken_for"] for fold in record["folds"]] == [{"1": 0.5}, {}]
    cuts = [
        {v["policy"]: v["eta"] for v in row["verdicts"] if v["objective"] == "total"}
        for row in record["rows"]
    ]
    assert cuts[0] == {
        "shels": 1.0,
        "cheating": 3.5,  # midway from 1 to 6
        "ours": 1.95,  # the mean of the folds
        "rate95": np.nextafter(1, 2),
    }
    assert cuts[1]["cheating"] == 2.5
    assert cuts[1]["ours"] == (1.95 + 3.5) / 2  # half way to what the first class asked for
    known = {v["policy"]: v["known"] for v in record["rows"][0]["verdicts"]}
    assert known == {"shels": 0.5, "cheating": 1.0, "ours": 1.0, "rate95": 0.5}


def test_a_class_that_was_not_noticed_does_not_move_ours():
    folds = {0: {"known": np.array([0.0, 1.0]), "novel": np.array([2.0, 3.0])}}
    steps = [step([0, 1], [1, 1], [0.5], [1], [6.0], learnt=learnt) for learnt in (False, None)]
    record = seed_record(RunConfig.resolve({"dataset": "mnist"}), 0, folds, steps)
    for row in record["rows"]:
        assert {v["eta"] for v in row["verdicts"] if v["policy"] == "ours"} == {1.5}


# ---- a run


def test_a_run_records_every_row_policy_and_objective(finished, blobs):
    out, events = finished
    seed = json.loads((out / "seed-000.json").read_text())
    known, coming = class_order(tiny(blobs), BLOBS, 0)
    assert [len(row["known"]) for row in seed["rows"]] == [4, 5]
    assert [row["next"] for row in seed["rows"]] == coming
    assert sorted(seed["rows"][0]["known"]) == sorted(known)
    assert [fold["held_out"] for fold in seed["folds"]] == sorted(known)
    for row in seed["rows"]:
        pairs = {(v["policy"], v["objective"]) for v in row["verdicts"]}
        assert len(pairs) == len(row["verdicts"]) == 8
        assert np.sum(row["confusion"]) == 12 * len(row["known"])
        assert sum(row["histogram"]["known"]) == 12 * len(row["known"])
        assert sum(row["histogram"]["novel"]) == 48
    assert [event["event"] for event in events].count("unit") == 10
    assert events[0]["units"] == 10
    facts = json.loads((out / "facts-001.json").read_text())
    assert facts["steps"]["stream"] == 3 * 6 + 2 * 2


def test_the_same_seed_gives_the_same_record_in_other_processes(finished, blobs, tmp_path):
    run(tiny(blobs), [1], tmp_path / "again", jobs=2)
    assert (tmp_path / "again" / "seed-001.json").read_bytes() == records(finished[0])[
        "seed-001.json"
    ]
    assert not (tmp_path / "again" / "work" / "seed-001").exists()


def test_more_seeds_are_added_and_finished_ones_left_alone(finished, blobs, tmp_path):
    before = records(finished[0])
    for name in ("config.json", "seed-000.json", "facts-000.json"):
        write_bytes(tmp_path / name, (finished[0] / name).read_bytes())
    events = []
    run(tiny(blobs), range(2), tmp_path, report=events.append)
    assert events[0]["missing"] == [1]
    assert records(tmp_path) == before


def test_another_config_in_the_same_folder_is_refused_with_a_diff(finished, blobs):
    before = records(finished[0])
    with pytest.raises(ConfigError, match=r"epochs: 3 there, 4 now"):
        run(tiny(blobs, epochs=4), range(2), finished[0])
    assert records(finished[0]) == before
    # What is only shown is not part of what was run.
    assert len(run(tiny(blobs, objective="total"), range(2), finished[0])) == 2


def test_a_folder_of_something_else_is_refused(blobs, tmp_path):
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(RunFolderError, match="a folder of something else"):
        run(tiny(blobs), [0], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write"):
        run(tiny(blobs), [0], tmp_path / "file")


def test_a_folder_that_cannot_be_written_is_refused_at_once(blobs):
    with pytest.raises(RunFolderError, match="cannot write to /proc/limen"):
        run(tiny(blobs), [0], Path("/proc/limen"))


def test_a_disk_without_room_is_refused_at_once(blobs, tmp_path, monkeypatch):
    class Nothing:
        free = 1 << 20

    monkeypatch.setattr("shutil.disk_usage", lambda _: Nothing)
    with pytest.raises(RunFolderError, match="1 MiB are free"):
        run(tiny(blobs), [0], tmp_path / "out")


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "record").write_text("old")
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from limen.experiment.files import RunFolderError, write_bytes\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"  # as if the disk were full
        "try: write_bytes(Path(sys.argv[1]), bytes(5000))\n"
        "except RunFolderError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "record")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Nothing that was finished is lost" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["record"]
    assert (tmp_path / "record").read_text() == "old"


def test_two_runs_in_one_folder_do_not_mix(finished, blobs):
    with RunFolder(finished[0]).locked(), pytest.raises(RunFolderError, match="another process"):
        run(tiny(blobs), range(2), finished[0])


def test_a_damaged_record_is_named(blobs, tmp_path):
    config = tiny(blobs)
    folder = RunFolder(tmp_path)
    work = folder.work(0)
    run(config, [0], tmp_path, keep_models=True)
    folder.record(0).unlink()
    path = next(work.glob("fold-*.npz"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunFolderError, match=rf"{path.name} is damaged"):
        run(config, [0], tmp_path)


def test_a_stream_goes_on_from_any_step(blobs, tmp_path):
    """Whatever was kept when it stopped, the steps are those of an undisturbed run."""
    config, unit = tiny(blobs), Unit(0, None)
    whole = run_stream(config, unit, tmp_path)
    for kept in (["model-4"], ["model-4", "step-4"], ["model-4", "step-4", "model-5"]):
        for path in tmp_path.iterdir():
            if path.name.split(".")[0] not in kept:
                subprocess.run(["rm", "-r", path], check=True)
        again = run_stream(config, unit, tmp_path)
        for a, b in zip(whole, again, strict=True):
            assert (a.known, a.next, a.learnt) == (b.known, b.next, b.learnt)
            for name in ("train", "test", "novel", "confusion"):
                np.testing.assert_array_equal(a.arrays[name], b.arrays[name])


def test_across_data_sets_one_row_and_every_class_held_out(tmp_path):
    other = tmp_path / "other.npz"
    X = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
    np.savez(other, X=X, y=np.arange(40) % 2)
    config = RunConfig.resolve(
        {"dataset": "digits", "preset": "smoke", "per_class": 20, "novel": str(other)}
    )
    [record] = run(config, [0], tmp_path / "out")
    assert len(record["folds"]) == 10
    [row] = record["rows"]
    assert (sorted(row["known"]), row["next"]) == (list(range(10)), None)
    assert sum(row["histogram"]["novel"]) == 8  # its test split


def test_with_policy_detects_a_class_is_learnt_only_if_the_alarm_fires(blobs, tmp_path):
    records = {}
    for level in (0.05, 1e-300):  # an alarm, and one that never fires
        config = tiny(
            blobs, policy_detects=True, alarm_level=level, alarm_batch=30, epochs=20, lr=3e-3
        )
        [records[level]] = run(config, [0], tmp_path / str(level))
    never = records[1e-300]["rows"]
    assert [len(row["known"]) for row in never] == [4, 4]
    assert [row["learnt"] for row in never] == [False, None]
    assert not any(row["alarms"]["novel"]["raised"] for row in never)
    noticed = records[0.05]["rows"]
    assert noticed[0]["alarms"]["novel"]["raised"]
    assert [len(row["known"]) for row in noticed] == [4, 5]
    assert noticed[0]["alarms"]["novel"]["total"] == 30


COMMAND = [sys.executable, "-m", "limen.cli", "run", "--json"]


def flags(blobs):
    return [
        *("--dataset", str(blobs), "--known", "4", "--epochs", "3", "--lr", "1e-3"),
        *("--accommodation-epochs", "2", "--seeds", "2", "--jobs", "2"),
    ]


def files_in(folder):
    """Unlike Path.rglob, os.walk bears with what vanishes meanwhile."""
    return {os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names}


def test_killed_at_random_moments_it_ends_with_the_same_records(finished, blobs, tmp_path):
    rng, kills = random.Random(0), 0
    out = tmp_path / "killed"
    for _ in range(20):
        seen, wait_for = files_in(out), rng.randint(0, 8)
        process = subprocess.Popen(
            [*COMMAND, *flags(blobs), "--out", str(out)], stdout=subprocess.DEVNULL
        )
        while process.poll() is None:
            if len(files_in(out) - seen) > wait_for:
                time.sleep(rng.uniform(0, 0.2))
                process.kill()  # the workers are left to notice by themselves
            time.sleep(0.01)
        if process.wait() == 0:
            break
        kills += 1
    assert process.returncode == 0
    assert kills >= 2
    assert records(out) == records(finished[0])


def test_workers_whose_run_was_killed_begin_no_other_training(tmp_path):
    """They have trainings waiting for them, each of minutes."""
    words = ("--dataset", "digits", "--preset", "small", "--epochs", "3000", "--jobs", "2")
    process = subprocess.Popen(
        [*COMMAND, *words, "--out", str(tmp_path)], stdout=subprocess.DEVNULL
    )

    def running():
        return sorted(path.name for path in tmp_path.glob("work/*/running-*.json"))

    deadline = time.monotonic() + 60
    while len(running()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while running():
        assert time.monotonic() < deadline, running()
        time.sleep(0.1)
    time.sleep(2)
    assert not running()


def test_on_a_dask_cluster_that_loses_a_worker_the_numbers_are_the_same(finished, blobs, tmp_path):
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    arguments = ["--scheduler-file", str(file)]
    processes = [
        subprocess.Popen([*dask, "scheduler", "--port", "0", "--no-dashboard", *arguments], **quiet)
    ]
    try:
        worker = [*dask, "worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", *arguments]
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        processes += [
            subprocess.Popen([*worker, "--local-directory", str(tmp_path)], **quiet) for _ in "ab"
        ]
        address = json.loads(file.read_text())["address"]
        out = tmp_path / "out"
        running = subprocess.Popen(
            [*COMMAND, *flags(blobs), "--scheduler", address, "--out", str(out)],
            stdout=subprocess.PIPE,
            text=True,
        )
        units = 0
        for line in running.stdout:
            event = json.loads(line)
            units += event["event"] == "unit"
            if units == 3:
                processes[1].kill()
        running.stdout.close()
        assert running.wait(timeout=120) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert units == 10
    assert records(out) == records(finished[0])


def test_a_scheduler_that_does_not_answer_is_an_error(blobs, tmp_path):
    with pytest.raises(ConfigError, match="no Dask scheduler answers"):
        run(tiny(blobs), [0], tmp_path / "out", scheduler="tcp://127.0.0.1:9")


def test_how_a_class_is_learnt_brings_its_own_settings():
    def lesson(**settings):
        config = RunConfig.resolve({"dataset": "mnist", **settings})
        return config.accommodation_epochs, config.accommodation_lr

    assert lesson() == (8, 1e-5)
    assert lesson(preset="smoke") == lesson(preset="smoke", lr=1e-3) == (1, 1e-4)
    assert lesson(accommodation="replay") == (2, 1e-4)
    assert lesson(accommodation="replay", lr=1e-3) == (2, 1e-3)
    assert lesson(accommodation="prototype")[0] == 0
    assert lesson(accommodation="replay", accommodation_epochs=5, accommodation_lr=0.1) == (5, 0.1)


@pytest.mark.parametrize(
    "settings",
    [{"beta": -1}, {"alpha": -0.1}, {"lr": float("inf")}, {"alarm_level": 5}, {"lr": "0.1"}],
)
def test_values_that_cannot_be_are_refused_before_anything_runs(settings):
    with pytest.raises(ConfigError, match=f"{next(iter(settings))} must"):
        RunConfig.resolve({"dataset": "mnist", **settings})


def test_what_is_wrong_shows_before_the_folder_is_taken(blobs, tmp_path):
    with pytest.raises(ConfigError, match="known must be below 6"):
        run(tiny(blobs, known=6), [0], tmp_path / "out")
    with pytest.raises(ConfigError, match="no training image left"):
        run(tiny(blobs, calibration=0.99), [0], tmp_path / "out")
    other = tmp_path / "rows.npz"
    np.savez(other, X=np.ones((10, 3), dtype=np.float32), y=np.arange(10) % 2)
    with pytest.raises(DatasetError, match="cannot be brought to"):
        run(tiny(blobs, novel=str(other)), [0], tmp_path / "out")
    np.savez(other, X=np.ones((10, 8), dtype=np.uint8), y=np.arange(10) % 2)
    with pytest.raises(DatasetError, match="the same type"):
        run(tiny(blobs, novel=str(other)), [0], tmp_path / "out2")
    run(tiny(blobs, epochs=1), [0], tmp_path / "out")


def test_a_folder_left_by_a_kill_in_the_first_write_is_taken(blobs, tmp_path):
    for name in (".part-abc", ".probe"):
        (tmp_path / name).write_text("half")
    run(tiny(blobs, epochs=1), [0], tmp_path)
    assert not list(tmp_path.glob(".p*"))


def test_own_data_that_changed_is_another_run(blobs, tmp_path):
    data = dict(np.load(blobs))
    path = tmp_path / "own.npz"
    np.savez(path, **data)
    run(tiny(path, epochs=1), [0], tmp_path / "out")
    np.savez(path, X=-data["X"], y=data["y"])
    from limen.experiment.plan import data_of

    data_of.cache_clear()  # as in a new process
    with pytest.raises(ConfigError, match="data_sha256"):
        run(tiny(path, epochs=1), range(2), tmp_path / "out")


@pytest.mark.parametrize("damaged", [["model-5"], ["model-4", "model-5"]])
def test_a_damaged_model_is_trained_again(blobs, tmp_path, damaged):
    config, unit = tiny(blobs), Unit(0, None)
    whole = run_stream(config, unit, tmp_path)
    (tmp_path / "step-5.npz").unlink()
    for path in (path for name in damaged for path in (tmp_path / name).glob("weights*")):
        path.write_bytes(path.read_bytes()[:100])
    again = run_stream(config, unit, tmp_path)
    np.testing.assert_array_equal(whole[1].arrays["test"], again[1].arrays["test"])


def test_one_image_a_class_is_enough_to_run(blobs, tmp_path):
    [record] = run(tiny(blobs, per_class=1, epochs=1), [0], tmp_path / "out")
    assert len(record["rows"]) == 2


# ---- limen's own method


def test_limen_chooses_the_score_too_and_trains_less(blobs, tmp_path):
    config = tiny(blobs, method="limen", accommodation_steps=10, epochs=5, fold_epochs=1)
    assert config.accommodation == "replay"
    events = []
    [record] = run(config, [0], tmp_path / "out", report=events.append)
    for row in record["rows"]:
        by = {(v["policy"], v["objective"]): v for v in row["verdicts"]}
        assert len(by) == len(row["verdicts"]) == 10
        for objective in ("gmean", "total"):
            chosen = {by[p, objective]["score"] for p in ("limen", "cheating", "shels", "rate95")}
            assert len(chosen) == 1  # all policies are judged on the score that was chosen
            assert chosen <= set(scores_to_try("replay"))
        assert sum(row["histogram"]["novel"]) == 48
    facts = json.loads((tmp_path / "out" / "facts-000.json").read_text())
    # 48 training points a class, 5 of them to calibrate: 43 are trained on.
    assert facts["steps"]["stream"] == 5 * -(-4 * 43 // 32) + 10
    folds = {steps for name, steps in facts["steps"].items() if name != "stream"}
    assert folds == {-(-3 * 43 // 32)}


def test_points_that_calibrate_are_never_trained_on(blobs, monkeypatch):
    from limen.experiment import units
    from limen.shels import SHELSClassifier

    config = tiny(blobs, method="limen", accommodation_steps=4, epochs=1, calibration=0.1)
    data, seen = units.data_of(config), []
    fit, add = SHELSClassifier.fit, SHELSClassifier.add_class

    def watched_fit(self, X, y):
        seen.append(np.asarray(X))
        return fit(self, X, y)

    def watched_add(self, X, label, memory=None):
        seen.extend([np.asarray(X), memory[0]])
        return add(self, X, label, memory)

    monkeypatch.setattr(SHELSClassifier, "fit", watched_fit)
    monkeypatch.setattr(SHELSClassifier, "add_class", watched_add)
    units.run_stream(config, Unit(0, None), None)
    units.run_fold(config, units_of(config, BLOBS, 0)[1], None)
    trained = {row.tobytes() for X in seen for row in X}
    kept_out = [calibration_rows(config, data, label) for label in range(BLOBS)]
    assert all(len(rows) == 5 for rows in kept_out)
    assert not trained & {data.X_train[i].tobytes() for rows in kept_out for i in rows}
    assert not trained & {row.tobytes() for row in data.X_test}


def test_memory_bounds_what_replay_sees(blobs, monkeypatch):
    from limen.experiment import units
    from limen.shels import SHELSClassifier

    sizes = []
    add = SHELSClassifier.add_class

    def watched(self, X, label, memory=None):
        sizes.append(np.bincount(memory[1], minlength=BLOBS)[self.classes_].tolist())
        return add(self, X, label, memory)

    monkeypatch.setattr(SHELSClassifier, "add_class", watched)
    settings = {"method": "limen", "accommodation_steps": 4, "epochs": 1, "memory": 7}
    for calibration in (0.1, 0.0):
        units.run_stream(tiny(blobs, **settings, calibration=calibration), Unit(0, None), None)
    # The other 2 calibrate; where none is set aside for that, all do both.
    assert sizes == [[5, 5, 5, 5], [7, 7, 7, 7]]


def test_what_is_usual_is_carried_on_by_what_memory_keeps(blobs):
    from limen.calibration import ClassStatistics
    from limen.experiment import units
    from limen.shels import SHELSClassifier

    settings = {"accommodation_steps": 4, "epochs": 2, "memory": 20, "calibration": 0.1}
    config = tiny(blobs, method="limen", known=3, **settings)
    data, learnt = units.data_of(config), []
    add = SHELSClassifier.add_class

    def watched(self, *args):
        learnt.append((copy.deepcopy(self), add(self, *args))[0])
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SHELSClassifier, "add_class", watched)
        first, second, *_ = units.run_stream(config, Unit(0, None), None)
    before, old = learnt[0], view(first.arrays, "dot")
    assert before.classes_.tolist() == first.known
    # 5 points of a class calibrate, and all stay: there would be room for 6.
    rows = np.concatenate([calibration_rows(config, data, c) for c in first.known])
    usual = ClassStatistics.from_scores(
        before.similarity(data.X_train[rows]), data.y_train[rows], classes=before.classes_
    )
    np.testing.assert_allclose(old["usual"], [usual.count, usual.mean, usual.std], rtol=1e-5)
    np.testing.assert_allclose(old["usual_kept"], old["usual"])
    # So nothing is lost by carrying them on, and strangeness is what all points say.
    new = view(second.arrays, "dot")
    np.testing.assert_allclose(new["usual"][1:, :3], new["usual_kept"][1:, :3], rtol=1e-9)
    assert len(new["train"]) == 5 * 4


@pytest.mark.parametrize("strategy", ["herding", "k-centre"])
def test_a_bounded_memory_survives_a_kill_between_steps(blobs, tmp_path, strategy):
    settings = {"memory": 6, "memory_choice": strategy, "accommodation_steps": 3}
    config = tiny(blobs, method="limen", epochs=1, known=3, **settings)
    whole = run_stream(config, Unit(0, None), None)
    run_stream(config, Unit(0, None), tmp_path)
    for path in tmp_path.glob("step-*"):
        path.unlink()
    shutil.rmtree(tmp_path / "model-5")
    again = run_stream(config, Unit(0, None), tmp_path)
    for one, other in zip(whole, again, strict=True):
        assert one.known == other.known
        for name in one.arrays.keys() - {"seconds"}:
            np.testing.assert_array_equal(one.arrays[name], other.arrays[name])


def test_new_classes_that_are_not_trained_cost_no_step_and_move_nothing(blobs, tmp_path):
    config = tiny(blobs, method="limen", accommodation="prototype", epochs=2, memory=10)
    [record] = run(config, [0], tmp_path, keep_models=True)
    facts = json.loads((tmp_path / "facts-000.json").read_text())
    assert facts["steps"]["stream"] == 2 * -(-4 * 48 // 32)
    chosen = {v["score"] for row in record["rows"] for v in row["verdicts"]}
    assert chosen <= set(scores_to_try("prototype"))
    models = [_load(tmp_path / "work" / "seed-000" / f"model-{n}") for n in (4, 5)]
    first, second = ([w.detach().numpy() for w in m.network_.weights()] for m in models)
    for before, after in zip(first[:-1], second[:-1], strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(first[-1], second[-1][:4])
    assert models[1].stored_.statistics.count.tolist() == [48] * 5  # all that was learnt
    assert np.bincount(models[1].stored_.labels).tolist() == [10] * 5  # what is kept


def test_what_keeps_everything_compares_with_everything(blobs, tmp_path):
    config = tiny(blobs, method="limen", accommodation="prototype", epochs=1, memory=0)
    run_stream(config, Unit(0, None), tmp_path)
    assert np.bincount(_load(tmp_path / "model-5").stored_.labels).tolist() == [48] * 5


def test_what_is_kept_calibrates_as_if_it_were_not_stored(blobs, tmp_path):
    """What the model compares with would look more familiar than anything new can."""
    config = tiny(blobs, method="limen", epochs=1, memory=10, accommodation_steps=3)
    steps = run_stream(config, Unit(0, None), tmp_path)
    model, last = _load(tmp_path / "model-5"), view(steps[1].arrays, "knn")
    classes = model.classes_[model.stored_.labels]
    means, stds = last["usual"][1:][:, model.stored_.labels]
    alone = model.similarity_of_stored("knn").max(axis=1)
    right = model.similarity_of_stored("knn").argmax(axis=1) == model.stored_.labels
    np.testing.assert_array_equal(last["train_class"], classes)
    np.testing.assert_array_equal(last["train_right"], right)
    strangeness = (means - alone) / stds
    np.testing.assert_allclose(last["train"][right], strangeness[right], rtol=1e-3, atol=1e-3)


def test_a_model_taken_over_learns_as_the_run_says(blobs, tmp_path, monkeypatch):
    from limen.shels import SHELSClassifier

    settings = {"method": "limen", "epochs": 1, "accommodation_steps": 3}
    run_stream(tiny(blobs, **settings, accommodation="prototype"), Unit(0, None), tmp_path)
    shutil.rmtree(tmp_path / "model-5")
    for path in tmp_path.glob("step-*"):
        path.unlink()
    told, add = [], SHELSClassifier.add_class

    def watched(self, *args):
        told.append(self.accommodation)
        return add(self, *args)

    monkeypatch.setattr(SHELSClassifier, "add_class", watched)
    run_stream(tiny(blobs, **settings, accommodation="replay"), Unit(0, None), tmp_path)
    assert told == ["replay"]


def test_limen_turns_pictures_where_that_was_found_to_help():
    for dataset, turns, accommodation, epochs, share in (
        ("mnist", 4, "prototype", 2, 0.75),
        ("fashion-mnist", 4, "prototype", 4, 0.75),
        ("cifar10", 1, "replay", 5, 1.0),
    ):
        config = RunConfig.resolve({"dataset": dataset, "preset": "small", "method": "limen"})
        assert (config.turns, config.accommodation) == (turns, accommodation)
        assert (config.fold_epochs, config.fold_share) == (epochs, share)
        assert epochs * share <= config.epochs / 4  # a quarter of what folds cost in the paper
        assert RunConfig.resolve({"dataset": dataset}).turns == 1


def test_folds_see_their_share_and_the_model_in_use_sees_everything(blobs):
    config = tiny(blobs, method="limen", fold_share=0.5)
    data = data_of(config)
    stream, fold = (
        [training_rows(config, unit, data, c).tolist() for c in range(BLOBS)]
        for unit in (Unit(0, None), Unit(0, 1))
    )
    assert stream == [np.flatnonzero(data.y_train == c).tolist() for c in range(BLOBS)]
    assert fold == [rows[:24] for rows in stream]


def _load(path):
    from limen.shels import SHELSClassifier

    return SHELSClassifier.load(path)


def test_limen_s_record_judges_by_the_evidence_so_far():
    """Two scores; by the folds the second is perfect, so it is chosen, with the cut between."""
    won = {"won": np.ones(20, dtype=int)}
    good = {"known": np.linspace(0, 1, 20), "novel": np.linspace(3, 4, 20), **won}
    bad = {"known": np.linspace(0, 4, 20), "novel": np.linspace(0, 4, 20), **won}
    arrays = step([0, 1] * 10, [1] * 20, [0.5, 0.9], [1, 1], [3.5, 3.6]).arrays
    noise = step([0, 4] * 10, [1] * 20, [0.5, 3.9], [1, 1], [0.5, 3.6]).arrays
    folds = {
        label: {
            f"{s}/{n}": a
            for s, part in zip(scores_to_try("prototype"), [bad] + [good] * 4, strict=True)
            for n, a in part.items()
        }
        for label in (0, 1)
    }
    faced = {
        f"{s}/{n}": a
        for s, part in zip(scores_to_try("prototype"), [noise] + [arrays] * 4, strict=True)
        for n, a in part.items()
    }
    settings = {"dataset": "mnist", "method": "limen", "score": "chosen", "rule": "robust"}
    config = RunConfig.resolve(settings)
    record = seed_record(config, 0, folds, [Step([0, 1], 2, faced)])
    limen = [v for v in record["rows"][0]["verdicts"] if v["policy"] == "limen"]
    assert {v["score"] for v in limen} == {scores_to_try("prototype")[1]}
    assert all(1 < v["eta"] <= 3 and v["gmean"] == 1 for v in limen)


def test_statistics_of_all_points_need_a_network_that_stays():
    settings = {"dataset": "mnist", "method": "limen"}
    assert RunConfig.resolve({**settings, "accommodation": "replay"}).score == "chosen"
    with pytest.raises(ConfigError, match="needs a network that stays"):
        RunConfig.resolve({**settings, "accommodation": "replay", "score": "deep-mahalanobis"})


def test_renewed_evidence_needs_a_network_that_stays():
    settings = {"dataset": "mnist", "method": "limen"}
    assert RunConfig.resolve(settings).evidence == "renewed"
    assert RunConfig.resolve({**settings, "accommodation": "replay"}).evidence == "as-met"
    assert RunConfig.resolve({"dataset": "cifar10", "method": "limen"}).evidence == "as-met"
    for changes in ({"accommodation": "replay"}, {"method": "paper"}):
        with pytest.raises(ConfigError, match="evidence renewed needs method limen and a network"):
            RunConfig.resolve({**settings, **changes, "evidence": "renewed"})


def test_renewed_evidence_moves_the_cut_to_where_classes_would_be_met_today():
    """Held out, classes were far; next to the class learnt since they are near."""

    def held_out(novel):
        known = {"known": np.linspace(0, 1, 20), "won": np.ones(20, dtype=int)}
        return {**known, "novel": np.linspace(novel, novel + 0.5, 20)}

    near = {f"after-3/{name}": array for name, array in held_out(1.5).items()}
    folds = {label: {**held_out(6.0), **near} for label in (0, 1)}
    first = step([0, 1] * 10, [1] * 20, [0.5, 0.9], [1, 1], [8.0, 8.5], learnt=True)
    second = step([0, 1] * 10, [1] * 20, [0.5, 0.9], [1, 1], [1.6, 1.7])
    faced = [first, replace(second, known=[0, 1, 2], next=3)]
    first.arrays["won"] = np.zeros(2, dtype=int)
    settings = {"dataset": "mnist", "method": "limen", "rule": "mean"}
    etas = {}
    for evidence in ("as-met", "renewed", "held-out"):
        config = RunConfig.resolve({**settings, "evidence": evidence})
        rows = seed_record(config, 0, folds, faced)["rows"]
        etas[evidence] = [
            v["eta"]
            for row in rows
            for v in row["verdicts"]
            if (v["policy"], v["objective"]) == ("limen", "gmean")
        ]
    # A cut lies in the middle between 1 and the nearest novel point: held out 6 as met, 1.5 today;
    # 8 of the class discovered.
    assert etas["as-met"] == pytest.approx([3.5, (3.5 + 3.5 + 4.5) / 3])
    assert etas["renewed"] == pytest.approx([3.5, (1.25 + 1.25 + 4.5) / 3])
    assert etas["held-out"] == pytest.approx([3.5, 3.5])


def test_classes_are_held_out_again_with_every_class_learnt(blobs, tmp_path):
    settings = {"accommodation": "prototype", "score": "deep-mahalanobis", "evidence": "renewed"}
    sizes = {"known": 3, "fold_epochs": 1, "memory": 10, "calibration": 0.25}
    config = tiny(blobs, method="limen", **settings, **sizes)
    run(config, [0], tmp_path, keep_models=True)
    work, n = RunFolder(tmp_path).work(0), config.known
    known, coming = class_order(config, BLOBS, 0)
    for label in known:
        fold = read_arrays(work / f"fold-{label}.npz")
        for met in range(n + 1, n + len(coming)):
            later = {name: fold[f"after-{met}/{name}"] for name in ("known", "novel", "won")}
            others = {*known, *coming[: met - n]} - {label}
            assert set(later["won"].tolist()) <= others
            assert len(later["known"]) == 10 * len(others)  # no more than what is kept
            assert len(later["novel"]) == 10
    steps = [read_arrays(work / f"step-{n + i}.npz") for i in range(len(coming))]
    for i, arrays in enumerate(steps):
        again = {name.split("/")[0] for name in arrays if "/" in name}
        assert again == {f"again-{label}" for label in coming[: max(i - 1, 0)]}
        for name in again:
            assert int(name.removeprefix("again-")) not in arrays[f"{name}/won"]


def test_aligned_points_are_judged_by_one_cut_as_by_the_cut_of_their_class():
    rng = np.random.default_rng(0)
    arrays, known, cuts = {}, [7, 3], np.array([0.5, 2.0])
    for name, won in (("train", "train_won"), ("test", "test_won"), ("novel", "won")):
        arrays[name], arrays[won] = rng.normal(1, 1, 50), rng.choice(known, 50)
    moved = aligned(arrays, known, cuts, 1.25)
    for name, won in (("train", "train_won"), ("test", "test_won"), ("novel", "won")):
        own = np.where(arrays[won] == 7, 0.5, 2.0)
        assert np.array_equal(moved[name] < 1.25, arrays[name] < own)
        assert moved[won] is arrays[won]


def test_a_cut_for_every_class_is_recorded_and_judged():
    """Classes 0 and 2 are crowded, 1 stands alone and is wide: one cut must fail one of them."""
    narrow, wide = [0.0, 0.2] * 5, [0.0] + [3.0] * 9
    usual, of = np.array(narrow + wide + narrow), np.repeat([0, 1, 2], 10)

    def fold(label, novel, won):
        return {"known": usual[of != label], "novel": np.array(novel), "won": np.array(won)}

    folds = {0: fold(0, [1.0, 1.1], [2, 2]), 2: fold(2, [1.0, 1.1], [0, 0])}
    folds[1] = fold(1, [8.0, 9.0], [0, 0])
    faced = {
        **{"train": usual, "train_right": np.ones(30, bool), "train_won": of, "train_class": of},
        **{"test": np.array([0.1, 2.9, 0.1]), "test_right": np.ones(3, bool)},
        **{"test_won": np.array([0, 1, 2]), "novel": np.array([1.0, 1.2])},
        **{"won": np.array([0, 2]), "confusion": np.eye(3, dtype=int)},
    }
    steps = [Step([0, 1, 2], 3, faced)]
    settings = {"dataset": "fashion-mnist", "method": "limen"}
    config = RunConfig.resolve(settings)
    assert (config.score, config.rule) == ("deep-mahalanobis", "by-class")
    record = seed_record(config, 0, folds, steps)
    verdicts = record["rows"][0]["verdicts"]
    by = {v["policy"]: v for v in verdicts if v["objective"] == "gmean"}
    first, alone, last = by["limen"]["etas"]
    assert 0.1 < first <= 1.0
    assert 0.1 < last <= 1.0
    assert alone > 2.9
    assert by["limen"]["gmean"] == 1 > by["cheating"]["gmean"]
    assert by["limen"]["eta"] == pytest.approx((first + alone + last) / 3)
    one = seed_record(RunConfig.resolve({**settings, "rule": "robust"}), 0, folds, steps)
    assert all("etas" not in verdict for verdict in one["rows"][0]["verdicts"])


def test_settings_that_came_later_do_not_make_an_old_run_another(blobs, tmp_path):
    run(tiny(blobs, epochs=1), [0], tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    for name in ("method", "scale", "memory", "norm"):
        del stored[name]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    run(tiny(blobs, epochs=1), [0], tmp_path)
    with pytest.raises(ConfigError, match=r"scale: 1\.0 there, 5\.0 now"):
        run(tiny(blobs, epochs=1, scale=5.0), [0], tmp_path)
