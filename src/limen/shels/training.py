"""The training loop, and one look at all data with a trained network."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from limen.shels.augmentation import AUGMENTATIONS, turn
from limen.shels.inputs import InputFormat
from limen.shels.losses import cosine_cross_entropy, node_activity
from limen.shels.network import SHELSNetwork
from limen.shels.scores import Embedding, Floats

Event: TypeAlias = dict[str, Any]
Report: TypeAlias = Callable[[Event], None]
Penalty: TypeAlias = Callable[[], Tensor]
Compare: TypeAlias = Callable[[Tensor, Tensor], Tensor]

_INFERENCE_BATCH = 64  # small enough for its activations to stay in the cache


class TrainingDivergedError(RuntimeError):
    """The loss is no longer a number; the message says when and what to try."""


@dataclass(frozen=True)
class Data:
    """Inputs and class columns, and how inputs become batches."""

    inputs: Tensor
    columns: Tensor
    format: InputFormat

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.format.batch(self.inputs[index]), self.columns[index]


@torch.inference_mode(False)
@torch.enable_grad()
def train(
    network: SHELSNetwork,
    data: Data,
    *,
    penalty: Penalty,
    epochs: int,
    lr: float,
    batch_size: int,
    generator: torch.Generator,
    report: Report,
    phase: str,
    draw: Callable[[], Tensor] | None = None,
    compare: Compare | None = None,
    scale: float = 1.0,
    augment: str | None = None,
    schedule: str = "constant",
) -> list[Event]:
    """Minimise cosine cross-entropy plus `penalty` with Adam; a record of each epoch.

    `draw` gives the rows of an epoch in order; by default all of them, shuffled. `compare` gives
    another loss, from the inputs of a batch and their cosines. `scale` multiplies the cosines;
    `augment` names what is done to every batch. With `schedule` "one-cycle" the learning rate rises
    to lr in the first fifth and falls to nearly nothing (Smith, Topin, 2019).
    """
    device = network.rows.device
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, fused=True)
    history: list[Event] = []
    cycle = None
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        rows = draw() if draw else torch.randperm(len(data), generator=generator)
        if cycle is None and schedule == "one-cycle":
            steps = epochs * -(-len(rows) // batch_size)
            cycle = _one_cycle(optimiser, steps)
        loss_sum, right = torch.zeros((), device=device), torch.zeros((), device=device)
        for step, index in enumerate(rows.split(batch_size)):
            x, target = (part.to(device) for part in data.batch(index))
            if augment is not None:
                x = AUGMENTATIONS[augment](x, generator)
            if network.config.turns > 1:
                x, target = turn(x, target, generator)
            _, cosines = network(x, generator)
            loss = cosine_cross_entropy(cosines, target, scale) + penalty()
            if compare is not None:
                loss = loss + compare(x, cosines)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if cycle is not None:
                cycle.step()
            loss_sum += loss.detach() * len(index)
            right += (cosines.detach().argmax(dim=1) == target).sum()
            report(
                {"phase": phase, "epoch": epoch, "epochs": epochs, "done": step + 1}
                | {"steps": -(-len(rows) // batch_size)}
            )
        record: Event = {
            "phase": phase,
            "epoch": epoch,
            "loss": float(loss_sum) / len(rows),
            "accuracy": float(right) / len(rows),
            "seconds": time.perf_counter() - start,
        }
        if not np.isfinite(record["loss"]):
            raise TrainingDivergedError(
                f"the loss is {record['loss']} in epoch {epoch} of {epochs} ({phase}): try a lower "
                f"lr (now {lr:g}), a lower alpha or beta, or look for extreme values in X"
            )
        history.append(record)
        report({**record, "epochs": epochs, "network": network})
    if not all(bool(torch.isfinite(weight).all()) for weight in network.parameters()):
        raise TrainingDivergedError(f"weights are no longer numbers after {phase}: try a lower lr")
    return history


def _one_cycle(optimiser: torch.optim.Optimizer, steps: int) -> Any:
    rise = max(round(0.2 * steps), 1)

    def share(step: int) -> float:
        if step < rise:
            return 0.04 + 0.96 * step / rise
        return max(0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1))), 1e-4)

    return torch.optim.lr_scheduler.LambdaLR(optimiser, share)


@torch.inference_mode()
def features_of(network: SHELSNetwork, inputs: Tensor, format: InputFormat) -> Floats:
    """Features (n, d) of every input, in batches."""
    parts = [layers[-1].cpu().numpy() for layers in _looks(network, inputs, format)]
    return np.concatenate(parts) if parts else np.empty((0, network.rows.shape[1]), np.float32)


@torch.inference_mode()
def embedding_of(network: SHELSNetwork, inputs: Tensor, format: InputFormat) -> Embedding:
    """Features and maps of every input, in batches."""
    features, maps = [], []
    for layers in _looks(network, inputs, format):
        features.append(layers[-1].cpu().numpy())
        maps.append(network.maps(layers).cpu().numpy())
    return Embedding(np.concatenate(features), np.concatenate(maps))


def _looks(network: SHELSNetwork, inputs: Tensor, format: InputFormat) -> Iterator[list[Tensor]]:
    """Activations of every layer, batch by batch."""
    for start in range(0, len(inputs), _INFERENCE_BATCH):
        x = format.batch(inputs[start : start + _INFERENCE_BATCH])
        yield network.activations(x.to(network.rows.device))


@torch.inference_mode()
def observe(
    network: SHELSNetwork, data: Data, with_maps: bool = False
) -> tuple[Embedding, list[Tensor]]:
    """In one pass, the embedding and how active each hidden node is; no maps unless asked for."""
    features, maps, sums = [], [], [torch.zeros(())] * len(network.biases())
    for layers in _looks(network, data.inputs, data.format):
        features.append(layers[-1].cpu().numpy())
        if with_maps:
            maps.append(network.maps(layers).cpu().numpy())
        sums = [total + layer.sum(dim=0) for total, layer in zip(sums, layers, strict=True)]
    seen = np.concatenate(features)
    looked = Embedding(seen, np.concatenate(maps) if with_maps else seen[:, :0])
    return looked, node_activity([total / len(data) for total in sums])


@contextlib.contextmanager
def thread_count(threads: int | None) -> Iterator[None]:
    """Train with that many threads, and leave torch's setting as it was."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
