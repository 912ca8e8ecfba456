r"""A Brownian path that can be made finer without changing it.

The increments over a grid of :math:`n_0` steps of :math:`[0, T]` are independent
:math:`N(0, T/n_0)`. Halving a step of length :math:`h` splits its increment :math:`\Delta` by a
Brownian bridge with one fresh normal :math:`z`,

.. math:: \Delta = \bigl(\tfrac\Delta2 + \tfrac{\sqrt h}{2}z\bigr)
    + \bigl(\tfrac\Delta2 - \tfrac{\sqrt h}{2}z\bigr),

two independent :math:`N(0, h/2)`. Each level of halving draws from streams of its own, so the path
is a function of its seed alone: it does not depend on which grids were asked for, or in what
order. A grid of :math:`n` steps, where :math:`n` divides :math:`n_0 2^m`, sums the increments of
level :math:`m`.
"""

from __future__ import annotations

__all__ = ["BrownianPath"]

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from scalinglimits.laws.streams import derive_seed
from scalinglimits.residual._checks import positive_integer

_BLOCK = 16
"""Base steps of one stream: part of what defines the path, so never a parameter."""
_DEEPEST = 24


class BrownianPath:
    r"""A path of independent Brownian motions on :math:`[0, T]`, one for each place of a shape.

    Args:
        shape: of the value at one time.
        steps: base grid :math:`n_0`; finer grids are its halvings, coarser ones its sums.
        horizon: :math:`T`.
        seed: of the path.
        dtype: of the increments.
        device: where they are drawn and delivered.

    Raises:
        ValueError: if ``steps`` or an entry of ``shape`` is not a positive integer, or
            ``horizon`` is not positive and finite.

    Example:
        >>> path = BrownianPath((40, 40), steps=100, seed=0, dtype=torch.float64)
        >>> fine, coarse = path.increments(800), path.increments(50)
        >>> bool(torch.allclose(fine.reshape(50, 16, 40, 40).sum(1), coarse))
        True
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        steps: int,
        *,
        horizon: float = 1.0,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = tuple(positive_integer("shape", size) for size in shape)
        self.steps = positive_integer("steps", steps)
        if not (math.isfinite(horizon) and horizon > 0):
            raise ValueError(f"`horizon` must be a positive finite number; got {horizon!r}")
        self.horizon = float(horizon)
        self.seed = int(seed)
        self.dtype = dtype or torch.get_default_dtype()
        self.device = torch.device(device)

    def level(self, steps: int) -> int:
        """Return how many halvings of the base grid a grid of ``steps`` steps needs.

        Args:
            steps: the grid.

        Returns:
            The least m for which ``steps`` divides the base grid times 2^m.

        Raises:
            ValueError: if there is none.
        """
        count = positive_integer("steps", steps)
        odd = count // math.gcd(count, self.steps)
        level = odd.bit_length() - 1
        if odd != 1 << level or level > _DEEPEST:
            raise ValueError(
                f"`steps` must divide the base grid of {self.steps} steps times a power of two; "
                f"got {count}"
            )
        return level

    def increments(self, steps: int | None = None) -> Tensor:
        """Return all increments over a grid.

        Args:
            steps: the grid; None is the base grid.

        Returns:
            Increments of shape ``(steps, *shape)``.

        Raises:
            ValueError: if the grid is no halving or sum of the base grid.
        """
        return torch.cat(list(self.blocks(steps)))

    def blocks(self, steps: int | None = None) -> Iterator[Tensor]:
        """Yield the increments over a grid in order, a few at a time.

        Args:
            steps: the grid; None is the base grid.

        Yields:
            Increments of shape ``(count, *shape)``, whose counts sum to ``steps``.

        Raises:
            ValueError: if the grid is no halving or sum of the base grid.
        """
        steps = self.steps if steps is None else steps
        level = self.level(steps)
        group = (self.steps << level) // steps
        if group == 1:
            for block in range(math.ceil(self.steps / _BLOCK)):
                yield self._fine(block, level)
            return
        rest = torch.empty((0, *self.shape), dtype=self.dtype, device=self.device)
        for block in range(math.ceil(self.steps / _BLOCK)):
            rest = torch.cat([rest, self._fine(block, level)])
            whole = len(rest) // group
            if whole:
                ready, rest = rest[: whole * group], rest[whole * group :]
                yield ready.reshape(whole, group, *self.shape).sum(1)

    def _fine(self, block: int, level: int) -> Tensor:
        """Return the increments of level ``level`` within block ``block`` of base steps."""
        count = min(_BLOCK, self.steps - block * _BLOCK)
        h = self.horizon / self.steps
        increments = self._normal(block, 0, count).mul_(math.sqrt(h))
        for j in range(1, level + 1):
            z = self._normal(block, j, len(increments)).mul_(math.sqrt(h) / 2)
            half = increments / 2
            increments = torch.stack([half + z, half - z], dim=1).flatten(0, 1)
            h /= 2
        return increments

    def _normal(self, block: int, level: int, count: int) -> Tensor:
        seed = derive_seed(self.seed, "brownian", level, block)
        generator = torch.Generator(device=self.device).manual_seed(seed)
        return torch.randn(
            (count, *self.shape), generator=generator, dtype=self.dtype, device=self.device
        )
