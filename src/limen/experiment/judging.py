"""What a model makes of usual, test and novel points: strangeness, recorded for every score.

Nothing here depends on a policy or an objective: cuts are judged later, on what is recorded here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from limen.calibration import ClassStatistics, DegenerateClassWarning
from limen.shels.scores import BY_EXAMPLES

Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Step:
    """The model with some classes known, faced with the next one.

    arrays : strangeness and whether the class is right, of usual (``train``) and test points of the
    known classes; strangeness of the next class's training points; of all of them the class that
    won, and of usual points the true one; the confusion matrix on the test points, rows true,
    columns won, in the order of `known`; what is usual, as (count, mean, std) of
    each class, by all points that tell it and by those kept in memory.
    """

    known: list[int]
    next: int | None  # None: another data set
    arrays: Arrays
    learnt: bool | None = None  # whether the class was then learnt; None: the stream ends here


def view(arrays: Arrays, score: str) -> Arrays:
    """What was recorded with one score; a run with a single score does not name it."""
    return under(arrays, score) or arrays


def under(arrays: Arrays, name: str) -> Arrays:
    """What was recorded under a name, as `named` does."""
    mine = f"{name}/"
    return {n.removeprefix(mine): array for n, array in arrays.items() if n.startswith(mine)}


def named(name: str, arrays: Arrays) -> Arrays:
    return {f"{name}/{n}": array for n, array in arrays.items()}


def after(met: int) -> str:
    """Of a class held out, what it looks like once so many classes are met is under this name."""
    return f"after-{met}"


def again(label: int) -> str:
    """Of a step, what a class discovered before would look like now is under this name."""
    return f"again-{label}"


def aligned(arrays: Arrays, known: list[int], cuts: NDArray[np.float64], eta: float) -> Arrays:
    """The same, moved so that the one cut `eta` decides as a cut for each class of `known` does."""
    column = {label: place for place, label in enumerate(known)}
    moved = {}
    for name, won in (("train", "train_won"), ("test", "test_won"), ("novel", "won")):
        own = cuts[[column[label] for label in arrays[won].tolist()]]
        moved[name] = arrays[name] - own + eta
    return {**arrays, **moved}


class Looks:
    """Similarities of several sets of inputs, by one score after the other, looked at once.

    With a single score, the similarity of a set that was had already can be given in `seen`.
    `stored` tells where each point of ``usual`` is among the examples the model compares with, -1
    if it is none of them: an example is compared with the others only.
    """

    def __init__(
        self,
        model: Any,
        scores: tuple[str, ...],
        seen: Arrays | None = None,
        stored: NDArray[np.intp] | None = None,
        **inputs: Any,
    ) -> None:
        self._model, self.scores, self._stored = model, scores, stored
        look = model.embedding if len(scores) > 1 else (lambda X: model.similarity(X, scores[0]))
        self._seen = {**(seen or {}), **{name: look(X) for name, X in inputs.items()}}

    def by(self, score: str) -> dict[str, NDArray[Any]]:
        """Similarity of each set, (n, C)."""
        similarity = self._seen
        if len(self.scores) > 1:
            similarity = {
                name: self._model.similarity_of_features(seen, score)
                for name, seen in self._seen.items()
            }
        if self._stored is not None and score in BY_EXAMPLES:
            own = self._stored >= 0
            alone = self._model.similarity_of_stored(score)
            similarity["usual"][own] = alone[self._stored[own]]
        return similarity

    def named(self, score: str, arrays: Arrays) -> Arrays:
        """As they are recorded; see `view`."""
        return arrays if len(self.scores) == 1 else named(score, arrays)


def judge_held_out(
    looks: Looks, classes: NDArray[Any], y_usual: NDArray[Any], name: str | None = None
) -> Arrays:
    """Of a model without one class: strangeness of ``usual`` points and of the ``novel`` class.

    ``known`` is infinite where the class is wrong: such a point is wrong at every cut. ``won`` is
    the class each novel point is taken for, if it is taken for known. Recorded under `name`.
    """
    arrays: Arrays = {}
    for score in looks.scores:
        seen = looks.by(score)
        statistics = what_is_usual(seen["usual"], y_usual, classes)
        right = classes[seen["usual"].argmax(axis=1)] == y_usual
        found = {
            "known": np.where(right, statistics.strangeness(seen["usual"]), np.inf),
            "novel": statistics.strangeness(seen["novel"]),
            "won": classes[seen["novel"].argmax(axis=1)],
        }
        arrays |= looks.named(score, named(name, found) if name else found)
    return arrays


def judge_step(
    looks: Looks,
    classes: NDArray[Any],
    y_usual: NDArray[Any],
    kept: NDArray[np.bool_],
    y_test: NDArray[Any],
    before: Step | None,
) -> Arrays:
    """Of the model that meets a class: what `Step` says, for every score.

    `kept` marks the usual points that stay in memory. Where `before` is given, its classes have no
    others left, and what is usual for them is carried on from there.
    """
    arrays: Arrays = {}
    for score in looks.scores:
        seen = looks.by(score)
        by_kept = what_is_usual(seen["usual"][kept], y_usual[kept], classes)
        statistics = what_is_usual(seen["usual"], y_usual, classes)
        if before is not None:
            last = view(before.arrays, score)
            carried = [
                ClassStatistics.from_moments(before.known, *last[name])
                for name in ("usual", "usual_kept")
            ]
            statistics = carried[0].carried(carried[1], statistics)
        told = kept if before is not None else np.ones_like(kept)
        usual, won = seen["usual"][told], seen["test"].argmax(axis=1)
        columns = np.array([classes.tolist().index(c) for c in y_test.tolist()])
        confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        np.add.at(confusion, (columns, won), 1)
        arrays |= looks.named(
            score,
            {
                "train": statistics.strangeness(usual),
                "train_right": classes[usual.argmax(axis=1)] == y_usual[told],
                "train_won": classes[usual.argmax(axis=1)],
                "train_class": y_usual[told],
                "test": statistics.strangeness(seen["test"]),
                "test_right": won == columns,
                "test_won": classes[won],
                "novel": statistics.strangeness(seen["novel"]),
                "won": classes[seen["novel"].argmax(axis=1)],
                "confusion": confusion,
                "usual": _moments(statistics),
                "usual_kept": _moments(by_kept),
            },
        )
    return arrays


def what_is_usual(similarity: Any, y: Any, classes: Any) -> ClassStatistics:
    with warnings.catch_warnings():
        # A class forgotten altogether is a finding: the record shows it in its confusion matrix.
        warnings.simplefilter("ignore", DegenerateClassWarning)
        return ClassStatistics.from_scores(similarity, y, classes=classes)


def _moments(statistics: ClassStatistics) -> NDArray[np.float64]:
    mean = np.where(statistics.count > 0, statistics.mean, 0.0)
    return np.stack([statistics.count, mean, statistics.std])
