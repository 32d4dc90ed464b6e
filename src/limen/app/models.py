"""A model of a user's own data: fitted, opened, asked, taught, and its file kept in order."""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from sklearn.base import clone

from limen import model_file, storage
from limen.alarm import NoveltyAlarm
from limen.app.estimators import estimator_for, is_shels, usual_model
from limen.app.inputs import Inputs
from limen.datasets import Dataset, DatasetError, read
from limen.open_set import OpenSetClassifier
from limen.packing import pack_estimator

Report: TypeAlias = Callable[[int, int], None]

FEW = 20  # points of a class below which little can be said of it


@dataclass(frozen=True)
class Settings:
    """How a model is to be fitted; see `limen fit --help`."""

    model: str | None = None
    method: str = "limen"
    objective: str = "gmean"
    holdout: float = 0.2
    memory: int | None = None
    epochs: int | None = None
    label: str = "label"
    jobs: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Model:
    """An open-set classifier with what its inputs are."""

    classifier: OpenSetClassifier
    inputs: Inputs
    name: str
    notes: tuple[str, ...] = ()

    def points(self) -> dict[str, int]:
        """How many points of each class are kept."""
        y = self.classifier.memory_.y.tolist()
        return {label: y.count(label) for label in self.classifier.classes_.tolist()}


class Verdict(NamedTuple):
    """What the model says of one input."""

    input: str
    label: str
    strangeness: float
    margin: float
    nearest: str


def fit(path: str | Path, settings: Settings, report: Report | None = None) -> Model:
    """A model of the data at `path`: a folder of images per class, .npz, .csv or .parquet.

    `report` is called after each training with how many are done, and of how many.
    """
    data = read(path, label=settings.label, test=None)
    _check(data)
    name = settings.model or usual_model(Inputs.of(data, flat=False))
    inputs = Inputs.of(data, flat=not is_shels(name))
    estimator, fold_params = estimator_for(
        name, inputs.kind, len(data.y_train), settings.epochs, settings.method
    )
    memory = settings.memory
    if memory is None:
        memory = 200 if inputs.kind == "images" else 0  # tables are small
    classifier = OpenSetClassifier(
        estimator,
        method=settings.method,
        objective=settings.objective,
        calibration_size=settings.holdout,
        fold_params=fold_params or None,
        memory=memory or None,
        n_jobs=settings.jobs or cpu_count(),
        random_state=settings.seed,
    )
    labels = np.array(data.class_names)[data.y_train]
    _check_storable(classifier.estimator, inputs.rows(data.X_train), labels)
    with warnings.catch_warnings(record=True) as caught, _explained():
        warnings.simplefilter("always")
        classifier.fit(inputs.rows(data.X_train), labels, report=report)
    return Model(classifier, inputs, name, (*data.notes, *_told(caught)))


def save(
    model: Model, path: str | Path, what: str, facts: Mapping[str, Any] | None = None, **how: bool
) -> int:
    """Write the model to a file, with more `facts` if need be; returns the version it is there."""
    also = {
        **(facts or {}),
        "what": what,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": model.inputs.to_dict(),
        "model": model.name,
    }
    return model_file.save(model.classifier, path, also, **how)


def open_model(path: str | os.PathLike[str], version: int | None = None) -> Model:
    """The model in a file, checked."""
    facts, parts = storage.read_model(path, version)
    classifier = model_file.assemble(path, facts, parts, OpenSetClassifier)
    if "inputs" not in facts:
        raise storage.ModelFileError(
            f"{path} was saved in Python: it does not say what its inputs are. Use limen.load"
        )
    try:
        return Model(classifier, Inputs.from_dict(facts["inputs"]), str(facts["model"]))
    except (KeyError, TypeError, ValueError) as error:
        raise storage.ModelFileError(f"{path} does not fit together: {error!r}") from error


def judge(model: Model, names: list[str], rows: NDArray[Any]) -> list[Verdict]:
    """What the model says of some inputs."""
    if not names:
        return []
    classifier = model.classifier
    with _explained():
        similarity = classifier.class_similarity(rows)
    strangeness = classifier.statistics_.strangeness(similarity)
    nearest = classifier.classes_[similarity.argmax(axis=1)].tolist()
    margins = (classifier.eta_ - strangeness).tolist()
    unknown = classifier.unknown_label or "unknown"
    return [
        Verdict(name, label if margin > 0 else str(unknown), strange, margin, label)
        for name, label, strange, margin in zip(
            names, nearest, strangeness.tolist(), margins, strict=True
        )
    ]


class Tally:
    """Counts verdicts, for the alarm at the end."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.unknown = self.total = 0

    def add(self, verdicts: list[Verdict]) -> None:
        self.total += len(verdicts)
        self.unknown += sum(verdict.margin <= 0 for verdict in verdicts)

    @property
    def alarm(self) -> NoveltyAlarm:
        classifier = self._model.classifier
        return NoveltyAlarm.of_counts(
            self.unknown,
            self.total,
            classifier.calibration_strangeness_,
            classifier.eta_,
            classifier.alarm_level,
        )


@dataclass(frozen=True)
class Lesson:
    """What learning a class did."""

    model: Model
    label: str
    points: int
    eta: tuple[float, float]
    old_accuracy: tuple[float, float]
    new_accuracy: float
    noticed: float


def learn(model: Model, path: str | Path, label: str) -> Lesson:
    """The model with one class more, taught by the points at `path`; see `teach`."""
    batches = list(model.inputs.stream(path))
    rows = np.concatenate([batch.rows for batch in batches])
    skipped = [f"left out: {name}: {why}" for batch in batches for name, why in batch.skipped]
    if len(rows) < 2:
        raise DatasetError(f"{path}: at least 2 points are needed to learn a class")
    lesson = teach(model, rows, label)
    return replace(lesson, model=replace(lesson.model, notes=(*skipped, *lesson.model.notes)))


def teach(model: Model, rows: NDArray[Any], label: str) -> Lesson:
    """The model with one class more: the cut improved first, then the class learnt.

    Accuracies are of points that calibrate and are never trained on, with the cut applied.
    """
    classifier = copy.deepcopy(model.classifier)
    usual, y_usual = classifier.memory_.calibration_rows()
    before = float(np.mean(classifier.predict(usual) == y_usual))
    noticed = float(np.mean(classifier.predict_novelty(rows)))
    eta = classifier.eta_
    with warnings.catch_warnings(record=True) as caught, _explained():
        warnings.simplefilter("always")
        classifier.learn_class(rows, label)
    after = float(np.mean(classifier.predict(usual) == y_usual))
    kept, y_kept = classifier.memory_.calibration_rows()
    new = float(np.mean(classifier.predict(kept[y_kept == label]) == label))
    grown = replace(model, classifier=classifier, notes=tuple(_told(caught)))
    return Lesson(grown, label, len(rows), (eta, classifier.eta_), (before, after), new, noticed)


@dataclass(frozen=True)
class Check:
    """How a model does on labelled data.

    known, novel : accuracy on classes it knows, share noticed of others (None: there are none).
    drift : p-value of a Kolmogorov-Smirnov test, strangeness of known points against calibration.
    shift : how far the median strangeness moved.
    """

    points: int
    known: float
    expected: float
    novel: float | None
    unknown_rate: float
    drift: float
    shift: float


def check(model: Model, path: str | Path, label: str = "label") -> Check:
    """Accuracy, novelty and drift on the labelled data at `path`."""
    from scipy.stats import ks_2samp

    data = read(path, label=label, test=None)
    rows = model.inputs.rows(_in_shape(model.inputs, data))
    labels = np.array(data.class_names)[data.y_train]
    verdicts = judge(model, [""] * len(rows), rows)
    said = np.array([verdict.label for verdict in verdicts])
    strangeness = np.array([verdict.strangeness for verdict in verdicts])
    flagged = np.array([verdict.margin <= 0 for verdict in verdicts])
    known = np.isin(labels, model.classifier.classes_)
    if not known.any():
        raise DatasetError(
            f"{path} holds no class that the model knows ({', '.join(model.classifier.classes_)}), "
            f"but {', '.join(data.class_names)}"
        )
    usual = model.classifier.calibration_strangeness_
    return Check(
        points=len(rows),
        known=float(np.mean(said[known] == labels[known])),
        expected=model.classifier.expected_known_accuracy_,
        novel=float(np.mean(flagged[~known])) if (~known).any() else None,
        unknown_rate=float(np.mean(flagged)),
        drift=float(ks_2samp(strangeness[known], usual).pvalue),
        shift=float(np.median(strangeness[known]) - np.median(usual)),
    )


def hardest(model: Model) -> Iterator[tuple[str, str, float]]:
    """Pairs that are hard to tell apart when the first is unknown, the hardest first."""
    taken = model.classifier.taken_for_
    pairs = [(a, b, share) for a, others in taken.items() for b, share in others.items()]
    yield from sorted(pairs, key=lambda pair: -pair[2])


def _check(data: Dataset) -> None:
    counts = np.bincount(data.y_train, minlength=data.n_classes)
    if data.n_classes < 3:
        raise DatasetError(
            f"there are {data.n_classes} classes: at least 3 are needed, since each is held out in "
            "turn"
        )
    lonely = [data.class_names[c] for c in np.flatnonzero(counts < 2)]
    if lonely:
        raise DatasetError(f"classes {lonely} have fewer than 2 points: add some or take them out")


def _check_storable(estimator: Any, X: NDArray[Any], y: NDArray[Any]) -> None:
    """Refuse, before anything is trained for long, what could not be saved in the end."""
    if hasattr(estimator, "to_parts"):
        return
    some = np.concatenate([np.flatnonzero(y == label)[:10] for label in np.unique(y)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tried = clone(estimator).fit(X[some], y[some])
        except Exception:  # too few for it: the training itself will tell
            return
    pack_estimator(tried)


def _in_shape(inputs: Inputs, data: Dataset) -> NDArray[Any]:
    from limen.datasets.shapes import bring_to

    if inputs.kind == "images":
        if len(data.shape) < 2:
            raise DatasetError("the model takes pictures, the data holds plain rows")
        inputs.check(data.X_train, data.name)
        return bring_to(data.X_train, inputs.shape)
    if inputs.columns and data.columns != inputs.columns:
        missing = [c for c in inputs.columns if c not in data.columns]
        if missing:
            raise DatasetError(f"the data lacks the columns {missing}, which the model needs")
        return data.X_train[:, [data.columns.index(c) for c in inputs.columns]]
    if data.shape != inputs.shape:
        raise DatasetError(f"rows have {data.shape} numbers, the model takes {inputs.shape}")
    return data.X_train


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """What a classifier refuses is about the data it was given."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise DatasetError(str(error)) from error


def _told(caught: list[warnings.WarningMessage]) -> list[str]:
    """What limen warned of; other libraries' warnings are passed on as they are."""
    ours = [w for w in caught if w.category.__module__.startswith("limen")]
    for other in caught:
        if other not in ours:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return [str(warning.message) for warning in ours]
