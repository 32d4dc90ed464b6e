"""Training images seen from elsewhere: shifts, mirror images, turns, anew for every batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Augmentation: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]


def shift(x: Tensor, generator: torch.Generator) -> Tensor:
    """All images (n, C, H, W) of a batch moved by up to an eighth of their size; zeros move in."""
    height, width = x.shape[2:]
    down, right = height // 8, width // 8
    y0 = int(torch.randint(0, 2 * down + 1, (), generator=generator))
    x0 = int(torch.randint(0, 2 * right + 1, (), generator=generator))
    padded = functional.pad(x, (right, right, down, down))
    moved = padded[:, :, y0 : y0 + height, x0 : x0 + width]
    return moved.contiguous(memory_format=torch.channels_last)


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """About half of the images (n, C, H, W) mirrored left to right."""
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(mirrored.to(x.device)[:, None, None, None], x.flip(3), x)


def shift_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Both."""
    return shift(flip(x, generator), generator)


def turn(x: Tensor, columns: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each image (n, C, S, S) turned by 0 to 3 quarters, and the column of class and turn, (n,).

    A network that must tell the turns of a class apart looks at shapes it could do without to tell
    the classes: what it needs when a new one comes. Lee et al., "Self-supervised Label Augmentation
    via Input Transformations", 2020; Zhu et al., "Prototype Augmentation and Self-Supervision for
    Incremental Learning", 2021.
    """
    quarters = torch.randint(0, 4, (len(x),), generator=generator).to(x.device)
    turned = x.clone()
    for count in (1, 2, 3):
        mine = quarters == count
        turned[mine] = torch.rot90(x[mine], count, (2, 3))
    return turned, 4 * columns + quarters


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "shift": shift,
    "flip": flip,
    "shift-flip": shift_flip,
}
