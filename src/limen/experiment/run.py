"""Carry out a run: every unit of every seed, in parallel, kept as it finishes.

A run is a folder:

- ``config.json``: what was run;
- ``seed-000.json``: what a finished seed found, small, the same however often it was interrupted;
- ``facts-000.json``: what that took: seconds, steps, versions;
- ``work/``: strangeness and models of the seeds under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed, parallel_config

from limen.datasets import NAMES, Dataset, DatasetError
from limen.datasets.formats import digest
from limen.experiment.config import ConfigError, RunConfig, difference, identity
from limen.experiment.files import (
    RunFolderError,
    read_arrays,
    read_json,
    write_arrays,
    write_bytes,
    write_json,
)
from limen.experiment.judging import Arrays, Step
from limen.experiment.plan import Unit, data_of, novel_of, steps_of, training_rows, units_of
from limen.experiment.policies import Detector, Record, seed_record
from limen.experiment.units import run_fold, run_stream

Report: TypeAlias = Callable[[dict[str, Any]], None]

FORMAT = 1
_NOTES = {"smoke": ["preset smoke: everything runs, no figure means anything"]}
_ROOM = 64 << 20  # bytes that a seed needs while it is under way, generously


@dataclass
class RunFolder:
    """Where a run lives, and what of it is there."""

    path: Path

    def record(self, seed: int) -> Path:
        return self.path / f"seed-{seed:03d}.json"

    def facts(self, seed: int) -> Path:
        return self.path / f"facts-{seed:03d}.json"

    def work(self, seed: int) -> Path:
        return self.path / "work" / f"seed-{seed:03d}"

    def fold(self, unit: Unit) -> Arrays | None:
        path = self.work(unit.seed) / f"{unit.name}.npz"
        return read_arrays(path) if path.exists() else None

    def prepare(self, config: dict[str, Any], seeds: int) -> None:
        """Make the folder, or check that it holds this very run and can be written to."""
        for left in [*self.path.glob(".p*"), *self.path.glob("work/seed-*/running-*")]:
            left.unlink()  # of a run that was killed
        stored = self.path / "config.json"
        if stored.exists():
            self._same(config, read_json(stored))
        elif any(path.name != ".lock" for path in self.path.iterdir()):
            raise RunFolderError(f"{self.path} is a folder of something else: choose another --out")
        write_bytes(self.path / ".probe", b"\0")
        (self.path / ".probe").unlink()
        free = shutil.disk_usage(self.path).free
        if free < _ROOM * seeds:
            raise RunFolderError(
                f"{self.path}: {free >> 20} MiB are free, about {_ROOM * seeds >> 20} MiB may be "
                "needed: make room or choose another --out"
            )
        if not stored.exists():
            write_json(stored, {"format": FORMAT, **config})

    def _same(self, config: dict[str, Any], stored: Any) -> None:
        if stored.pop("format", 0) > FORMAT:
            raise RunFolderError(f"{self.path} was written by a newer limen: install that one")
        differs = difference(identity(stored), identity(config))
        if differs:
            raise ConfigError(
                f"{self.path} holds a run with other settings:\n{differs}\n"
                "Give the same settings to go on with it, or another --out."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Two runs in one folder would do the same work twice."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        except OSError as error:
            raise RunFolderError(
                f"cannot write to {self.path}: {error.strerror}. Choose another folder with --out."
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFolderError(f"another process is running in {self.path}") from error
            yield


@dataclass
class _Seed:
    units: list[Unit]
    folds: dict[int, Arrays] = field(default_factory=dict)
    steps: list[Step] | None = None

    @property
    def complete(self) -> bool:
        return self.steps is not None and len(self.folds) == len(self.units) - 1


def run(
    config: RunConfig,
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    keep_models: bool = False,
    report: Report = lambda _: None,
) -> list[Record]:
    """Carry out what is missing of a run and return the records of all its seeds.

    Parameters
    ----------
    config : RunConfig
    seeds : sequence of int
    out : Path
        The run's folder. One that holds the same run is gone on with.
    jobs : int
        Processes at once, one thread each.
    scheduler : str, optional
        Address of a Dask scheduler to run the units on instead.
    keep_models : bool
        Keep strangeness and models of finished seeds under ``work/``.
    report : callable
        Called with a dict on every event.
    """
    folder = RunFolder(out)
    with folder.locked():
        missing = [seed for seed in seeds if not folder.record(seed).exists()]
        data = _checked_data(config)
        stored = {**config.settings(), "class_names": list(data.class_names), **_own(config, data)}
        folder.prepare(stored, len(missing))
        states = {seed: _Seed(units_of(config, data.n_classes, seed)) for seed in missing}
        for state in states.values():
            for unit in state.units:
                kept = folder.fold(unit) if unit.held_out is not None else None
                if unit.held_out is not None and kept is not None:
                    state.folds[unit.held_out] = kept
        todo = [
            unit
            for state in states.values()
            for unit in state.units
            if unit.held_out not in state.folds
        ]
        cost = {unit: steps_of(config, data, unit) for s in states.values() for unit in s.units}
        report(
            {
                "event": "start",
                "seeds": list(seeds),
                "missing": missing,
                "notes": [*data.notes, *_NOTES.get(config.preset, ())],
                "config": stored,
            }
            | {"units": len(cost), "units_left": len(todo)}
            | {"steps": sum(cost.values()), "steps_left": sum(cost[unit] for unit in todo)}
        )
        local = scheduler is None
        with _backend(jobs, scheduler):
            waves = [todo]
            if config.policy_detects:  # the stream needs the cut that the folds give
                waves = [[u for u in todo if u.held_out is not None]]
                waves.append([u for u in todo if u.held_out is None])
            for wave in waves:
                tasks = (
                    delayed(_carry_out)(
                        config,
                        unit,
                        folder.work(unit.seed) if local else None,
                        states[unit.seed].folds if config.policy_detects else None,
                        keep_models,
                    )
                    for unit in wave
                )
                for unit, result in Parallel(return_as="generator_unordered")(tasks):
                    state = states[unit.seed]
                    _take_in(folder, state, unit, result)
                    report(
                        {"event": "unit", "seed": unit.seed, "unit": unit.name}
                        | {"steps": cost[unit], "seconds": _seconds_of(result)}
                    )
                    if state.complete:
                        _finish(folder, config, unit.seed, state, cost, keep_models)
                        report({"event": "seed", **read_json(folder.record(unit.seed))})
        return [read_json(folder.record(seed)) for seed in seeds]


def _checked_data(config: RunConfig) -> Dataset:
    """All data of the run, so that what is wrong with it shows before anything is trained."""
    data = data_of(config)
    if not config.novel and config.known >= data.n_classes:
        raise ConfigError(
            f"known must be below {data.n_classes}, the classes of {config.dataset}: "
            f"got {config.known}"
        )
    for part, y in (("training", data.y_train), ("test", data.y_test)):
        if lacking := sorted(set(range(data.n_classes)) - set(y.tolist())):
            names = [data.class_names[column] for column in lacking]
            raise DatasetError(f"{config.dataset}: classes {names} have no {part} points")
    trained = [training_rows(config, Unit(0, None), data, c).size for c in range(data.n_classes)]
    if not all(trained):
        bare = data.class_names[trained.index(0)]
        raise ConfigError(
            f"class {bare} has no training image left: take more of each class, or a smaller "
            "calibration"
        )
    if config.novel:
        novel_of(config)
    return data


def _own(config: RunConfig, data: Dataset) -> dict[str, Any]:
    """Of data without a known name: what it was."""
    if config.dataset in NAMES and config.novel in (None, *NAMES):
        return {}
    arrays = [data.X_train, data.y_train, data.X_test, data.y_test]
    arrays += [novel_of(config)] if config.novel else []
    return {"data_sha256": digest(arrays)}


def _carry_out(
    config: RunConfig,
    unit: Unit,
    work: Path | None,
    folds: dict[int, Arrays] | None,
    keep_models: bool,
) -> tuple[Unit, Any]:
    """What a worker does: a pure function of its arguments, but for what `work` remembers."""
    if unit.held_out is not None:
        return unit, run_fold(config, unit, work, keep_models)
    decide = Detector(config, unit.seed, folds) if folds else None
    return unit, run_stream(config, unit, work, decide)


def _take_in(folder: RunFolder, state: _Seed, unit: Unit, result: Any) -> None:
    if unit.held_out is None:
        state.steps = result
    else:
        write_arrays(folder.work(unit.seed) / f"{unit.name}.npz", result)
        state.folds[unit.held_out] = result


def _finish(
    folder: RunFolder,
    config: RunConfig,
    seed: int,
    state: _Seed,
    cost: dict[Unit, int],
    keep_models: bool,
) -> None:
    assert state.steps is not None
    facts = {
        "seconds": {
            unit.name: _seconds_of(
                state.steps if unit.held_out is None else state.folds[unit.held_out]
            )
            for unit in state.units
        },
        "steps": {unit.name: cost[unit] for unit in state.units},
        "versions": {name: version(name) for name in ("limen", "numpy", "scikit-learn", "torch")}
        | {"python": platform.python_version()},
        "machine": platform.machine(),
    }
    write_json(folder.facts(seed), facts)
    write_json(folder.record(seed), seed_record(config, seed, state.folds, state.steps))
    if not keep_models:
        shutil.rmtree(folder.work(seed), ignore_errors=True)


def _seconds_of(result: Any) -> dict[str, float]:
    parts = (
        [step.arrays["seconds"] for step in result]
        if isinstance(result, list)
        else [result["seconds"]]
    )
    training, total = np.sum(parts, axis=0).round(2).tolist()
    return {"training": training, "total": total}


@contextlib.contextmanager
def _backend(jobs: int, scheduler: str | None) -> Iterator[None]:
    if scheduler is None:
        with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
            yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "a scheduler needs Dask: pip install -c constraints.txt '.[dask]'"
        ) from error
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise ConfigError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client, parallel_config(backend="dask"):
        yield
