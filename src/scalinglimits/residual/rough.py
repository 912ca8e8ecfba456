r"""Between the SDE and the ODE: weights that are increments of fractional Brownian motion.

For a Hurst index :math:`H \in (½, 1)` and :math:`\alpha = L^{-H}` the scaled weights
:math:`L^{-H}\xi_k` are increments over steps :math:`1/L` of a fractional Brownian motion
:math:`B^H` on :math:`[0, 1]`, and the limits are equations in the sense of Young:

- **res-1**: :math:`dX = d^{-1/2}\,\sigma(X)\,dB^H`, with :math:`B^H` a :math:`d\times d` motion;
- **res-2, res-3**, slopes :math:`(a_+, a_-)`: the weights :math:`W_k` are of size one and average.
  What survives at the scale :math:`L^{-H}` is their mean,
  :math:`E\,\sigma(w\cdot h) = \kappa_0\|h\|/\sqrt d` with
  :math:`\kappa_0 = (a_+-a_-)/\sqrt{2\pi}`, so
  :math:`dX = \kappa_0\,d^{-1/2}\|X\|\,d\tilde B^H` with
  :math:`\tilde B^H = d^{-1/2}\sum_j B^H_{\cdot j}` a motion in :math:`\mathbb R^d`. It is nothing
  if :math:`a_+ = a_-`.

The network is the Euler scheme. It lacks the diagonal second-order term
:math:`½\sum_{ij} b_{ij}'b_{ij}(\Delta B^H_{ij})^2`, whose mean is
:math:`½L^{-2H}\sigma'(X_i)\sigma(X_i)/d` a step, of order :math:`L^{1-2H}/d` in all. The rest
fluctuates, of order :math:`L^{1/2-2H}` for :math:`H < 3/4`. So the order is :math:`2H-1`
(Neuenkirch and Nourdin 2007; Hu, Liu and Nualart 2016), and seems to be :math:`2H-½` until the
depth exceeds about :math:`d^2`. Adding the term's mean gives the *modified* scheme, of order
:math:`2H-½`.

Reference:
    R, section 4.1, leaves the case open. Y. Hu, Y. Liu and D. Nualart, Rate of convergence and
    asymptotic error distribution of Euler approximation schemes for fractional diffusions,
    Annals of Applied Probability 26, 2016.
"""

from __future__ import annotations

__all__ = ["FractionalPath", "YoungLimit", "young_limit"]

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from scalinglimits.laws import fractional_gaussian_noise
from scalinglimits.laws.streams import substream
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import Activation, resolve_activation
from scalinglimits.residual.constants import lipschitz_constant
from scalinglimits.residual.model import BRANCHES, branch_activation


class FractionalPath:
    r"""Fractional Brownian motions on [0, 1], at a finest grid and its coarsenings.

    Args:
        shape: of the value at one time.
        steps: the finest grid.
        hurst: :math:`H`.
        seed: of the path.
        dtype: of the increments.

    Raises:
        ValueError: if a size is not a positive integer or ``hurst`` is outside (0, 1).

    Example:
        >>> path = FractionalPath((3,), steps=64, hurst=0.8, seed=0)
        >>> path.increments(16).shape
        torch.Size([16, 3])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        steps: int,
        hurst: float,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.shape = tuple(positive_integer("shape", size) for size in shape)
        self.steps = positive_integer("steps", steps)
        noise = fractional_gaussian_noise(
            self.steps, hurst, self.shape, generator=substream(seed, "fractional"),
            dtype=dtype, axis=0,
        )  # fmt: skip
        self.hurst = float(hurst)
        self._increments: Tensor = noise * self.steps**-self.hurst

    def increments(self, steps: int | None = None) -> Tensor:
        """Return the increments over a grid.

        Args:
            steps: the grid, a divisor of the finest; None is the finest.

        Returns:
            Increments of shape ``(steps, *shape)``.

        Raises:
            ValueError: if ``steps`` does not divide the finest grid.
        """
        count = self.steps if steps is None else positive_integer("steps", steps)
        if self.steps % count:
            raise ValueError(f"`steps` must divide the finest grid {self.steps}; got {count}")
        if count == self.steps:
            return self._increments
        return self._increments.reshape(count, self.steps // count, *self.shape).sum(1)


@dataclass(frozen=True)
class YoungLimit:
    r"""The Young equation that a residual network with fractional weights tends to.

    Attributes:
        width: :math:`d`.
        branch: "res-1", "res-2" or "res-3".
        activation: :math:`\sigma`.
        hurst: :math:`H`, in (½, 1).
    """

    width: int
    branch: str
    activation: Activation
    hurst: float

    @property
    def euler_order(self) -> float:
        r"""The order of the Euler scheme, :math:`2H-1`: the network's, in res-1."""
        return 2 * self.hurst - 1

    @property
    def modified_order(self) -> float:
        r"""The order of the modified Euler scheme and of the network's fluctuations.

        :math:`2H-½` for :math:`H < 3/4`, and 1 above (with a logarithm at 3/4).
        """
        return min(2 * self.hurst - 0.5, 1.0)

    def noise_shape(self) -> tuple[int, ...]:
        """Return the shape of the motion that drives the network: (d, d).

        Returns:
            The shape; element [j, i] acts from coordinate j to coordinate i.
        """
        return (self.width, self.width)

    def scheme(self, start: Tensor, increments: Tensor, *, modified: bool = False) -> Tensor:
        r"""Run the Euler scheme of the limit along increments of a path, and return all states.

        For res-1 it is the network itself, :math:`V_{k+1}^\top = L^H\Delta B/\sqrt d`.

        Args:
            start: :math:`h_0`, shape (..., n, d).
            increments: shape (L, ..., d, d).
            modified: add the mean of the second-order term, for the higher order.

        Returns:
            States of shape (L + 1, ..., n, d).
        """
        states = [start]
        for x in self._steps(start, increments, modified):
            states.append(x)
        return torch.stack(states)

    def _steps(self, x: Tensor, increments: Tensor, modified: bool) -> Iterator[Tensor]:
        d, scale = self.width, self.width**-0.5
        mean_square = len(increments) ** (-2 * self.hurst)
        if self.branch == "res-1":
            for dB in increments.unbind(0):
                moved = x + scale * (self.activation.function(x) @ dB)
                if modified:
                    slope = self.activation.derivative(x)
                    moved = moved + (mean_square / (2 * d)) * slope * self.activation.function(x)
                x = moved
                yield x
            return
        positive, negative = self.activation.slopes or (math.nan, math.nan)
        kappa = (positive - negative) / math.sqrt(2 * math.pi * d)
        for dB in increments.unbind(0):
            size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            moved = x + kappa * size * (scale * dB.sum(-2))[..., None, :]
            if modified:  # b_i = κ‖x‖ e_i: Σ_i (∇b_i) b_i = κ² x
                moved = moved + (mean_square / 2 * kappa**2) * x
            x = moved
            yield x


def young_limit(
    hurst: float,
    *,
    width: int,
    branch: str = "res-1",
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> YoungLimit:
    r"""Return the Young equation of a residual network at :math:`\alpha = L^{-H}` .

    Args:
        hurst: :math:`H`, in (½, 1).
        width: :math:`d`.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch, Lipschitz, and positively homogeneous in res-2. (Proofs ask
            for more, two bounded derivatives.)

    Returns:
        The equation.

    Raises:
        ValueError: if ``hurst`` is outside (½, 1), the width is not a positive integer or the
            activation does not fit.

    Example:
        >>> limit = young_limit(0.75, width=10, activation="tanh")
        >>> limit.euler_order, limit.modified_order
        (0.5, 1.0)
    """
    if not 0.5 < hurst < 1:
        raise ValueError(f"`hurst` must be strictly between 1/2 and 1; got {hurst!r}")
    d = positive_integer("width", width)
    if branch not in BRANCHES:
        raise ValueError(f"`branch` must be one of {', '.join(BRANCHES)}; got {branch!r}")
    function = branch_activation(branch, activation)
    if not math.isfinite(lipschitz_constant(function)):
        raise ValueError(f"`activation` must be Lipschitz continuous; got {activation!r}")
    sigma = resolve_activation(function)
    if branch != "res-1" and sigma.slopes is None:
        raise ValueError(
            f"`activation` must be positively homogeneous for {branch}; got {activation!r}"
        )
    return YoungLimit(d, branch, sigma, float(hurst))
