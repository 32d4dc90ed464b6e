"""The terms SHELS minimises, and what it does to the weights, as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from limen.shels.network import Activations


def cosine_cross_entropy(cosines: Tensor, target: Tensor, scale: float = 1.0) -> Tensor:
    """Cross-entropy with the cosines as logits: no bias and, in the paper, no scale."""
    return functional.cross_entropy(scale * cosines, target)


def depth_weights(layers: int) -> list[float]:
    r"""How strongly each layer is kept sparse: :math:`1 - m_l`, strong below, weak above.

    With eight layers m is 0, 0, 1/7, 2/7, ... 6/7.

    >>> [round(w, 3) for w in depth_weights(8)]
    [1.0, 1.0, 0.857, 0.714, 0.571, 0.429, 0.286, 0.143]
    """
    return [1 - max(layer - 1, 0) / (layers - 1) for layer in range(layers)]


def group_sparsity(weights: Sequence[Tensor]) -> Tensor:
    r"""Group sparsity over input channels, weighted by depth.

    .. math:: \sum_l (1 - m_l) \sum_i \lVert W^l_{[:, i]} \rVert_2

    Parameters
    ----------
    weights : sequence of tensors (out, in, ...)
        One of each layer, first to last.
    """
    terms = [
        factor * torch.linalg.vector_norm(weight, dim=(0, *range(2, weight.dim()))).sum()
        for factor, weight in zip(depth_weights(len(weights)), weights, strict=True)
    ]
    return torch.stack(terms).sum()


def soft_freeze(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    old_weights: Sequence[Tensor],
    old_biases: Sequence[Tensor],
    activities: Sequence[Tensor],
) -> Tensor:
    r"""How far the nodes that matter have moved.

    .. math:: \sum_l \sum_j a^l_j \left( \lVert W^l_j - W^{l,old}_j \rVert_2 + |b^l_j - b^{l,old}_j|
       \right)

    Parameters
    ----------
    weights, old_weights : sequence of tensors (nodes, ...)
        Now and before; the last is the class rows, which have no bias.
    biases, old_biases : sequence of tensors (nodes,)
    activities : sequence of tensors (nodes,)
        How active each node is on what was learnt; for class rows 1 if old, 0 if new.
    """
    terms = []
    for weight, old, activity in zip(weights, old_weights, activities, strict=True):
        terms.append(activity @ torch.linalg.vector_norm((weight - old).flatten(1), dim=1))
    for bias, old, activity in zip(biases, old_biases, activities, strict=False):
        terms.append(activity @ (bias - old).abs())
    return torch.stack(terms).sum()


def node_activity(mean_activations: Activations) -> list[Tensor]:
    """How active each node is: its mean activation; of a channel, the L2 norm of its mean map.

    Parameters
    ----------
    mean_activations : list of tensors (channels, H, W) or (nodes,)
        Means over the data, one of each hidden layer.
    """
    return [
        torch.linalg.vector_norm(mean.flatten(1), dim=1) if mean.dim() > 1 else mean.abs()
        for mean in mean_activations
    ]


@torch.no_grad()
def sever(weights: Sequence[Tensor], activities: Sequence[Tensor], map_size: int) -> None:
    """Zero, in place, every weight that leads from an inactive node into an active one above it.

    So a node that was of no use until now can take up the new class without touching the old.

    Parameters
    ----------
    weights : sequence of tensors (out, in, ...)
    activities : sequence of tensors (out,)
        One of each layer; the last is that of the class rows.
    map_size : int
        How many inputs of the first linear layer come from each channel below.
    """
    for layer in range(1, len(weights)):
        below, weight = activities[layer - 1] == 0, weights[layer]
        if weight.shape[1] != below.numel():
            below = below.repeat_interleave(map_size)
        weight[torch.outer(activities[layer] > 0, below)] = 0


def distillation(cosines: Tensor, old: Tensor, scale: float = 1.0) -> Tensor:
    """How far the network's answers for the old classes are from those it used to give.

    The Kullback-Leibler divergence of the softmax over the old classes alone, mean over the batch.
    Li, Hoiem, "Learning without Forgetting", 2016.

    Parameters
    ----------
    cosines : tensor (n, C)
        Of the network that learns; its first columns are the old classes.
    old : tensor (n, C_old)
        Of the network as it was.
    scale : float
        What the cosines are multiplied with.
    """
    now = functional.log_softmax(scale * cosines[:, : old.shape[1]], dim=1)
    then = functional.log_softmax(scale * old, dim=1)
    return functional.kl_div(now, then, reduction="batchmean", log_target=True)
