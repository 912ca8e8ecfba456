"""One row of a scaling plan, and the law by which a parameter is drawn."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ROLES", "InitLaw", "PlanEntry"]

ROLES = (
    "input",
    "hidden",
    "readout",
    "embedding",
    "tied",
    "vector",
    "bias",
    "norm",
    "fixed",
)
"""Roles: *vector* is an entry-by-entry parameter that is neither bias nor gain of a
normalisation (positions, class tokens, depthwise filters); *fixed* grows along no axis."""


@dataclass(frozen=True)
class InitLaw:
    """The law by which a model draws a parameter.

    Args:
        kind: ``"constant"``, ``"normal"``, ``"uniform"``, ``"truncated"``, ``"orthogonal"``, or
            ``"kept"`` for values with a structure of their own, which no redraw may replace.
        mean: The mean; the value of a constant.
        std: The standard deviation of an entry.
        cut: Where a truncated normal is cut, in deviations of the normal before truncation.
    """

    kind: str
    mean: float = 0.0
    std: float = 0.0
    cut: float = 0.0

    @property
    def size(self) -> float:
        """The root mean square of an entry."""
        return math.hypot(self.mean, self.std)


@dataclass(frozen=True)
class PlanEntry:
    """Multipliers of one parameter, relative to the base model.

    Args:
        name: The parameter's name in the target model.
        shape: Its shape there.
        role: One of `ROLES`.
        init: The multiplier of the deviation (of the value, for a constant).
        lr: The multiplier of the learning rate.
        weight_decay: The multiplier of the weight decay.
        eps: The multiplier of ε.
        forward: What the model itself must multiply this parameter's product by; 1 unless
            asked for.
        reason: Why, in a few words.
        steps: The derivation, one step a line.
        optimizer: The optimizer whose rule this is.
        law: How the base model draws it; None if unknown.
        natural: How the target model draws it; None if unknown.
        stack: The stack of blocks that it belongs to; empty when none.
        block: The block's position in the stack.
        blocks: The number of blocks of the stack in the target.
        branch_output: Whether the branch scale is absorbed here.
        blocks_axis: The axis along which blocks are stacked in this one tensor; None if none.
        aliases: Further names of the same tensor.
        fan_in: The growth of the fan-in.
        grad: The growth of the gradient's entries.
        share: The share of a weight that an update moves, relative to the base model's, through
            depth alone.
    """

    name: str
    shape: tuple[int, ...]
    role: str
    init: float
    lr: float
    weight_decay: float
    eps: float
    forward: float
    reason: str
    steps: tuple[str, ...] = ()
    optimizer: str = ""
    law: InitLaw | None = None
    natural: InitLaw | None = None
    stack: str = ""
    block: int = 0
    blocks: int = 0
    branch_output: bool = False
    blocks_axis: int | None = None
    aliases: tuple[str, ...] = ()
    fan_in: float = 1.0
    grad: float = 1.0
    share: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        Returns:
            A dictionary that :meth:`from_dict` reads.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlanEntry:
        """Return the entry that `data` describes.

        Args:
            data: What :meth:`to_dict` returned.

        Returns:
            The entry.
        """
        values = dict(data)
        for key in ("shape", "steps", "aliases"):
            values[key] = tuple(values[key])
        for key in ("law", "natural"):
            values[key] = InitLaw(**values[key]) if values[key] is not None else None
        return cls(**values)
