"""An OpenSetClassifier as a model file, and back."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import clone

from limen._version import __version__
from limen.calibration import ClassStatistics
from limen.continual import ContinualEta
from limen.memory import Memory
from limen.objectives import Objective
from limen.packing import (
    pack_arrays,
    pack_estimator,
    pack_rows,
    unpack_arrays,
    unpack_estimator,
    unpack_rows,
)
from limen.selection import Evidence, Selection
from limen.storage import ModelFileError, read_model, write_model
from limen.threshold import EtaChoice

# Estimators that bring their own way to be stored. Imported by name: torch only if needed.
_OWN_FORMAT = {"shels": ("limen.shels", "SHELSClassifier")}
_PLAIN = (
    *("method", "calibration", "calibration_size", "rule", "fold_params", "memory"),
    *("memory_choice", "unknown_label", "alarm_level"),
)
_NOTHING: Mapping[str, Any] = {}
_PIECE = ("eta", "share", "informative", "discovered", "label")
_FITTED = ("n_features_in_", "expected_known_accuracy_", "expected_novel_accuracy_")


def save(
    model: Any, path: str | os.PathLike[str], also: Mapping[str, Any] = _NOTHING, **how: bool
) -> int:
    """Write a fitted OpenSetClassifier to `path`, with all it needs to go on learning.

    `also` are more facts for the manifest; `how` goes to `write_model`, whose result is returned.
    """
    memory: Memory = model.memory_
    X_plan, X_arrays = pack_rows("X", memory.X)
    y_plan, y_arrays = pack_rows("y", memory.y)
    facts = {
        **also,
        "limen": __version__,
        "classes": model.classes_.tolist(),
        "config": {name: getattr(model, name) for name in _PLAIN}
        | {
            "objective": _objective_facts(model.objective),
            "similarity": _named("similarity", model.similarity),
            "random_state": model.random_state if _is_int(model.random_state) else None,
        },
        "eta": model.continual_eta_.to_dict(),
        "selection": _selection_facts(model.selection_),
        "evidence": [
            [score, [_piece_facts(piece) for piece in pieces]]
            for score, pieces in model.evidence_.items()
        ],
        "taken_for": [[label, list(s.items())] for label, s in model.taken_for_.items()],
        "folds": [[label, _choice_facts(choice)] for label, choice in model.fold_choices_.items()],
        "statistics": model.statistics_.to_dict(),
        "fitted": {name: getattr(model, name) for name in _FITTED if hasattr(model, name)},
        "feature_names": _listed(getattr(model, "feature_names_in_", None)),
        "row_shape": list(model._row_shape),
        "accommodation": model.accommodation_,
        "generator": model._rng.bit_generator.state,
        "memory": {"X": X_plan, "y": y_plan},
    }
    arrays = {
        **X_arrays,
        **y_arrays,
        "training": memory.training,
        "calibration": memory.calibration,
        "strangeness": model.calibration_strangeness_,
        **{
            f"{score}/{place}": np.stack([piece.cuts, piece.known, piece.novel])
            for score, pieces in model.evidence_.items()
            for place, piece in enumerate(pieces)
        },
        **{
            f"{score}/{place}/landed": _landed(piece, model.classes_.tolist())
            for score, pieces in model.evidence_.items()
            for place, piece in enumerate(pieces)
        },
    }
    facts["estimator"], parts = _estimator_parts(model.estimator_)
    return write_model(path, facts, {"memory": pack_arrays(arrays), **parts}, **how)


def restore(path: str | os.PathLike[str], build: Callable[..., Any]) -> Any:
    """The model at `path`; `build` is the OpenSetClassifier class."""
    return assemble(path, *read_model(path), build)


def assemble(
    path: Any, facts: Mapping[str, Any], parts: Mapping[str, bytes], build: Callable[..., Any]
) -> Any:
    """The model from facts and parts that were read already."""
    if "eta" not in facts:
        raise ModelFileError(f"{path} holds an estimator alone: use its own load")
    try:
        return _restored(facts, parts, build)
    except ModelFileError:
        raise
    except Exception as error:  # whatever a hostile file can break
        raise ModelFileError(f"{path}: the model file does not fit together: {error!r}") from error


def _restored(facts: Mapping[str, Any], parts: Mapping[str, bytes], build: Any) -> Any:
    estimator = _estimator_from(facts.get("estimator"), parts)
    arrays = unpack_arrays(parts["memory"])
    config = dict(facts["config"])
    config["objective"] = _objective_from(config["objective"])
    model = build(clone(estimator, safe=False), **config)
    eta = ContinualEta.from_dict(facts["eta"])
    fitted = {name: value for name, value in facts["fitted"].items() if name in _FITTED}
    rng = np.random.default_rng(0)
    rng.bit_generator.state = facts["generator"]
    model.__dict__.update(
        fitted,
        estimator_=estimator,
        classes_=np.asarray(facts["classes"]),
        continual_eta_=eta,
        eta_=float(facts["selection"]["eta"]),
        selection_=_selection(facts["selection"]),
        evidence_=_evidence(facts["evidence"], arrays, np.asarray(facts["classes"])),
        taken_for_={label: dict(shares) for label, shares in facts["taken_for"]},
        fold_choices_={label: _choice(state) for label, state in facts["folds"]},
        statistics_=ClassStatistics.from_dict(facts["statistics"]),
        calibration_strangeness_=arrays["strangeness"],
        accommodation_=facts["accommodation"],
        memory_=Memory(
            unpack_rows("X", facts["memory"]["X"], arrays),
            unpack_rows("y", facts["memory"]["y"], arrays),
            arrays["training"],
            arrays["calibration"],
        ),
        _row_shape=tuple(facts["row_shape"]),
        _rng=rng,
    )
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.asarray(facts["feature_names"], dtype=object)
    return model


def _estimator_parts(estimator: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Facts and parts of the estimator: its own, if it knows how, else by skops."""
    if hasattr(estimator, "to_parts"):
        facts, arrays = estimator.to_parts()
        return facts, {"weights": pack_arrays(arrays)}
    return {"kind": "skops"}, {"estimator": pack_estimator(estimator)}


def _estimator_from(facts: Any, parts: Mapping[str, bytes]) -> Any:
    kind = facts["kind"]
    if kind == "skops":
        return unpack_estimator(parts["estimator"])
    if kind not in _OWN_FORMAT:
        raise ModelFileError(f"the model holds an estimator of unknown kind {kind!r}")
    module, name = _OWN_FORMAT[kind]
    try:
        estimator = getattr(import_module(module), name)
    except ImportError as error:
        raise ModelFileError(
            f"this model needs PyTorch: pip install -c constraints.txt 'limen[{kind}]'"
        ) from error
    return estimator.from_parts(facts, unpack_arrays(parts["weights"]))


def _choice_facts(choice: EtaChoice) -> dict[str, Any]:
    # JSON knows no infinity: an end that does not exist is null.
    ends = [end if math.isfinite(end) else None for end in choice.interval]
    return {**asdict(choice), "interval": ends}


def _choice(state: Mapping[str, Any]) -> EtaChoice:
    low, high = state["interval"]
    interval = (-math.inf if low is None else low, math.inf if high is None else high)
    return EtaChoice(**{**state, "interval": interval})


def _selection_facts(selection: Selection) -> dict[str, Any]:
    table = [[*pair, value] for pair, value in selection.table.items()]
    return {**asdict(replace(selection, table={})), "table": table}


def _selection(state: Mapping[str, Any]) -> Selection:
    table = {(score, rule): float(value) for score, rule, value in state["table"]}
    return Selection(**{**state, "table": table})


def _piece_facts(piece: Evidence) -> dict[str, Any]:
    return {name: getattr(piece, name) for name in (*_PIECE, "known_then")}


def _landed(piece: Evidence, classes: list[Any]) -> np.ndarray[Any, Any]:
    """Strangeness and column of the class, (2, m)."""
    columns = [classes.index(label) for label in piece.won.tolist()]
    return np.stack([piece.strangeness, np.array(columns, dtype=float)])


def _evidence(
    state: Any, arrays: Mapping[str, np.ndarray[Any, Any]], classes: np.ndarray[Any, Any]
) -> dict[str, list[Evidence]]:
    return {
        score: [_piece(f"{score}/{place}", piece, arrays, classes) for place, piece in enumerate(p)]
        for score, p in state
    }


def _piece(
    name: str,
    facts: dict[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    classes: np.ndarray[Any, Any],
) -> Evidence:
    cuts, known, novel = arrays[name]
    plain = {n: facts[n] for n in _PIECE}
    plain["known_then"] = tuple(facts.get("known_then", ()))  # older models did not keep it
    if f"{name}/landed" in arrays:
        strangeness, columns = arrays[f"{name}/landed"]
        plain |= {"strangeness": strangeness, "won": classes[columns.astype(int)]}
    return Evidence(cuts, known, novel, **plain)


def _objective_facts(objective: Any) -> Any:
    if isinstance(objective, Objective):
        return {"name": objective.name, "settings": dict(objective.settings)}
    return _named("objective", objective)


def _objective_from(facts: Any) -> str | Objective:
    if isinstance(facts, str):
        return facts
    return Objective(facts["name"], tuple(facts["settings"].items()))


def _named(parameter: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ModelFileError(
        f"{parameter} is a function, and a model file holds no code: use one of the named ones"
    )


def _listed(names: Any) -> list[Any] | None:
    return None if names is None else list(names)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
