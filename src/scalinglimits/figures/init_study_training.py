"""Train many networks of one shape at once: each member has its own weights and learning rate.

The weights of layer l are one tensor of shape (members, outputs, inputs), so a step of all members
is one batched product a layer. Members never mix: the sum of their losses has the gradient of
each, and what diverges is dropped with the next thinning. Members that have reached the target
are dropped too, which saves about half of the work.
"""

from __future__ import annotations

__all__ = ["BatchSource", "EnsembleRun", "ensemble_logits", "train_ensemble"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

BatchSource = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""From the step to inputs (streams, batch, features) and classes (streams, batch)."""

_MOMENTUM = 0.9
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_NORM_EPSILON = 1e-5
_THINNING = 5
_DIVERGED = 100.0


@dataclass(frozen=True, eq=False)
class EnsembleRun:
    """What came of each member.

    Attributes:
        steps: the step at which the mean of the last losses first met the target, NaN if never.
        diverged: whether the loss became infinite, or a hundred times what it was at the start.
        losses: loss before each step, shape (steps, members), NaN once a member is dropped.
    """

    steps: np.ndarray
    diverged: np.ndarray
    losses: np.ndarray


def ensemble_logits(
    kind: str, norm: str, weights: Sequence[torch.Tensor], x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the logits of all members, with their first and last hidden states.

    Args:
        kind: "chain", "ffn" or "residual".
        norm: "none", "layer" or "rms".
        weights: from input to readout, each (members, outputs, inputs).
        x: inputs, (members, batch, features).

    Returns:
        Logits (members, batch, classes), and two hidden states (members, batch, start width).
    """
    first, hidden, last = weights[0], weights[1:-1], weights[-1]
    h = start = _apply(first, x)
    if kind == "chain":
        h = start = F.relu(_normalize(h, norm))
        for weight in hidden:
            h = F.relu(_normalize(_apply(weight, h), norm))
        return _apply(last, h), start, h
    for up, down in zip(hidden[::2], hidden[1::2], strict=True):
        branch = _apply(down, F.relu(_apply(up, _normalize(h, norm))))
        h = h + branch if kind == "residual" else branch
    return _apply(last, _normalize(h, norm)), start, h


def train_ensemble(
    kind: str,
    norm: str,
    weights: Sequence[torch.Tensor],
    streams: Sequence[int],
    learning_rates: Sequence[float],
    batches: BatchSource,
    *,
    optimizer: str,
    steps: int,
    target: float,
    window: int,
) -> EnsembleRun:
    """Train each member with its own learning rate until it meets the target, or diverges.

    Args:
        kind: "chain", "ffn" or "residual".
        norm: "none", "layer" or "rms".
        weights: initial weights, which are left alone; each (members, outputs, inputs).
        streams: for each member, which stream of batches it sees.
        learning_rates: for each member.
        batches: the data.
        optimizer: "sgd", with momentum 0.9, or "adam"; as in :mod:`torch.optim`.
        steps: how many at most.
        target: of the loss.
        window: how many losses are averaged before they are held against the target.

    Returns:
        The outcome of each member.
    """
    update = {"sgd": _sgd, "adam": _adam}[optimizer]
    params = [weight.clone().requires_grad_() for weight in weights]
    slots = [[torch.zeros_like(p) for p in params] for _ in range(1 if optimizer == "sgd" else 2)]
    rates = torch.tensor(learning_rates, dtype=params[0].dtype).view(-1, 1, 1)
    stream = torch.tensor(streams)
    alive = torch.arange(len(rates))
    reached = np.full(len(rates), math.nan)
    diverged = np.zeros(len(rates), dtype=bool)
    losses = np.full((steps, len(rates)), math.nan)
    limit = np.full(len(rates), math.inf)
    for step in range(steps):
        x, y = batches(step)
        logits, _, _ = ensemble_logits(kind, norm, params, x[stream])
        loss = F.cross_entropy(logits.flatten(0, 1), y[stream].flatten(), reduction="none")
        loss = loss.view(len(alive), -1).mean(dim=1)
        index = alive.numpy()
        losses[step, index] = loss.detach().numpy()
        if step == 0:
            limit = _DIVERGED * np.maximum(losses[0], math.log(logits.shape[-1]))
        diverged[index] |= ~(losses[step, index] < limit[index])
        if step + 1 >= window:
            mean = losses[step + 1 - window : step + 1, index].mean(axis=0)
            new = (mean <= target) & np.isnan(reached[index]) & ~diverged[index]
            reached[index[new]] = step + 1
        gradients = torch.autograd.grad(loss.sum(), params)
        with torch.no_grad():
            update(params, gradients, slots, rates, step)
        if (step + 1) % _THINNING == 0:
            keep = torch.from_numpy(np.isnan(reached[index]) & ~diverged[index])
            if not keep.any():
                break
            if not keep.all():
                params = [p.detach()[keep].requires_grad_() for p in params]
                slots = [[slot[keep] for slot in group] for group in slots]
                rates, stream, alive = rates[keep], stream[keep], alive[keep]
    return EnsembleRun(reached, diverged, losses)


def _apply(weight: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return torch.bmm(h, weight.transpose(1, 2))


def _normalize(h: torch.Tensor, norm: str) -> torch.Tensor:
    if norm == "none":
        return h
    if norm == "layer":
        return F.layer_norm(h, h.shape[-1:], eps=_NORM_EPSILON)
    return F.rms_norm(h, h.shape[-1:], eps=_NORM_EPSILON)


def _sgd(
    params: list[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    slots: list[list[torch.Tensor]],
    rates: torch.Tensor,
    step: int,
) -> None:
    for p, gradient, velocity in zip(params, gradients, slots[0], strict=True):
        velocity.mul_(_MOMENTUM).add_(gradient)
        p.sub_(rates * velocity)


def _adam(
    params: list[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    slots: list[list[torch.Tensor]],
    rates: torch.Tensor,
    step: int,
) -> None:
    corrections = [1.0 - beta ** (step + 1) for beta in _BETAS]
    sizes = rates / corrections[0]
    for p, gradient, first, second in zip(params, gradients, slots[0], slots[1], strict=True):
        first.lerp_(gradient, 1.0 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1.0 - _BETAS[1])
        root = second.sqrt().div_(math.sqrt(corrections[1])).add_(_EPSILON)
        p.sub_(root.reciprocal_().mul_(first).mul_(sizes))
