"""A picture of one verdict: the input, what each class demands, and what it was compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from limen.app.models import Model, Verdict, judge
from limen.datasets import DatasetError
from limen.exemplars import unit_features
from limen.storage import ModelFileError

_NEIGHBOURS = 5
_KNOWN, _UNKNOWN, _CUT = "#1565b0", "#b3402a", "#22262b"


def draw(model: Model, path: Path, out: Path) -> Verdict:
    """Draw why the input at `path` is known or unknown; returns the verdict."""
    from matplotlib.figure import Figure

    batch = next(model.inputs.stream(path, size=2))
    for name, why in batch.skipped:
        raise DatasetError(f"{name} cannot be read: {why}")
    if len(batch.rows) != 1:
        raise DatasetError(f"{path} holds more than one input: explain one at a time")
    [verdict] = judge(model, batch.names, batch.rows)
    images = model.inputs.kind == "images"
    figure = Figure(figsize=(9, 4.6 if images else 3.4), layout="constrained")
    grid = figure.add_gridspec(
        2 if images else 1, _NEIGHBOURS + 2, height_ratios=[3, 1][: 1 + images]
    )
    scores = figure.add_subplot(grid[0, 2:] if images else grid[0, :])
    _draw_scores(scores, model, batch.rows)
    if images:
        _show(figure.add_subplot(grid[0, :2]), model.inputs.pictures(batch.rows)[0], path.name)
        for place, (picture, label) in enumerate(_nearest(model, batch.rows)):
            _show(figure.add_subplot(grid[1, 2 + place]), picture, label)
        note = figure.add_subplot(grid[1, :2])
        note.text(1, 0.5, "nearest of what is kept", ha="right", va="center", color="#5a626d")
        note.axis("off")
    called = verdict.label if verdict.margin > 0 else f"unknown (nearest: {verdict.nearest})"
    figure.suptitle(
        f"{called}: strangeness {verdict.strangeness:.2f}, cut at {model.classifier.eta_:.2f}",
        fontweight="bold",
    )
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot draw {out}: {error}") from error
    return verdict


def _draw_scores(ax: Any, model: Model, rows: Any) -> None:
    """Similarity to each class in units of what is usual for it: 0 is usual, the cut is at -eta."""
    classifier = model.classifier
    similarity = classifier.class_similarity(rows)[0]
    statistics, winner = classifier.statistics_, int(similarity.argmax())
    below = (similarity - statistics.mean) / statistics.std
    labels = classifier.classes_.tolist()
    passed = below[winner] > -classifier.eta_
    colours = ["#b9c0c9"] * len(labels)
    colours[winner] = _KNOWN if passed else _UNKNOWN
    places = np.arange(len(labels))
    ax.barh(places, np.where(np.isfinite(below), below, 0.0), color=colours)
    ax.axvline(-classifier.eta_, color=_CUT, ls="--", lw=1.4)
    ax.text(-classifier.eta_, len(labels) - 0.4, " cut", va="bottom", fontsize="small", color=_CUT)
    ax.set_yticks(
        places, [f"{label} (wins)" if i == winner else label for i, label in enumerate(labels)]
    )
    ax.set_xlabel("similarity, in deviations from what is usual for the class")
    ax.margins(x=0.04)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)


def _nearest(model: Model, row: Any) -> list[tuple[Any, str]]:
    """The examples kept that look most alike, with their classes."""
    X, y = model.classifier.memory_.X, model.classifier.memory_.y
    estimator = model.classifier.estimator_
    alike = unit_features(estimator, X) @ unit_features(estimator, row)[0]
    order = np.argsort(-alike, kind="stable")[:_NEIGHBOURS]
    return list(zip(model.inputs.pictures(X[order]), y[order].tolist(), strict=True))


def _show(ax: Any, picture: Any, title: str) -> None:
    ax.imshow(picture, cmap="gray" if picture.ndim == 2 else None, vmin=0, vmax=255)
    ax.set_title(title[:24], fontsize="small")
    ax.axis("off")
