"""SHELS as an ordinary scikit-learn classifier."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from limen._version import __version__
from limen.labels import check_new_label
from limen.objectives import unknown_name
from limen.packing import pack_arrays, unpack_arrays
from limen.progress import Progress, reporting
from limen.shels import files
from limen.shels.accommodation import ACCOMMODATIONS, Accommodation, Lesson
from limen.shels.augmentation import AUGMENTATIONS
from limen.shels.deep_statistics import DeepStatistics
from limen.shels.inputs import InputFormat
from limen.shels.losses import group_sparsity
from limen.shels.network import PRESETS, NetworkConfig, SHELSNetwork
from limen.shels.scores import (
    DEEP_SCORES,
    SCORES,
    ClassFeatures,
    Embedding,
    Floats,
    Score,
    scores_to_try,
)
from limen.shels.settings import (
    EPOCHS_FOR_A_NEW_CLASS,
    SCHEDULES,
    TRAINING,
    rate_for_a_new_class,
)
from limen.shels.training import (
    Data,
    embedding_of,
    features_of,
    observe,
    thread_count,
    train,
)
from limen.storage import ModelFileError, read_model, write_model

_STORED_EXAMPLES = 200  # features kept of each class, for the scores that need them
_SCORE_NAMES = (*SCORES, *DEEP_SCORES)


class SHELSClassifier(ClassifierMixin, BaseEstimator):
    """A network whose classes use exclusive features, and which can take in new classes.

    It is trained with cosine logits and group sparsity, scores by the dot product of features and
    class rows, and learns one new class at a time with `add_class`. Together with
    `OpenSetClassifier` it is the system of the paper.

    Parameters
    ----------
    config : NetworkConfig, str or None, default=None
        The network; a preset name (``"mnist"``, ``"fashion-mnist"``, ``"cifar10"``, ``"digits"``);
        None fits one to the shape of the data.
    epochs : int, default=10
    lr : float, default=1e-4
        Of Adam.
    batch_size : int, default=32
    alpha : float, default=1e-3
        Weight of group sparsity.
    beta : float, default=3000
        Weight of soft freezing.
    distillation : float, default=0
        For replay: weight of going on to say what the network said of the old classes.
    scale : float, default=1
        What the cosines are multiplied with to make the logits; the paper has none.
    augment : {"shift", "flip", "shift-flip"}, optional
        What is done to training images, drawn anew for every batch: moved by up to an eighth of
        their size, mirrored left to right.
    schedule : {"constant", "one-cycle"}, default="constant"
        Of the learning rate: always `lr`, or up to it in the first fifth of the steps and down to
        nearly nothing in the rest.
    norm : bool, default=False
        Batch normalisation after every convolution, whatever `config` says.
    turns : {1, 4}, default=1
        With 4, training turns square images by quarters and tells the turns of a class apart.
    accommodation : {"soft-freeze", "replay", "prototype"} or callable, default="soft-freeze"
        How a new class is learnt: SHELS; fine-tuning with stored examples, class-balanced; a row
        that points to the class's mean, without training, and statistics of all points carried
        on. Or a function of a `limen.shels.Lesson`.
    accommodation_epochs : int, optional
        Default: 8 for soft freezing, 2 for replay.
    accommodation_steps : int, optional
        For replay: so many training steps for a new class instead of epochs.
    accommodation_lr : float, optional
        Default: ``lr / 2`` for soft freezing (``lr / 10`` with ``config="mnist"``), `lr` otherwise.
    score : str or callable, default="dot"
        What `similarity` returns: ``"dot"`` (the paper's), ``"cosine"``, ``"prototype"``,
        ``"mahalanobis"``, ``"knn"``, ``"energy"``, ``"msp"``, ``"map-knn"``, ``"deep-knn"``, with
        ``accommodation="prototype"`` also ``"deep-mahalanobis"``, or a function of (features,
        rows, stored) that gives one column per class.
    device : str, default="auto"
        Where torch computes: ``"auto"`` takes a GPU if there is one.
    threads : int, optional
        Threads for torch during training and scoring; None leaves its setting.
    random_state : int, Generator or RandomState, optional
        Same seed, same number of threads: the same weights, bit by bit.
    progress : bool, callable or None, default=None
        A bar with loss, accuracy and time left: None shows it on a terminal only. A function is
        called with a dict after every step and epoch.

    Attributes
    ----------
    classes_ : ndarray (C,)
        Labels in the order of the similarity columns; new ones are appended.
    network_ : SHELSNetwork
    input_format_ : InputFormat
        What the inputs were understood to be.
    history_ : list of dict
        Loss, training accuracy and seconds of every epoch.
    activities_ : list of tensor
        How active each node of each hidden layer is on what was learnt.
    stored_ : ClassFeatures
        Features and maps of up to 200 examples of each class, and perhaps statistics of all.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from limen.shels import SHELSClassifier
    >>> digits = load_digits()
    >>> known = digits.target < 3
    >>> X, y = digits.images[known], digits.target[known]
    >>> model = SHELSClassifier("digits", epochs=10, lr=1e-3, random_state=0).fit(X, y)
    >>> print(model.input_format_)
    grey images 8x8 (n, H, W), divided by 16
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    classes_: NDArray[Any]
    n_features_in_: int
    network_: SHELSNetwork
    activities_: list[torch.Tensor]
    stored_: ClassFeatures
    input_format_: InputFormat
    history_: list[dict[str, Any]]
    _generator_state: torch.Tensor

    def __init__(
        self,
        config: NetworkConfig | str | None = None,
        *,
        epochs: int = 10,
        lr: float = 1e-4,
        batch_size: int = 32,
        alpha: float = 1e-3,
        beta: float = 3000.0,
        distillation: float = 0.0,
        scale: float = 1.0,
        augment: str | None = None,
        schedule: str = "constant",
        norm: bool = False,
        turns: int = 1,
        accommodation: str | Accommodation = "soft-freeze",
        accommodation_epochs: int | None = None,
        accommodation_steps: int | None = None,
        accommodation_lr: float | None = None,
        score: str | Score = "dot",
        device: str = "auto",
        threads: int | None = None,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        progress: Progress = None,
    ) -> None:
        self.config = config
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.alpha = alpha
        self.beta = beta
        self.distillation = distillation
        self.scale = scale
        self.augment = augment
        self.schedule = schedule
        self.norm = norm
        self.turns = turns
        self.accommodation = accommodation
        self.accommodation_epochs = accommodation_epochs
        self.accommodation_steps = accommodation_steps
        self.accommodation_lr = accommodation_lr
        self.score_function = score  # `score` is scikit-learn's method; see get_params
        self.device = device
        self.threads = threads
        self.random_state = random_state
        self.progress = progress

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The network and training of the paper for a data set, with changes.

        >>> SHELSClassifier.preset("mnist", random_state=0).epochs
        10
        """
        if name not in PRESETS:
            raise ValueError(unknown_name("preset", name, PRESETS))
        return cls(**{"config": name, **TRAINING[name], **changes})

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Parameters by name; ``score`` is the parameter, not the method."""
        return {
            name: self.score_function if name == "score" else getattr(self, name)
            for name in self._get_param_names()
        }

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        score = params.pop("score", self.score_function)
        super().set_params(**params)
        self.score_function = score
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Learn classes from scratch. If interrupted, the estimator is as it was before.

        Parameters
        ----------
        X : array of shape (n, H, W), (n, C, H, W), (n, H, W, C) or (n, F)
            Images as bytes or floats, or feature rows. ``input_format_`` says what was understood.
        y : array-like of shape (n,)
        """
        self._fit(X, y)
        return self

    def fit_similarity(self, X: Any, y: Any) -> Floats:
        """`fit`, then `similarity` of X from the look at all data that `fit` takes anyway."""
        features = self._fit(X, y)
        if self.score_function in DEEP_SCORES:
            return self.similarity(X)
        return self.similarity_of_features(features)

    def _fit(self, X: Any, y: Any) -> Floats:
        """Learn, and return the features of X."""
        self._check_parameters()
        X, y = np.asarray(X), column_or_1d(y)
        check_consistent_length(X, y)
        check_classification_targets(y)
        classes, columns = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"at least 2 classes are needed, got {len(classes)}")
        expected = PRESETS.get(self.config) if isinstance(self.config, str) else self.config
        format_ = InputFormat.of(X, expected.input_shape if expected else None)
        config = expected or _config_for(format_)
        if self.norm:
            config = replace(config, norm=True)
        if self.turns != 1:
            config = replace(config, turns=self.turns)
        generator = torch.Generator().manual_seed(self._seed())
        data = Data(format_.tensor(X), torch.from_numpy(columns), format_)
        with thread_count(self.threads), reporting(self.progress) as report:
            network = SHELSNetwork(config, len(classes), generator).to(self._device())
            history = train(
                network,
                data,
                penalty=lambda: self.alpha * group_sparsity(network.weights()),
                epochs=self.epochs,
                lr=self.lr,
                batch_size=self.batch_size,
                generator=generator,
                report=report,
                phase="training",
                scale=self.scale,
                augment=self.augment if len(format_.shape) == 3 else None,
                schedule=self.schedule,
            )
            looked, activities = observe(network, data, self.accommodation == "prototype")
            stored = _stored(network, data, _picked(data, generator))
            if self.accommodation == "prototype":
                told = DeepStatistics.of(looked.side_by_side(), columns, network.rows.shape[1])
                stored = replace(stored, statistics=told)
        self.__dict__.update(
            classes_=classes,
            n_features_in_=X.shape[1],
            network_=network,
            activities_=activities,
            stored_=stored,
            input_format_=format_,
            history_=history,
            _generator_state=generator.get_state(),
        )
        return looked.features

    def add_class(self, X: Any, label: Any, memory: tuple[Any, Any] | None = None) -> Self:
        """Learn one new class. If interrupted, the estimator is as it was before.

        Parameters
        ----------
        X : array (n, ...)
            Inputs of the new class.
        label : int or str
        memory : tuple (X, y), optional
            Stored inputs of the known classes. ``"replay"`` trains on them; always they refresh
            the features that ``"prototype"``, ``"mahalanobis"`` and ``"knn"`` compare with.
        """
        check_is_fitted(self)
        self._check_parameters()
        label = check_new_label(label, self.classes_, unknown=None)
        inputs = self.input_format_.tensor(np.asarray(X))
        if len(inputs) == 0:
            raise ValueError(f"X holds no input of class {label!r}")
        new = Data(inputs, torch.full((len(inputs),), len(self.classes_)), self.input_format_)
        old = None if memory is None or len(memory[1]) == 0 else self._data(*memory)
        network, generator = (
            copy.deepcopy(self.network_),
            files.generator_from(self._generator_state),
        )
        with thread_count(self.threads), reporting(self.progress) as report:
            network.add_row(generator)
            lesson = Lesson(
                network=network,
                new=new,
                old=old,
                activities=[activity.clone() for activity in self.activities_],
                stored=self.stored_.copy(),
                epochs=self._accommodation_epochs(),
                steps=self.accommodation_steps,
                lr=self._accommodation_lr(),
                batch_size=self.batch_size,
                alpha=self.alpha,
                beta=self.beta,
                distillation=self.distillation,
                scale=self.scale,
                augment=self.augment if len(self.input_format_.shape) == 3 else None,
                schedule=self.schedule,
                generator=generator,
                report=report,
            )
            history = list(self._accommodate()(lesson) or [])
            stays = self.accommodation == "prototype"
            statistics = self.stored_.statistics if stays else None
            looked, added = observe(network, new, statistics is not None)
            stored = _stored(network, new, _picked(new, generator))
            if old is not None:
                stored = _stored(network, old, _picked(old, generator)).append(stored)
            if statistics is not None:
                statistics = statistics.with_class(looked.side_by_side())
            stored = replace(self.stored_.refreshed(stored), statistics=statistics)
        self.__dict__.update(
            classes_=np.append(self.classes_, np.asarray([label])),
            network_=network,
            activities_=[a + b for a, b in zip(self.activities_, added, strict=True)],
            stored_=stored,
            history_=[*self.history_, *history],
            _generator_state=generator.get_state(),
        )
        return self

    def without_class(self, label: Any) -> Self:
        """A copy that has never learnt this class, which must have been added after `fit`.

        It needs a network that stays as it is (``accommodation="prototype"``), and tells how
        strange the class would be today, next to those learnt since. Activities stay.
        """
        check_is_fitted(self)
        labels = self.classes_.tolist()
        if label not in labels:
            raise ValueError(f"class {label!r} is not known: {labels} are")
        if self.stored_.statistics is None:
            raise ValueError(
                "a class can be left out only of a network that stays as it is: fit with "
                "accommodation='prototype'"
            )
        column, left = labels.index(label), copy.copy(self)
        network = copy.deepcopy(self.network_)
        network.drop_row(column)
        left.__dict__.update(
            classes_=np.delete(self.classes_, column),
            network_=network,
            stored_=self.stored_.without(column),
        )
        return left

    def remember(self, X: Any, y: Any) -> Self:
        """Compare with these examples of the known classes from now on, and no others.

        They become ``stored_``, which ``"prototype"``, ``"mahalanobis"`` and the scores by nearest
        neighbours compare with.
        """
        check_is_fitted(self)
        data = self._data(X, y)
        missing = set(range(len(self.classes_))) - set(data.columns.tolist())
        if missing:
            raise ValueError(f"no example of {self.classes_[sorted(missing)].tolist()}")
        with thread_count(self.threads):
            stored = _stored(self.network_, data, torch.arange(len(data)))
        self.stored_ = replace(stored, statistics=self.stored_.statistics)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: ARG002
        """The first call fits; later ones add the classes of `y` that are new, one by one.

        Rows of classes that are known serve as stored examples while the new ones are learnt.
        `classes` is taken for the sake of scikit-learn and not needed: classes may come later.
        """
        if not hasattr(self, "network_"):
            return self.fit(X, y)
        X, y = np.asarray(X), column_or_1d(y)
        check_consistent_length(X, y)
        new = [label for label in np.unique(y).tolist() if label not in self.classes_.tolist()]
        if not new:
            raise ValueError(
                f"y holds no class that is new: {np.unique(y).tolist()} are all known. SHELS "
                "learns classes, not more of the same; use fit to start anew."
            )
        vars_of_params = {*self.get_params(), "score_function"}
        grown = copy.deepcopy(self)
        for label in new:
            known = np.isin(y, grown.classes_)
            grown.add_class(X[y == label], label, (X[known], y[known]) if known.any() else None)
        learnt = {name: value for name, value in vars(grown).items() if name not in vars_of_params}
        self.__dict__.update(learnt)
        return self

    def features(self, X: Any) -> Floats:
        """The last hidden activations, (n, d)."""
        check_is_fitted(self)
        inputs = self.input_format_.tensor(np.asarray(X))
        with thread_count(self.threads):
            return features_of(self.network_, inputs, self.input_format_)

    def embedding(self, X: Any) -> Embedding:
        """Features and the maps they are computed from; every score can be had from it."""
        check_is_fitted(self)
        inputs = self.input_format_.tensor(np.asarray(X))
        with thread_count(self.threads):
            return embedding_of(self.network_, inputs, self.input_format_)

    def similarity(self, X: Any, score: str | Score | None = None) -> Floats:
        """Similarity to each class of ``classes_``, (n, C). Higher = more familiar.

        Parameters
        ----------
        X : array (n, ...)
        score : str or callable, optional
            Another score than the estimator's.
        """
        chosen = self.score_function if score is None else score
        looked = self.embedding(X) if chosen in DEEP_SCORES else self.features(X)
        return self.similarity_of_features(looked, chosen)

    @property
    def score_names(self) -> tuple[str, ...]:
        """The scores to choose from; none where `score` is a function."""
        if callable(self.score_function):
            return ()
        stored = getattr(self, "stored_", None)
        changes = stored is not None and stored.statistics is None
        return scores_to_try("replay" if changes else str(self.accommodation))

    def similarities(self, X: Any, names: Sequence[str] | None = None) -> dict[str, Floats]:
        """`similarity` by several scores, or by all to choose from, from one look at X."""
        looked = self.embedding(X)
        wanted = self.score_names if names is None else names
        return {name: self.similarity_of_features(looked, name) for name in wanted}

    def similarity_of_features(
        self, features: Floats | Embedding, score: str | Score | None = None
    ) -> Floats:
        """`similarity` from features (n, d) or an `embedding` computed before, to (n, C)."""
        check_is_fitted(self)
        chosen = self.score_function if score is None else score
        return self._scored(features, chosen, self.stored_)

    def similarity_of_stored(self, score: str | Score | None = None) -> Floats:
        """`similarity` of the stored examples, each compared with others only, (m, C).

        In the order of ``stored_``. An example that is compared with itself looks more familiar
        than any new input can.
        """
        check_is_fitted(self)
        chosen, stored = self.score_function if score is None else score, self.stored_
        similarity = self._scored(Embedding(stored.features, stored.maps), chosen, stored)
        for aside in stored.in_turn():
            some = stored.only(aside)
            looked = Embedding(some.features, some.maps)
            similarity[aside] = self._scored(looked, chosen, stored.only(~aside))
        return similarity

    def _scored(
        self, features: Floats | Embedding, score: str | Score, stored: ClassFeatures
    ) -> Floats:
        rows = self.network_.rows.detach().cpu().numpy()
        plain = features.features if isinstance(features, Embedding) else features
        if score in DEEP_SCORES:
            if not isinstance(features, Embedding):
                raise ValueError(f"score={score!r} needs the embedding, features do not do")
            if len(stored.maps) == 0:
                raise ValueError(f"score={score!r} needs stored maps: fit the model anew")
            scores = DEEP_SCORES[str(score)](features, rows, stored)
        else:
            function = score if callable(score) else SCORES.get(score)
            if function is None:
                raise ValueError(unknown_name("score", score, _SCORE_NAMES))
            scores = np.asarray(function(plain, rows, stored))
        if scores.shape != (len(plain), len(self.classes_)):
            raise ValueError(
                f"score must give one column per class, ({len(plain)}, {len(self.classes_)}), "
                f"got {scores.shape}"
            )
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest similarity, (n,)."""
        winner = self.similarity(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[winner]
        return labels

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator to the folder `path`; nothing in it is executable."""
        facts, arrays = self.to_parts()
        parts = {"weights": pack_arrays(arrays)}
        write_model(path, {"limen": __version__, "estimator": facts}, parts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator saved at `path`."""
        facts, parts = read_model(path)
        try:
            return cls.from_parts(facts["estimator"], unpack_arrays(parts["weights"]))
        except ModelFileError:
            raise
        except Exception as error:  # whatever a hostile file can break
            raise ModelFileError(f"{path} does not fit together: {error!r}") from error

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Facts for JSON and arrays for safetensors, all that is needed to go on learning."""
        check_is_fitted(self)
        return files.to_parts(self)

    @classmethod
    def from_parts(cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `to_parts`."""
        model: Self = files.from_parts(cls, facts, arrays)
        return model

    def _check_parameters(self) -> None:
        if not isinstance(self.config, NetworkConfig | None) and self.config not in PRESETS:
            raise ValueError(unknown_name("config", self.config, PRESETS))
        if not callable(self.accommodation) and self.accommodation not in ACCOMMODATIONS:
            raise ValueError(unknown_name("accommodation", self.accommodation, ACCOMMODATIONS))
        if not callable(self.score_function) and self.score_function not in _SCORE_NAMES:
            raise ValueError(unknown_name("score", self.score_function, _SCORE_NAMES))
        whole = {"epochs": 0, "batch_size": 1}
        optional_ones = {"accommodation_epochs": 0, "accommodation_steps": 1, "threads": 1}
        for name, least in (whole | optional_ones).items():
            value = getattr(self, name)
            optional = name in optional_ones and value is None
            if not optional and not (isinstance(value, int | np.integer) and value >= least):
                raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")
        for name in ("alpha", "beta", "distillation"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)!r}")
        if self.augment is not None and self.augment not in AUGMENTATIONS:
            raise ValueError(unknown_name("augment", self.augment, AUGMENTATIONS))
        if self.schedule not in SCHEDULES:
            raise ValueError(unknown_name("schedule", self.schedule, SCHEDULES))
        for name in ("lr", "scale", "accommodation_lr"):
            value = getattr(self, name)
            if not (value is None and name == "accommodation_lr") and not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")

    def _data(self, X: Any, y: Any) -> Data:
        labels = column_or_1d(y)
        check_consistent_length(X, labels)
        place = {label: column for column, label in enumerate(self.classes_.tolist())}
        unknown = set(labels.tolist()) - place.keys()
        if unknown:
            raise ValueError(f"memory holds labels that are not known: {sorted(unknown)}")
        columns = torch.tensor([place[label] for label in labels.tolist()])
        return Data(self.input_format_.tensor(np.asarray(X)), columns, self.input_format_)

    def _accommodate(self) -> Accommodation:
        if callable(self.accommodation):
            return self.accommodation
        return ACCOMMODATIONS[self.accommodation]

    def _accommodation_epochs(self) -> int:
        if self.accommodation == "replay" and self.accommodation_steps is not None:
            return 1
        if self.accommodation_epochs is not None:
            return self.accommodation_epochs
        return EPOCHS_FOR_A_NEW_CLASS.get(str(self.accommodation), 8)

    def _accommodation_lr(self) -> float:
        if self.accommodation_lr is not None:
            return self.accommodation_lr
        return self.lr * rate_for_a_new_class(str(self.accommodation), str(self.config))

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def _seed(self) -> int:
        seed: Any = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = seed.randint(2**31)
        if isinstance(seed, int | np.integer) and 0 <= seed < 2**63:
            return int(seed)
        if seed is None or isinstance(seed, np.random.Generator):
            return int(np.random.default_rng(seed).integers(2**63))
        raise ValueError(f"random_state must be a whole number or a generator, got {seed!r}")


def _config_for(format_: InputFormat) -> NetworkConfig:
    if len(format_.shape) == 1:
        return NetworkConfig.mlp(*format_.shape)
    return NetworkConfig.for_shape(*format_.shape)


def _stored(network: SHELSNetwork, data: Data, picked: torch.Tensor) -> ClassFeatures:
    looked = embedding_of(network, data.inputs[picked], data.format)
    return ClassFeatures(looked.features, data.columns[picked].numpy(), looked.maps)


def _picked(data: Data, generator: torch.Generator) -> torch.Tensor:
    """Rows of some examples of every class in `data`, drawn at random."""
    order = torch.randperm(len(data), generator=generator)
    columns = data.columns[order]
    return torch.cat(
        [order[columns == column][:_STORED_EXAMPLES] for column in data.columns.unique()]
    )
