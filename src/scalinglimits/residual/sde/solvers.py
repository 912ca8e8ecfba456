r"""One-step methods for stochastic differential equations in the sense of Itô.

.. math:: dY = a(t, Y)\,dt + b(t, Y)\,dB

A method carries its theoretical orders: with step :math:`h`, the strong error
:math:`E\|Y_T - Y^h_T\|` is :math:`O(h^{\text{strong\_order}})` and the error of expectations
:math:`O(h^{\text{weak\_order}})`.

Reference:
    Kloeden and Platen, Numerical Solution of Stochastic Differential Equations, 1992,
    sections 10.2 and 10.3.
"""

from __future__ import annotations

__all__ = ["SDE", "EulerMaruyama", "Milstein", "Solver", "integrate"]

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from scalinglimits.residual.sde.brownian import BrownianPath


class SDE(ABC):
    """A stochastic differential equation with noise of any form.

    A subclass gives ``apply_diffusion`` and, where it has one, ``drift``; if each entry of its
    state has its own noise, it says so by ``diagonal``.
    """

    def drift(self, t: float, y: Tensor) -> Tensor | None:
        """Return the drift, or None for none.

        Args:
            t: the time.
            y: the state.

        Returns:
            A tensor of the state's shape, or None.
        """
        return None

    @abstractmethod
    def apply_diffusion(self, t: float, y: Tensor, dB: Tensor) -> Tensor:
        """Return the diffusion coefficient applied to a noise increment.

        Args:
            t: the time.
            y: the state.
            dB: the increment.

        Returns:
            A tensor of the state's shape.
        """

    @property
    def diagonal(self) -> bool:
        """Whether each entry of the state has its own noise: b(t, y) dB = b_i(t, y_i) dB_i."""
        return False


class Solver(ABC):
    """A one-step method."""

    strong_order: float
    weak_order: float

    def check(self, sde: SDE) -> None:  # noqa: B027  (nothing to check by default)
        """Raise a ValueError if the method does not apply to ``sde``.

        Args:
            sde: the equation.
        """

    @abstractmethod
    def step(self, sde: SDE, t: float, y: Tensor, h: float, dB: Tensor) -> Tensor:
        """Return the state after one step.

        Args:
            sde: the equation.
            t: the time.
            y: the state.
            h: the step.
            dB: the noise increment over it.

        Returns:
            The next state.
        """


class EulerMaruyama(Solver):
    r"""The method of Euler and Maruyama, :math:`y + a\,h + b\,\Delta B`.

    A residual network with independent weights *is* this method.
    """

    strong_order = 0.5
    weak_order = 1.0

    def step(self, sde: SDE, t: float, y: Tensor, h: float, dB: Tensor) -> Tensor:
        """Return the state after one step; see :meth:`Solver.step`."""
        drift = sde.drift(t, y)
        moved = sde.apply_diffusion(t, y, dB).add_(y)
        return moved if drift is None else moved.add_(drift, alpha=h)


class Milstein(Solver):
    r"""The method of Milstein for diagonal noise.

    .. math:: y + a\,h + b\,\Delta B + \tfrac12\,b\,b'\,(\Delta B^2 - h)

    For noise that is not diagonal the method needs iterated integrals of different components of
    the path, which its increments do not determine; it refuses.
    """

    strong_order = 1.0
    weak_order = 1.0

    def check(self, sde: SDE) -> None:
        """Raise a ValueError if the noise of ``sde`` is not diagonal.

        Args:
            sde: the equation.

        Raises:
            ValueError: if its noise is not diagonal.
        """
        if not sde.diagonal:
            raise ValueError(
                f"`sde` must have diagonal noise for Milstein's method; got {sde!r}, whose "
                "components do not commute: use EulerMaruyama()"
            )

    def step(self, sde: SDE, t: float, y: Tensor, h: float, dB: Tensor) -> Tensor:
        """Return the state after one step; see :meth:`Solver.step`."""
        with torch.enable_grad():
            leaf = y.detach().requires_grad_(True)
            b = sde.apply_diffusion(t, leaf, torch.ones_like(dB))
            (slope,) = torch.autograd.grad(b.sum(), leaf)
        b = b.detach()
        moved = y + b * dB + 0.5 * b * slope * (dB**2 - h)
        drift = sde.drift(t, y)
        return moved if drift is None else moved.add_(drift, alpha=h)


@torch.no_grad()
def integrate(
    sde: SDE,
    start: Tensor,
    path: BrownianPath,
    *,
    steps: int | None = None,
    solver: Solver | None = None,
    save: Literal["last", "all"] = "last",
) -> Tensor:
    """Integrate an equation along a given Brownian path, over the path's horizon.

    Args:
        sde: the equation.
        start: the state at time 0; leading dimensions are a batch where the equation allows it.
        path: the noise, of the shape that the equation takes.
        steps: the grid; None is the path's base grid.
        solver: the method; None is :class:`EulerMaruyama`.
        save: "last" or "all".

    Returns:
        The last state, or all of them with shape ``(steps + 1, *shape)``.

    Raises:
        ValueError: if the method does not apply, ``save`` is unknown or the grid does not fit.

    Example:
        >>> from scalinglimits.residual.sde import BrownianPath, integrate, limit_sde
        >>> sde = limit_sde(width=40, branch="res-1")
        >>> path = BrownianPath(sde.noise_shape(64), steps=1000, seed=0)
        >>> integrate(sde, torch.ones(64, 40), path).shape
        torch.Size([64, 40])
    """
    method = EulerMaruyama() if solver is None else solver
    method.check(sde)
    if save not in ("last", "all"):
        raise ValueError(f"`save` must be 'last' or 'all'; got {save!r}")
    count = path.steps if steps is None else steps
    path.level(count)
    h, k, y = path.horizon / count, 0, start
    states = [start]
    for block in path.blocks(count):
        for dB in block.unbind(0):
            y = method.step(sde, k * h, y, h, dB)
            k += 1
            if save == "all":
                states.append(y)
    return y if save == "last" else torch.stack(states)
