"""A fitted SHELSClassifier as facts and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from limen.shels.deep_statistics import DeepStatistics
from limen.shels.inputs import InputFormat
from limen.shels.network import NetworkConfig, SHELSNetwork
from limen.shels.scores import ClassFeatures
from limen.storage import ModelFileError


def to_parts(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Facts for JSON and arrays for safetensors."""
    params = model.get_params()
    for name in ("accommodation", "score"):
        if callable(params[name]):
            raise ModelFileError(
                f"{name} is a function, and a model file holds no code: use a named one"
            )
    if isinstance(model.config, NetworkConfig):
        params["config"] = asdict(model.config)
    params["progress"] = None
    if not isinstance(params["random_state"], int | None):
        params["random_state"] = None  # a generator has gone into the weights by now
    facts = {
        "kind": "shels",
        "params": params,
        "network": asdict(model.network_.config),
        "input": model.input_format_.to_dict(),
        "classes": model.classes_.tolist(),
        "history": model.history_,
    }
    arrays = {f"network.{k}": v.cpu().numpy() for k, v in model.network_.state_dict().items()}
    arrays |= {f"activity.{i}": a.cpu().numpy() for i, a in enumerate(model.activities_)}
    arrays["stored.features"] = model.stored_.features
    arrays["stored.labels"] = model.stored_.labels
    arrays["stored.maps"] = model.stored_.maps
    if model.stored_.statistics is not None:
        arrays |= {
            f"statistics.{name}": part for name, part in vars(model.stored_.statistics).items()
        }
    arrays["generator"] = model._generator_state.numpy()
    return facts, arrays


def from_parts(build: Any, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of `to_parts`; `build` is the SHELSClassifier class."""
    params = dict(facts["params"])
    if isinstance(params["config"], dict):
        params["config"] = _config(params["config"])
    model = build(**params)
    model._check_parameters()
    model.classes_ = np.asarray(facts["classes"])
    state = {
        name.removeprefix("network."): torch.from_numpy(array)
        for name, array in arrays.items()
        if name.startswith("network.")
    }
    if any(t.dtype != torch.float32 or not torch.isfinite(t).all() for t in state.values()):
        raise ValueError("weights must be finite numbers in single precision")
    # Shapes first: a hostile file must not make us allocate a network it does not contain.
    network = SHELSNetwork(_config(facts["network"]), len(model.classes_), generator=None)
    network.load_state_dict(state, assign=True)
    network = network.to(model._device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    activities = [
        torch.from_numpy(arrays[f"activity.{i}"]).to(model._device())
        for i in range(len(network.biases()))
    ]
    input_format = InputFormat.from_dict(facts["input"])
    model.__dict__.update(
        n_features_in_=input_format.shape[1 if input_format.layout[1] == "h" else 0],
        network_=network,
        activities_=activities,
        stored_=_stored(arrays),
        input_format_=input_format,
        history_=list(facts["history"]),
        _generator_state=generator_from(torch.from_numpy(arrays["generator"])).get_state(),
    )
    _check(model)
    return model


def _stored(arrays: Mapping[str, NDArray[Any]]) -> ClassFeatures:
    # Files written before there were maps, or statistics, have none.
    maps = arrays.get("stored.maps", np.empty((0, 0), dtype=np.float32))
    told = None
    if "statistics.count" in arrays:
        names = [field.name for field in fields(DeepStatistics)]
        told = DeepStatistics(*(arrays[f"statistics.{name}"] for name in names))
    return ClassFeatures(arrays["stored.features"], arrays["stored.labels"], maps, told)


def _check(model: Any) -> None:
    """Refuse parts that do not belong together."""
    network, stored, classes = model.network_, model.stored_, model.classes_
    shapes = [tuple(bias.shape) for bias in network.biases()]
    if [tuple(activity.shape) for activity in model.activities_] != shapes:
        raise ValueError("there must be one activity per node")
    if stored.features.shape != (len(stored.labels), network.rows.shape[1]):
        raise ValueError("stored features must be as many as their labels, and as long as a row")
    if len(stored.maps) not in (0, len(stored.labels)) or stored.maps.ndim != 2:
        raise ValueError("stored maps must be as many as their labels")
    if stored.statistics is not None:
        width = stored.features.shape[1] + stored.maps.shape[1]
        _check_statistics(stored.statistics, width, len(classes))
    if set(stored.labels.tolist()) != set(range(len(classes))):
        raise ValueError("there must be stored features of every class")
    if classes.ndim != 1 or len(np.unique(classes)) != len(classes):
        raise ValueError("classes must be distinct labels")
    if model.input_format_.shape != network.config.input_shape:
        raise ValueError("inputs and network must have one shape")


def _check_statistics(told: DeepStatistics, width: int, classes: int) -> None:
    size = told.basis.shape[-1]
    shapes = [part.shape for part in (told.basis, told.means, told.scatter, told.count)]
    if shapes != [(width, size), (classes, size), (classes, size, size), (classes,)]:
        raise ValueError("statistics must fit features and maps, with those of every class")
    parts = (told.basis, told.means, told.scatter)
    if not all(np.isfinite(part).all() for part in parts) or told.count.min() < 1:
        raise ValueError("statistics must be finite numbers of at least 1 point")


def generator_from(state: torch.Tensor) -> torch.Generator:
    """A generator that goes on from this state."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _config(state: Mapping[str, Any]) -> NetworkConfig:
    return NetworkConfig(
        tuple(state["input_shape"]),
        tuple(tuple(block) for block in state["blocks"]),
        tuple(state["hidden"]),
        float(state["dropout"]),
        bool(state.get("norm", False)),
        int(state.get("turns", 1)),
    )
