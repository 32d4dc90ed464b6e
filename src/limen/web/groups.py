"""Novel inputs that look alike, together, so that they can be named in one go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.cluster import AgglomerativeClustering

from limen.web.database import Item


def grouped(items: Sequence[Item], alike: float) -> list[list[Item]]:
    """Groups of items whose features lie within `alike` on average, the largest first.

    Items without features, or judged by another version than most, stay alone at the end.
    """
    versions = [item.version for item in items if item.feature]
    usual = max(set(versions), key=versions.count) if versions else 0
    placed = [item for item in items if item.feature and item.version == usual]
    rest = [item for item in items if item not in placed]
    groups: dict[int, list[Item]] = {}
    if len(placed) > 1:
        features = np.stack([np.frombuffer(i.feature or b"", np.float16) for i in placed])
        model = AgglomerativeClustering(None, linkage="average", distance_threshold=alike)
        labels = model.fit_predict(features.astype(np.float32))
        for item, label in zip(placed, labels.tolist(), strict=True):
            groups.setdefault(label, []).append(item)
    elif placed:
        groups[0] = placed
    found = sorted(groups.values(), key=lambda group: (-len(group), -group[0].id))
    return found + [[item] for item in rest]
