"""Names and numbers of SHELS that can be had without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACCOMMODATION_NAMES = ("soft-freeze", "replay", "prototype")
AUGMENTATION_NAMES = ("shift", "flip", "shift-flip")
SCHEDULES = ("constant", "one-cycle")

# What the paper trains with, data set by data set.
TRAINING: Mapping[str, Mapping[str, Any]] = {
    "mnist": {"epochs": 10, "lr": 1e-4},
    "fashion-mnist": {"epochs": 20, "lr": 1e-4},
    "cifar10": {"epochs": 35, "lr": 1e-4},
    "digits": {"epochs": 40, "lr": 1e-3},
}
EPOCHS_FOR_A_NEW_CLASS = {"soft-freeze": 8, "replay": 2, "prototype": 0}


def rate_for_a_new_class(accommodation: str, dataset: str | None) -> float:
    """As a share of lr: soft freezing takes a half, but a tenth on MNIST (docs/shels.md)."""
    if accommodation != "soft-freeze":
        return 1.0
    return 0.1 if dataset == "mnist" else 0.5
