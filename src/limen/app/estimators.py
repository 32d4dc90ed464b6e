"""Which estimator a name stands for, ready to be fitted on a user's data."""

from __future__ import annotations

import inspect
from typing import Any

from limen.app.inputs import Inputs
from limen.datasets import DatasetError
from limen.objectives import unknown_name

_STEPS = 800  # of training SHELS, if nobody says for how long


def estimator_for(
    name: str, kind: str, points: int, epochs: int | None, method: str
) -> tuple[Any, dict[str, Any]]:
    """An estimator, and its parameters for the folds.

    `name` is ``"shels"`` or that of a scikit-learn classifier, in any case; `points` says how many
    there are to train on.
    """
    if name.lower() == "shels":
        return _shels(kind, points, epochs, method)
    if epochs is not None:
        raise DatasetError("epochs go with the model shels only")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import all_estimators

    classifiers = {n.lower(): (n, build) for n, build in all_estimators(type_filter="classifier")}
    if name.lower() not in classifiers:
        proper = [proper for proper, _ in classifiers.values()]
        raise DatasetError(unknown_name("model", name, ["shels", *proper]))
    proper, build = classifiers[name.lower()]
    try:
        return make_pipeline(StandardScaler(), build()), {}
    except TypeError as error:
        needed = [
            p.name
            for p in inspect.signature(build).parameters.values()
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        raise DatasetError(
            f"{proper} needs {', '.join(needed)}, which the command line cannot give: use "
            "OpenSetClassifier in Python"
        ) from error


def _shels(kind: str, points: int, epochs: int | None, method: str) -> tuple[Any, dict[str, Any]]:
    try:
        from limen.shels import SHELSClassifier
    except ImportError as error:
        raise DatasetError(
            "the model shels needs PyTorch: pip install -c constraints.txt '.[shels]', or name a "
            "scikit-learn classifier with --model"
        ) from error
    if epochs is None:
        epochs = min(max(round(_STEPS * 32 / points), 3), 100)
    if method == "paper":
        return SHELSClassifier(epochs=epochs, lr=1e-3, threads=1), {}
    network = SHELSClassifier(
        epochs=epochs,
        lr=1e-3,
        scale=10.0,
        schedule="one-cycle",
        norm=kind == "images",
        distillation=3.0,
        accommodation="replay",
        accommodation_steps=100,
        accommodation_lr=3e-4,
        threads=1,  # trainings run side by side instead
    )
    return network, {"epochs": max(epochs // 4, 1)}


def is_shels(name: str) -> bool:
    """Whether a model takes images as they are."""
    return name.lower() == "shels"


def usual_model(inputs: Inputs) -> str:
    """What is fitted if nobody names a model: SHELS for pictures if torch is there, else an SVC."""
    import importlib.util

    found = importlib.util.find_spec("torch") is not None
    return "shels" if inputs.kind == "images" and found else "SVC"
