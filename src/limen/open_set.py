"""Any classifier, with an automatic cut between what it knows and what it has never seen."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from limen import model_file
from limen.accommodation import accommodate, classes_of
from limen.alarm import NoveltyAlarm
from limen.calibration import ClassStatistics, Floats
from limen.class_cuts import BY_CLASS, class_cuts
from limen.coding import fit_any
from limen.continual import ContinualEta
from limen.exemplars import STRATEGIES, pick, unit_features
from limen.folds import (
    Fold,
    LeaveOneClassOut,
    cheaper_of,
    check_evidence,
    judge_fold,
    run_fold,
    warn_uninformative,
)
from limen.labels import check_known, check_new_label, unknown_label_for, with_unknown
from limen.memory import Memory, Picker
from limen.objectives import Objective, ObjectiveFunction, resolve_objective, unknown_name
from limen.rows import as_rows
from limen.selection import (
    COMBINATIONS,
    Evidence,
    Selection,
    combine,
    expected_accuracies,
    select,
)
from limen.similarity import (
    Similarity,
    candidates_of,
    check_agreement,
    check_name,
    similarities_of,
    similarity_of,
)
from limen.threshold import EtaChoice

_CHOSEN = "chosen"


class OpenSetClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that says "I have never seen this", and learns what it had never seen.

    `fit` holds out each known class in turn, finds the cut that would have caught it, and carries
    what it found to what is truly unknown. `learn_class` adds a class: first the cut is improved on
    it, then the classifier learns it, then every class is calibrated anew.

    Score direction: a point is known if its strangeness is below ``eta_``, novel otherwise.
    ``decision_function`` is ``eta_ - strangeness``: positive = known, as in scikit-learn's outlier
    detectors.

    Parameters
    ----------
    estimator : estimator
        Any classifier with ``fit`` and one of ``similarity``, ``decision_function`` and
        ``predict_proba``. At least three known classes are needed.
    method : {"limen", "paper"}, default="limen"
        Who decides what `similarity` and `rule` leave open. ``"limen"``: the held-out classes, and
        every class discovered, choose similarity and rule together with the cut: those that would
        have done best for each class, judged by the others. ``"paper"``: the first similarity the
        estimator offers, and halving.
    objective : str, objective or callable, default="gmean"
        What the cut maximises; see `search_eta`.
    similarity : str or callable, default="auto"
        How familiar an input looks to each class: ``similarity(X)`` (of SHELS, any of its scores),
        ``decision_function``, ``predict_joint_log_proba`` (naive Bayes) or the logarithm of
        ``predict_proba``; ``"auto"`` chooses among those the estimator has. Or the name of one of
        these or of another method, a score name for the estimator's own ``similarity(X,
        score=...)``, or a function ``(estimator, X) -> (n, n_classes)``.
    calibration : {"holdout", "train"}, default="holdout"
        Which points tell what is usual. ``"holdout"`` keeps `calibration_size` of every class out
        of training: right for any model. ``"train"`` uses the training points, the paper's way:
        wrong for models that score their own training points perfectly, such as forests.
    calibration_size : float, default=0.2
        Share of every class kept out of training with ``calibration="holdout"``.
    rule : {"by-class", "halving", "mean", "median", "consensus", "robust", "chosen"}, optional
        How evidence makes one cut: half way to each discovery in turn (the paper's), the mean or
        the median of all cuts, the cut that is best for all classes together, or for classes like
        these (``"robust"``, the default of ``"limen"``); ``"chosen"``: by the rule that the
        evidence favours. Or ``"by-class"``: one for every class, all made together
        (`limen.class_cuts`).
    fold_params : dict, optional
        Parameters of `estimator` for the trainings with a class held out, such as fewer epochs:
        eta is in units of the spread, so that a cheaper model often tells as much.
    memory : int or None, default=None
        How many points of each class are kept for later learning and calibration; None keeps all.
    memory_choice : {"reservoir", "herding", "k-centre"}, default="reservoir"
        Which; see `limen.exemplars.pick`. By the estimator's ``features(X)`` if it has them.
    unknown_label : int or str, optional
        What `predict` says of a novel point. Default: -1, or ``"unknown"`` for text labels.
    alarm_level : float, default=0.01
        `detect_novelty` raises the alarm below this p-value.
    n_jobs : int, optional
        Trainings to run at once, through joblib.
    random_state : int, Generator or RandomState, optional
        Seeds the choice of calibration and stored points, and every ``random_state=None`` inside
        `estimator`.
    verbose : int, default=0
        Passed to joblib: progress of the trainings.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Known labels, in the order of the similarity columns.
    eta_ : float
        The cut, in standard deviations below what is usual. With ``rule="by-class"`` each class
        has ``statistics_.leeway`` on top, which `strangeness` takes off.
    selection_ : Selection
        Which similarity and rule were chosen, and how well each would have done. With
        ``rule="by-class"``, that of the one cut ``eta_``, by ``"robust"``.
    continual_eta_ : ContinualEta
        How the cut came about, by the similarity chosen now.
    fold_choices_ : dict
        Held-out class -> `EtaChoice`, by the similarity that `fit` chose.
    taken_for_ : dict
        Held-out or discovered class -> the known classes it was taken for while it was novel, with
        the share of its points: which pairs are hard to tell apart when one is unknown.
    statistics_ : ClassStatistics
        What is usual for each class.
    thresholds_ : ndarray of shape (C,)
        The similarity each class demands.
    estimator_ : estimator
        The fitted classifier.
    expected_known_accuracy_, expected_novel_accuracy_ : float
        Mean over the classes met as novel so far, each judged at the cut that the others give. With
        ``calibration="train"`` the known one is of training points, hence optimistic; with
        ``rule="by-class"`` they are those of the one cut ``eta_``.
    calibration_strangeness_ : ndarray
        Strangeness of all calibration points, ascending.
    accommodation_ : str or None
        How the last new class was learnt: ``"add_class"``, ``"partial_fit"`` or ``"refit"``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.svm import SVC
    >>> from limen import OpenSetClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = OpenSetClassifier(SVC(), random_state=0).fit(X[y < 8], y[y < 8])
    >>> bool(model.detect_novelty(X[y == 8]))
    True
    >>> model.learn_class(X[y == 8], 8).classes_
    array([0, 1, 2, 3, 4, 5, 6, 7, 8])
    """

    estimator_: Any
    classes_: NDArray[Any]
    eta_: float
    evidence_: dict[str, list[Evidence]]
    selection_: Selection
    continual_eta_: ContinualEta
    fold_choices_: dict[Any, EtaChoice]
    taken_for_: dict[Any, dict[Any, float]]
    statistics_: ClassStatistics
    expected_known_accuracy_: float
    expected_novel_accuracy_: float
    calibration_strangeness_: Floats
    accommodation_: str | None
    memory_: Memory
    _rng: np.random.Generator
    _row_shape: tuple[int, ...]

    def __init__(
        self,
        estimator: Any,
        *,
        method: str = "limen",
        objective: str | Objective | ObjectiveFunction = "gmean",
        similarity: Similarity = "auto",
        calibration: str = "holdout",
        calibration_size: float = 0.2,
        rule: str | None = None,
        fold_params: Mapping[str, Any] | None = None,
        memory: int | None = None,
        memory_choice: str = "reservoir",
        unknown_label: int | str | None = None,
        alarm_level: float = 0.01,
        n_jobs: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.objective = objective
        self.similarity = similarity
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.rule = rule
        self.fold_params = fold_params
        self.memory = memory
        self.memory_choice = memory_choice
        self.unknown_label = unknown_label
        self.alarm_level = alarm_level
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, report: Callable[[int, int], None] | None = None) -> Self:
        """Learn the known classes and choose the cut, with no novel data.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix or images of shape (n, ...)
        y : array-like of shape (n,)
            At least three classes, of at least two points each.
        report : callable, optional
            Called after each training with how many are done, and of how many.
        """
        self._check_parameters()
        X, y, classes, state = self._check_data(X, y)
        rng = _generator(self.random_state)
        fresh = self._seeded(rng)
        memory = Memory.split(X, y, self._share, rng)

        candidates = candidates_of(fresh, self.similarity, every=self.method == "limen")
        cheaper = cheaper_of(fresh, self.fold_params)
        work = [delayed(_fit)(fresh, *memory.training_rows())]
        work += [
            delayed(run_fold)(
                clone(cheaper, safe=False),
                X,
                y,
                held_out,
                memory.calibration,
                memory.training,
                candidates,
                self.objective,
            )
            for _, held_out in LeaveOneClassOut().split(X, y)
        ]
        trained = Parallel(n_jobs=self.n_jobs, verbose=self.verbose, return_as="generator")(work)
        results = []
        for result in trained:
            results.append(result)
            if report is not None:
                report(len(results), len(work))
        estimator, *folds = results

        by_class = dict(zip(classes.tolist(), folds, strict=True))
        evidence = {name: [fold[name].evidence for fold in folds] for name in candidates}
        check_evidence(evidence)
        selection = self._select(evidence)
        chosen = {label: fold[selection.score] for label, fold in by_class.items()}
        warn_uninformative([c for c, fold in chosen.items() if not fold.evidence.informative])
        state |= self._calibrated(estimator, memory, selection, evidence[selection.score])
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        self.__dict__.update(
            state,
            **self._told(evidence, selection),
            memory_=memory.reduced(self.memory, self._share, self._picker(estimator), rng),
            fold_choices_={c: fold.choice for c, fold in chosen.items() if fold.choice},
            taken_for_={c: fold.taken_for(selection.eta) for c, fold in chosen.items()},
            accommodation_=None,
            _rng=rng,
        )
        return self

    def learn_class(self, X: Any, label: Any) -> Self:
        """Learn a class that was novel until now.

        The cut is improved on it first, while it is still novel; then the estimator learns it;
        then every class is calibrated anew. If any step fails, the model is as it was before.

        Parameters
        ----------
        X : array-like of shape (n, ...)
            Points of the new class, at least two.
        label : int or str
            Its label, new to the model.
        """
        X, label = self._check_new(X, label)
        memory, rng = self.memory_, copy.deepcopy(self._rng)
        folds, evidence, selection = self._improved(X, label)
        met = folds[self.selection_.score]  # as it looked at the cut in use
        if not folds[selection.score].evidence.informative:
            warn_uninformative([label])

        new = Memory.split(X, np.full(X.shape[0], label), self._share, rng)
        kept = new.reduced(self.memory, self._share, self._picker(self.estimator_), rng)
        estimator, accommodation = accommodate(
            self.estimator_,
            new.training_rows()[0],
            label,
            memory.training_rows(),
            kept.training_rows()[0],
        )
        carry = self.memory is not None and selection.score == self.selection_.score
        pieces = evidence[selection.score]
        state = self._calibrated(estimator, memory.append(new), selection, pieces, carry)
        self.__dict__.update(
            state,
            **self._told(evidence, selection),
            taken_for_={**self.taken_for_, label: met.taken_for(self.eta_)},
            memory_=memory.append(kept),
            accommodation_=accommodation,
            _rng=rng,
        )
        return self

    def preview_class(self, X: Any, label: Any) -> Selection:
        """What `learn_class` would choose with this class, before anything is learnt.

        Returns
        -------
        Selection
            Similarity, rule and the cut, ``eta``. The model stays as it is.
        """
        _, _, selection = self._improved(*self._check_new(X, label))
        return selection

    def save(self, path: str | os.PathLike[str], *, as_zip: bool = False) -> None:
        """Write the model to the folder or file `path`, with all it needs to go on learning.

        It holds data only and can be loaded without fear: see `limen.load`.
        """
        check_is_fitted(self)
        model_file.save(self, path, as_zip=as_zip)

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels; the unknown label where a point is novel. Shape (n,)."""
        similarity = self.class_similarity(X)
        labels = self.classes_[np.argmax(similarity, axis=1)]
        novel = self.statistics_.strangeness(similarity) >= self.eta_
        return with_unknown(labels, novel, unknown_label_for(self.classes_, self.unknown_label))

    def predict_novelty(self, X: Any) -> NDArray[np.bool_]:
        """True where a point is novel: ``strangeness >= eta_``. Shape (n,)."""
        return self.decision_function(X) <= 0

    def decision_function(self, X: Any) -> Floats:
        """``eta_ - strangeness``: positive = known, zero or negative = novel. Shape (n,)."""
        strangeness = self.strangeness(X)
        return self.eta_ - strangeness

    def strangeness(self, X: Any) -> Floats:
        """How many deviations each point lies below what is usual. Higher = stranger, (n,)."""
        similarity = self.class_similarity(X)
        return self.statistics_.strangeness(similarity)

    def class_similarity(self, X: Any) -> Floats:
        """Similarity to each class of ``classes_``. Higher = more familiar, shape (n, C)."""
        check_is_fitted(self)
        X = self._check_rows(X)
        return similarity_of(self.estimator_, X, self._how(self.selection_), self.classes_)

    def detect_novelty(self, X: Any) -> NoveltyAlarm:
        """Is there something new in this batch? See `NoveltyAlarm`."""
        return NoveltyAlarm.judge(
            self.strangeness(X), self.calibration_strangeness_, self.eta_, self.alarm_level
        )

    @property
    def thresholds_(self) -> Floats:
        check_is_fitted(self)
        return self.statistics_.thresholds(self.eta_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def _check_parameters(self) -> None:
        resolve_objective(self.objective)
        if self.method not in ("limen", "paper"):
            raise ValueError(unknown_name("method", self.method, ["limen", "paper"]))
        known_rules = [BY_CLASS, *COMBINATIONS, _CHOSEN]
        if self.rule is not None and self.rule not in known_rules:
            raise ValueError(unknown_name("rule", self.rule, known_rules))
        if self.memory_choice not in STRATEGIES:
            raise ValueError(unknown_name("memory_choice", self.memory_choice, STRATEGIES))
        if self.calibration not in ("holdout", "train"):
            raise ValueError(unknown_name("calibration", self.calibration, ["holdout", "train"]))
        if not 0 < self.calibration_size < 1:
            raise ValueError(
                f"calibration_size must lie between 0 and 1, got {self.calibration_size!r}"
            )
        if self.memory is not None and not (isinstance(self.memory, Integral) and self.memory > 1):
            raise ValueError(
                f"memory must be None or at least 2 points a class, got {self.memory!r}"
            )
        check_name(self.estimator, self.similarity)
        if not 0 < self.alarm_level < 1:
            raise ValueError(f"alarm_level must lie between 0 and 1, got {self.alarm_level!r}")

    def _check_data(self, X: Any, y: Any) -> tuple[Any, NDArray[Any], NDArray[Any], dict[str, Any]]:
        """X, y, the classes, and what to remember of X once all has gone well."""
        X, seen = as_rows(X), OpenSetClassifier(self.estimator)
        X, y = validate_data(seen, X, y, skip_check_array=True)
        y, classes = check_known(X, y)
        unknown_label_for(classes, self.unknown_label)
        names = ("n_features_in_", "feature_names_in_")
        remembered = {name: getattr(seen, name) for name in names if hasattr(seen, name)}
        return X, y, classes, {**remembered, "_row_shape": tuple(X.shape[1:])}

    def _check_rows(self, X: Any) -> Any:
        X = as_rows(X)
        if X.shape[1:] != self._row_shape and (X.ndim != 2 or len(self._row_shape) != 1):
            raise ValueError(
                f"X must hold rows of shape {self._row_shape}, as in fit, got an array of shape "
                f"{X.shape}. Reshape your data: for one row, pass X[None]."
            )
        return validate_data(self, X, reset=False, skip_check_array=True)

    def _seeded(self, rng: np.random.Generator) -> Any:
        estimator = clone(self.estimator, safe=False)
        if hasattr(estimator, "get_params"):
            seeds = {
                name: int(rng.integers(2**31))
                for name, value in sorted(estimator.get_params().items())
                if (name == "random_state" or name.endswith("__random_state")) and value is None
            }
            estimator.set_params(**seeds)
        return estimator

    @property
    def _share(self) -> float | None:
        """Of every class, what is kept out of training."""
        return self.calibration_size if self.calibration == "holdout" else None

    def _how(self, selection: Selection) -> Similarity:
        """The similarity that was chosen; its name is that of the only one if it is a function."""
        return selection.score if isinstance(self.similarity, str) else self.similarity

    def _select(self, evidence: Mapping[str, Sequence[Evidence]]) -> Selection:
        # Scores are chosen by the one cut that comes nearest, which is eta_ too.
        named = "robust" if self._rule == BY_CLASS else self._rule
        return select(
            evidence, self.objective, tuple(COMBINATIONS) if named == _CHOSEN else (named,)
        )

    @property
    def _rule(self) -> str:
        return self.rule or ("robust" if self.method == "limen" else "halving")

    def _told(self, evidence: dict[str, list[Evidence]], selection: Selection) -> dict[str, Any]:
        """What follows from the evidence, and how the cut came about by the similarity chosen."""
        pieces = evidence[selection.score]
        eta, rule = ContinualEta("given"), selection.rule
        folds = [piece for piece in pieces if not piece.discovered]
        told = [piece for piece in folds if piece.informative] or folds
        start = combine(told, rule, self.objective)
        eta.start({piece.label: piece.eta for piece in told}, value=start)
        for place, piece in enumerate(pieces):
            if piece.discovered and piece.informative:
                value = combine(pieces[: place + 1], rule, self.objective)
                eta.update(piece.eta, piece.label, value=value)
        known, novel = expected_accuracies(pieces, rule, self.objective)
        return {
            "evidence_": evidence,
            "selection_": selection,
            "continual_eta_": eta,
            "eta_": selection.eta,
            "expected_known_accuracy_": known,
            "expected_novel_accuracy_": novel,
        }

    def _check_new(self, X: Any, label: Any) -> tuple[Any, Any]:
        """Points and label of a class that can be learnt."""
        check_is_fitted(self)
        X = self._check_rows(X)
        unknown = unknown_label_for(self.classes_, self.unknown_label)
        label = check_new_label(label, self.classes_, unknown)
        if X.shape[0] < 2:
            raise ValueError(
                f"class {label!r} needs at least 2 points to be learnt, got {X.shape[0]}"
            )
        return X, label

    def _improved(
        self, X: Any, label: Any
    ) -> tuple[dict[str, Fold], dict[str, list[Evidence]], Selection]:
        """What a class teaches while it is novel, and the choice that follows from it."""
        memory = self.memory_
        usual, y_usual = memory.calibration_rows()
        folds = self._meet(usual, y_usual, X, label, len(memory.y) / len(y_usual))
        evidence = {name: [*self.evidence_[name], folds[name].evidence] for name in folds}
        return folds, evidence, self._select(evidence)

    def _meet(
        self, usual: Any, y_usual: NDArray[Any], X: Any, label: Any, stands_for: float
    ) -> dict[str, Fold]:
        """What a class teaches while it is novel, by every similarity that may be chosen."""
        given = None if isinstance(self.similarity, str) else self.similarity
        names: dict[str, Similarity] = {name: given or name for name in self.evidence_}
        known, novel = (
            similarities_of(self.estimator_, rows, names, self.classes_) for rows in (usual, X)
        )
        folds = {}
        for name in names:
            statistics = self.statistics_.allowing(np.zeros(len(self.classes_)))
            if name != self.selection_.score:
                statistics = ClassStatistics(self.classes_).update(known[name], y_usual)
            folds[name] = judge_fold(
                *(statistics, known[name], y_usual, novel[name]),
                *(self.objective, stands_for, label),
                discovered=True,
            )
        return folds

    def _picker(self, estimator: Any) -> Picker:
        """Which points of a class are kept, by what the estimator makes of them."""

        def picker(X: Any, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
            if self.memory_choice == "reservoir":
                return pick(np.empty((X.shape[0], 0)), size, rng=rng)
            return pick(unit_features(estimator, X), size, self.memory_choice, rng=rng)

        return picker

    def _calibrated(
        self,
        estimator: Any,
        memory: Memory,
        selection: Selection,
        evidence: Sequence[Evidence],
        carry: bool = False,
    ) -> dict[str, Any]:
        """The estimator with what is usual for its classes, and by how much each may depart.

        With `carry`, what was usual for the old classes is carried on: the points that were kept
        tell how it moved.
        """
        X, y = memory.calibration_rows()
        classes = classes_of(estimator, y)
        how = self._how(selection)
        similarity = similarity_of(estimator, X, how, classes)
        check_agreement(estimator, X, similarity, classes)
        statistics = ClassStatistics.from_scores(similarity, y, classes=classes)
        if carry:
            kept, y_kept = self.memory_.calibration_rows()
            before = ClassStatistics(self.classes_)
            before.update(similarity_of(self.estimator_, kept, how, self.classes_), y_kept)
            statistics = self.statistics_.carried(before, statistics)
        if self._rule == BY_CLASS:
            right = classes[similarity.argmax(axis=1)] == y
            known = np.where(right, statistics.strangeness(similarity), np.inf)
            cuts = class_cuts(evidence, known, y, classes, self.objective)
            statistics = statistics.allowing(cuts - selection.eta)
        return {
            "estimator_": estimator,
            "classes_": classes,
            "statistics_": statistics,
            "calibration_strangeness_": np.sort(statistics.strangeness(similarity)),
        }


def load(path: str | os.PathLike[str]) -> OpenSetClassifier:
    """The model saved at `path`. Nothing in a model file is executed.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, altered, or of a newer format.
    """
    model: OpenSetClassifier = model_file.restore(path, OpenSetClassifier)
    return model


def _fit(estimator: Any, X: Any, y: NDArray[Any]) -> Any:
    return fit_any(clone(estimator, safe=False), X, y)


def _generator(seed: Any) -> np.random.Generator:
    # Always one of our own, of a kind that can be stored.
    if isinstance(seed, np.random.RandomState):
        seed = seed.randint(2**31)
    elif isinstance(seed, np.random.Generator):
        seed = seed.integers(2**63)
    return np.random.Generator(np.random.PCG64(seed))
