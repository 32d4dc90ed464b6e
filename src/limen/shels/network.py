"""The SHELS network, top to bottom: features that classes do not share, and class rows that grow.

Gummadi et al., "SHELS: Exclusive Feature Sets for Novelty Detection and Continual Learning Without
Class Boundaries", CoLLAs 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Activations: TypeAlias = list[Tensor]


@dataclass(frozen=True)
class NetworkConfig:
    """What the network looks like.

    Parameters
    ----------
    input_shape : tuple of int
        ``(channels, height, width)`` of an image, or ``(features,)`` of a plain vector.
    blocks : tuple of tuple of int
        Output channels of the 3x3 convolutions between two poolings; empty for plain vectors.
    hidden : tuple of int
        Widths of the linear layers before the class rows; the last one is the feature size.
    dropout : float
        Share of activations dropped in training after each of the first two poolings.
    norm : bool
        Batch normalisation after every convolution. Not in the paper.
    turns : int
        Quarter turns of a picture that training tells apart, 1 or 4: with 4 every class has a row
        for each. Scores know the upright rows only. Not in the paper.

    Examples
    --------
    >>> NetworkConfig.for_shape(3, 64, 64).blocks
    ((32, 32), (64, 64), (128, 128), (128, 128))
    """

    input_shape: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...] = ((32, 32), (64, 64), (128, 128))
    hidden: tuple[int, ...] = (256,)
    dropout: float = 0.0
    norm: bool = False
    turns: int = 1

    def __post_init__(self) -> None:
        sizes = [*self.input_shape, *self.hidden, *(out for block in self.blocks for out in block)]
        if not self.hidden or any(size < 1 for size in sizes):
            raise ValueError(f"{self}: every size must be at least 1, and hidden not empty")
        if len(self.input_shape) != (3 if self.blocks else 1):
            raise ValueError(
                "input_shape must be (channels, height, width) with blocks and (features,) "
                f"without, got {self.input_shape}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")
        if self.turns not in (1, 4):
            raise ValueError(f"turns must be 1 or 4, got {self.turns!r}")
        if self.turns == 4 and (not self.blocks or len(set(self.input_shape[1:])) > 1):
            raise ValueError(f"turns=4 needs square images, got input_shape {self.input_shape}")

    @classmethod
    def for_shape(cls, channels: int, height: int, width: int) -> Self:
        """For images of one's own: as many blocks as leave a map of at least 3x3 at the end."""
        depth = min(max(int(math.log2(min(height, width) / 3)), 1), 6)
        widths = [32, 64] + [128] * 4
        return cls((channels, height, width), tuple((w, w) for w in widths[:depth]))

    @classmethod
    def mlp(cls, features: int, hidden: tuple[int, ...] = (256, 128)) -> Self:
        """For plain feature vectors."""
        return cls((features,), (), hidden)


PRESETS: Mapping[str, NetworkConfig] = {
    "mnist": NetworkConfig((1, 28, 28)),
    "fashion-mnist": NetworkConfig((1, 28, 28)),
    "cifar10": NetworkConfig((3, 32, 32), hidden=(512,), dropout=0.25),
    "digits": NetworkConfig((1, 8, 8), blocks=((32, 32), (64, 64)), hidden=(128,)),
}


class SHELSNetwork(nn.Module):
    """Convolutions, linear layers, and one row of weights per class.

    ``forward`` gives the features f, the last hidden activations, and the cosines of f with every
    class row; the cosines are the logits in training. The similarity of the paper is the plain dot
    product of f with the rows.

    Without a `generator` the weights have shapes but no values, for `load_state_dict(assign=True)`.
    """

    def __init__(
        self, config: NetworkConfig, n_classes: int, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.config = config
        self.convolutions = nn.ModuleList()
        width = config.input_shape[0]
        for block in config.blocks:
            for out in block:
                self.convolutions.append(
                    nn.Conv2d(width, out, 3, padding=1, device="meta", dtype=torch.float32)
                )
                width = out
        widths = [out for block in config.blocks for out in block]
        self.norms = nn.ModuleList(_Norm(out) for out in widths if config.norm)
        size = [s >> len(config.blocks) for s in config.input_shape[1:]]
        if config.blocks and 0 in size:
            raise ValueError(
                f"images of {config.input_shape[1]}x{config.input_shape[2]} are too small for "
                f"{len(config.blocks)} poolings: give fewer blocks"
            )
        self.map_size = math.prod(size)  # activations of one channel that enter the linear layers
        width *= self.map_size
        self.linears = nn.ModuleList()
        for out in config.hidden:
            self.linears.append(nn.Linear(width, out, device="meta", dtype=torch.float32))
            width = out
        self.rows = nn.Parameter(torch.empty(n_classes, width, device="meta", dtype=torch.float32))
        turned = torch.empty(n_classes, config.turns - 1, width, device="meta", dtype=torch.float32)
        self.turned = nn.Parameter(turned) if config.turns > 1 else None
        if generator is not None:
            self._draw(generator)

    def _draw(self, generator: torch.Generator) -> None:
        # Made without values first: torch would draw them from the global random state.
        self.to_empty(device="cpu")
        for weight in self.weights():
            nn.init.xavier_uniform_(weight, generator=generator)
        for bias in self.biases():
            nn.init.zeros_(bias)
        for norm in self.norms:
            assert isinstance(norm, _Norm)
            norm.reset()
        if self.turned is not None:
            nn.init.xavier_uniform_(self.turned.flatten(0, 1), generator=generator)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Features (n, d) and cosines (n, C * turns) of x (n, C, H, W) or (n, F).

        Dropout and batch statistics act only where a `generator` is given, as in training.
        """
        f = self.activations(x, generator)[-1]
        return f, self.cosines(f)

    def activations(self, x: Tensor, generator: torch.Generator | None = None) -> Activations:
        """What each hidden layer puts out: (n, channels, H, W) of a convolution, (n, d) above."""
        outputs: Activations = []
        layers, norms = iter(self.convolutions), iter(self.norms)
        for number, block in enumerate(self.config.blocks):
            for _ in block:
                x = next(layers)(x)
                if self.config.norm:
                    x = next(norms)(x, training=generator is not None)
                x = functional.relu(x, inplace=True)
                outputs.append(x)
            x = functional.max_pool2d(x, 2)
            if generator is not None and self.config.dropout and number < 2:
                x = _dropout(x, self.config.dropout, generator)
        x = x.flatten(1)
        for layer in self.linears:
            x = functional.relu(layer(x))
            outputs.append(x)
        return outputs

    def maps(self, activations: Activations) -> Tensor:
        """What the last hidden layer is computed from, (n, D): pooled maps, or the layer below."""
        convolutions = len(self.convolutions)
        if convolutions and len(self.linears) == 1:
            return functional.max_pool2d(activations[convolutions - 1], 2).flatten(1)
        return activations[max(len(activations) - 2, 0)].flatten(1)

    def cosines(self, features: Tensor) -> Tensor:
        """With every row: class by class, and of each class the upright one first."""
        rows: Tensor = self.rows
        if self.turned is not None:
            rows = torch.cat([rows[:, None], self.turned], dim=1).flatten(0, 1)
        return functional.linear(functional.normalize(features), functional.normalize(rows))

    def weights(self) -> list[Tensor]:
        """Weights of every layer, first to last; the class rows are the last."""
        return [layer.weight for layer in (*self.convolutions, *self.linears)] + [self.rows]

    def biases(self) -> list[Tensor]:
        """Biases of every hidden layer, first to last."""
        return [layer.bias for layer in (*self.convolutions, *self.linears)]

    @torch.no_grad()
    def add_row(self, generator: torch.Generator) -> None:
        """One more class, its row drawn as at the start."""
        drawn = torch.empty(1, self.config.turns, self.rows.shape[1], dtype=torch.float32)
        # Xavier's bound depends on the number of rows the layer has once the class is in.
        bound = math.sqrt(6 / (self.rows.shape[0] + 1 + self.rows.shape[1]))
        nn.init.uniform_(drawn, -bound, bound, generator=generator)
        drawn = drawn.to(self.rows.device)
        self.rows = nn.Parameter(torch.cat([self.rows, drawn[:, 0]]))
        if self.turned is not None:
            self.turned = nn.Parameter(torch.cat([self.turned, drawn[:, 1:]]))

    @torch.no_grad()
    def drop_row(self, column: int) -> None:
        """One class less."""
        kept = [c for c in range(len(self.rows)) if c != column]
        self.rows = nn.Parameter(self.rows[kept])
        if self.turned is not None:
            self.turned = nn.Parameter(self.turned[kept])


class _Norm(nn.Module):
    """Batch normalisation that is told whether it is training."""

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device="meta", dtype=torch.float32))
        self.bias = nn.Parameter(torch.empty(width, device="meta", dtype=torch.float32))
        for name in ("mean", "variance"):
            self.register_buffer(name, torch.empty(width, device="meta", dtype=torch.float32))

    @torch.no_grad()
    def reset(self) -> None:
        for values, value in ((self.weight, 1), (self.bias, 0), (self.mean, 0), (self.variance, 1)):
            values.fill_(value)

    def forward(self, x: Tensor, training: bool) -> Tensor:
        return functional.batch_norm(
            x, self.mean, self.variance, self.weight, self.bias, training, momentum=0.1
        )


def _dropout(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    # torch's own dropout reads the global random state.
    kept = torch.empty_like(x, device=generator.device).bernoulli_(1 - share, generator=generator)
    return x * kept.to(x.device) / (1 - share)
