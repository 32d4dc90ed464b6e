"""The version of the model that answers now, and how another takes its place."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen import storage
from limen.app.models import Model, Verdict, judge, open_model
from limen.exemplars import unit_features
from limen.web.blobs import Blobs
from limen.web.uploads import png

_EXAMPLES = 5  # pictures of each class that are shown
_FEATURES = 64  # numbers that tell how alike two inputs are


@dataclass(frozen=True)
class Served:
    """A version of the model, ready to answer."""

    model: Model
    version: int
    facts: dict[str, Any]

    @property
    def eta(self) -> float:
        return float(self.model.classifier.eta_)

    @property
    def classes(self) -> list[str]:
        labels: list[str] = self.model.classifier.classes_.tolist()
        return labels

    def judge(self, arrays: NDArray[Any]) -> list[Verdict]:
        """Verdicts on inputs as they were received."""
        rows = self.model.inputs.rows(arrays)
        return judge(self.model, [""] * len(rows), rows)

    def features(self, rows: Any) -> NDArray[Any]:
        """Few numbers for each row, by which alike rows are near."""
        features = unit_features(self.model.classifier.estimator_, rows)
        if features.shape[1] <= _FEATURES:
            return features
        # A random projection keeps distances, nearly (Johnson and Lindenstrauss, 1984).
        rng = np.random.default_rng(features.shape[1])
        onto = rng.normal(size=(features.shape[1], _FEATURES)) / np.sqrt(_FEATURES)
        few: NDArray[Any] = features @ onto
        return few

    @cached_property
    def alike(self) -> float:
        """Inputs nearer than this may be of one class: what lies within the known ones."""
        memory = self.model.classifier.memory_
        rows, labels = memory.X, memory.y
        some = np.random.default_rng(0).permutation(len(labels))[:400]
        features, labels = self.features(rows[some]), labels[some]
        apart = np.linalg.norm(features[:, None] - features[None], axis=2)
        same = (labels[:, None] == labels[None]) & ~np.eye(len(labels), dtype=bool)
        other = labels[:, None] != labels[None]
        if not same.any() or not other.any():
            return float(np.median(apart))
        return float((apart[same].mean() + apart[other].mean()) / 2)


class Serving:
    """Holds the version in use. Readers take `current` once and are never disturbed by a switch."""

    def __init__(self, path: Path, blobs: Blobs) -> None:
        self.path, self._blobs = path, blobs
        self._switching = threading.Lock()
        self.current = self._load()
        self.examples = self._examples(self.current)

    def refresh(self) -> bool:
        """Load the version that the file says is in use; True if it was another one."""
        if storage.read_manifest(self.path)["version"] == self.current.version:
            return False
        with self._switching:
            fresh = self._load()
            if fresh.version == self.current.version:
                return False
            self.examples, self.current = self._examples(fresh), fresh
            return True

    def activate(self, version: int) -> None:
        """Use another version from now on, also after a restart."""
        with storage.locked(self.path):
            storage.activate(self.path, version)
        self.refresh()

    def _load(self) -> Served:
        version = storage.read_manifest(self.path)["version"]
        model = open_model(self.path, version)
        return Served(model, version, storage.read_manifest(self.path, version))

    def _examples(self, served: Served) -> dict[str, list[str]]:
        """Class -> digests of some of its pictures."""
        inputs, memory = served.model.inputs, served.model.classifier.memory_
        if inputs.kind != "images":
            return {label: [] for label in served.classes}
        found = {}
        for label in served.classes:
            rows = memory.X[np.flatnonzero(memory.y == label)[:_EXAMPLES]]
            found[label] = [self._blobs.put(png(picture)) for picture in inputs.pictures(rows)]
        return found
