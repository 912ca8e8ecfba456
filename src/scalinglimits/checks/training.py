"""A short training run that ends in one number."""

from __future__ import annotations

__all__ = ["SCHEDULES", "Recipe", "final_loss"]

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scalinglimits.checks._inputs import positive
from scalinglimits.checks.setups import OptimizerLike, Setup, make_optimizer
from scalinglimits.checks.tensors import move, seeded
from scalinglimits.scaling.sizes import Size

SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda part: 1.0,
    "linear": lambda part: 1.0 - part,
    "cosine": lambda part: 0.5 * (1.0 + math.cos(math.pi * part)),
}
"""Name to the factor on the learning rate, after the warm-up; `part` goes from 0 to 1."""

_DIVERGED = 1e3


@dataclass(frozen=True)
class Recipe:
    """How long and with which rates to train.

    Args:
        steps: number of updates.
        warmup: number of first steps over which the rate grows from zero.
        schedule: a name in `SCHEDULES`.
        average: number of last steps whose mean loss counts.

    Raises:
        ValueError: if a number is out of range or the schedule unknown.

    Example:
        >>> [Recipe(4, 2, "linear", 1).rate(t) for t in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """

    steps: int
    warmup: int
    schedule: str
    average: int

    def __post_init__(self) -> None:
        positive("steps", self.steps, integer=True)
        positive("average", self.average, integer=True)
        if not 0 <= self.warmup < self.steps:
            raise ValueError(f"`warmup` must be from 0 to less than `steps`; got {self.warmup}")
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"`schedule` must be one of {', '.join(SCHEDULES)}; got {self.schedule!r}"
            )

    def rate(self, t: int) -> float:
        """Return the factor on the learning rate in a step.

        Args:
            t: the step, from 0.

        Returns:
            The factor, at most 1.
        """
        if t < self.warmup:
            return (t + 1) / self.warmup
        return SCHEDULES[self.schedule]((t - self.warmup) / (self.steps - self.warmup))

    def __str__(self) -> str:
        return f"{self.steps} {self.warmup} {self.schedule} {self.average}"


def final_loss(
    build: Callable[..., nn.Module],
    step: Callable[[nn.Module, Any], Tensor],
    data: Sequence[Any],
    recipe: Recipe,
    *,
    setup: Setup,
    optimizer: OptimizerLike,
    size: Size,
    seed: int,
    device: torch.device,
) -> float:
    """Train a model and return the mean of its last losses.

    Args:
        build: from a size to a model.
        step: from model and batch to the loss.
        data: one batch for each step.
        recipe: steps and rates.
        setup: makes the model ready and returns its parameter groups.
        optimizer: name or function.
        size: of the model.
        seed: of everything random.
        device: where to.

    Returns:
        The loss; ten times the first one and one more for a run that diverges.

    Raises:
        ValueError: if the loss is no scalar, or not finite at initialisation.
    """
    losses: list[float] = []
    with seeded(seed, device):
        model = size.build(build).to(device)
        model.train()
        opt = make_optimizer(optimizer, setup(model, size, seed))
        rates = [group["lr"] for group in opt.param_groups]
        for t in range(recipe.steps):
            for group, lr in zip(opt.param_groups, rates, strict=True):
                group["lr"] = lr * recipe.rate(t)
            opt.zero_grad(set_to_none=True)
            loss = step(model, move(data[t], device, None))
            losses.append(checked_loss(loss, size, first=t == 0))
            if not losses[-1] < _DIVERGED * max(abs(losses[0]), 1e-6):
                return 10.0 * abs(losses[0]) + 1.0
            loss.backward()
            opt.step()
    return float(np.mean(losses[-recipe.average :]))


def checked_loss(loss: Any, size: Size, *, first: bool) -> float:
    """Return a loss as a number.

    Args:
        loss: what the user's `step` returned.
        size: of the model, for the message.
        first: whether the model is at initialisation.

    Returns:
        The number, which may not be finite later on.

    Raises:
        ValueError: if it is no tensor with one entry; at initialisation also if it is not finite
            or does not depend on the parameters.
    """
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"`step` must return the loss as a tensor with one entry; got {got}")
    if first and not loss.requires_grad:
        raise ValueError(
            "`step` must return a loss that depends on the parameters; got one without gradient "
            f"at {size}"
        )
    value = float(loss.detach())
    if first and not math.isfinite(value):
        raise ValueError(
            f"`step` must return a finite loss at initialisation; got {value} at {size}"
        )
    return value
