r"""The diffusions that residual networks with independent weights become at infinite depth.

Notation: rows of :math:`H` are hidden states of :math:`n` inputs, width :math:`d`,
:math:`T = L\alpha^2`, entries of :math:`\sqrt d\,V` of variance :math:`v`.

- **res-1** (R, Proposition 10):
  :math:`dH = \sqrt{Tv/d}\;\sigma(H)\,dB` with :math:`B` a :math:`d\times d` Brownian motion. The
  network is the Euler--Maruyama scheme on that path, with
  :math:`V_{k+1}^\top = \sqrt{vL/d}\,(B_{(k+1)/L}-B_{k/L})`.
- **res-2, res-3**: the weights :math:`W` are fresh in each layer and leave only their mean effect.
  Given :math:`h`, the increments of :math:`n` inputs are martingale differences; the coordinates
  are uncorrelated, and each has the covariance
  :math:`\frac{\alpha^2v}{d}E\langle g(h_a,W), g(h_b,W)\rangle = \alpha^2v\,K_{ab}(h)` over
  inputs. So in law

  .. math:: dH = \sqrt{Tv}\;K(H)^{1/2}\,dB, \qquad
     K_{ab} = E[\sigma(u_a)\sigma(u_b)], \quad u \sim N(0, HH^\top/d),

  with :math:`B` an :math:`n\times d` Brownian motion. For one input and slopes
  :math:`(a_+, a_-)`, :math:`K = c\|H\|^2/d` with :math:`c = (a_+^2+a_-^2)/2`.

No correction of Stratonovich's kind arises: the weights of a layer do not depend on the state
before it, which is Itô's convention. Senses and proofs: docs/limits.md.
"""

from __future__ import annotations

__all__ = [
    "KernelSDE",
    "LimitSDE",
    "MatrixSDE",
    "NormSDE",
    "coupled_network",
    "gaussian_kernel",
    "limit_sde",
]

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scalinglimits.laws import Independent, Normal
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import Activation, resolve_activation
from scalinglimits.residual.constants import lipschitz_constant
from scalinglimits.residual.model import BRANCHES, ResidualNetwork, branch_activation
from scalinglimits.residual.sde.brownian import BrownianPath
from scalinglimits.residual.sde.solvers import SDE

_KERNEL_NODES = 40


@dataclass(frozen=True)
class LimitSDE(SDE):
    r"""The limit of a residual network with independent weights, over the time [0, 1].

    Attributes:
        width: :math:`d`.
        activation: :math:`\sigma`, with its slopes where it is homogeneous.
        strength: :math:`Tv`, the horizon times the variance of the entries of
            :math:`\sqrt d\,V`.
        sense: in what sense the network converges to it.
    """

    width: int
    activation: Activation
    strength: float
    sense: str

    @abstractmethod
    def noise_shape(self, n_inputs: int) -> tuple[int, ...]:
        """Return the shape of the Brownian motion for ``n_inputs`` inputs.

        Args:
            n_inputs: rows of the state.

        Returns:
            The shape.
        """


class MatrixSDE(LimitSDE):
    r"""The limit of res-1: :math:`dH = \sqrt{Tv/d}\;\sigma(H)\,dB`, B of shape (d, d)."""

    def noise_shape(self, n_inputs: int) -> tuple[int, ...]:
        """Return (d, d): one Brownian motion for all inputs; see :class:`LimitSDE`."""
        return (self.width, self.width)

    def apply_diffusion(self, t: float, y: Tensor, dB: Tensor) -> Tensor:
        """Return the increment; see :meth:`SDE.apply_diffusion`."""
        scale = math.sqrt(self.strength / self.width)
        return (self.activation.function(y) @ dB).mul_(scale)


class KernelSDE(LimitSDE):
    r"""The limit of res-2 and res-3: :math:`dH = \sqrt{Tv}\,K(H)^{1/2}dB`, B of shape (n, d)."""

    def noise_shape(self, n_inputs: int) -> tuple[int, ...]:
        """Return (n_inputs, d); see :class:`LimitSDE`."""
        return (n_inputs, self.width)

    def apply_diffusion(self, t: float, y: Tensor, dB: Tensor) -> Tensor:
        """Return the increment; see :meth:`SDE.apply_diffusion`."""
        kernel = gaussian_kernel(y, self.activation).mul_(self.strength)
        if y.shape[-2] == 1:
            return kernel.sqrt() * dB
        values, vectors = torch.linalg.eigh(kernel)
        # Parallel inputs make the kernel singular; rounding must not make it negative.
        root = vectors * values.clamp_min(0.0).sqrt()[..., None, :]
        return root @ (vectors.mT @ dB)


@dataclass(frozen=True)
class NormSDE(SDE):
    r"""The norm of one input in the limit of res-2 and res-3: geometric Brownian motion.

    .. math:: d\rho = \rho\Bigl[\frac{cT}{2}\Bigl(1-\frac1d\Bigr)dt + \sqrt{\frac{cT}{d}}\,dB\Bigr]

    Attributes:
        width: :math:`d`.
        strength: :math:`cT`.
    """

    width: int
    strength: float

    @property
    def diagonal(self) -> bool:
        """True: the state has one entry for each path."""
        return True

    def drift(self, t: float, y: Tensor) -> Tensor:
        """Return the drift; see :meth:`SDE.drift`."""
        return y * (self.strength / 2 * (1 - 1 / self.width))

    def apply_diffusion(self, t: float, y: Tensor, dB: Tensor) -> Tensor:
        """Return the increment; see :meth:`SDE.apply_diffusion`."""
        return y * math.sqrt(self.strength / self.width) * dB

    def exact(self, start: Tensor, t: float, B: Tensor) -> Tensor:
        r"""Return the solution, :math:`\rho_0\exp(cT(1-2/d)t/2 + \sqrt{cT/d}\,B_t)` .

        Args:
            start: :math:`\rho_0`.
            t: the time.
            B: the Brownian motion at that time.

        Returns:
            The state.
        """
        mean = self.strength / 2 * (1 - 2 / self.width) * t
        return start * torch.exp(mean + math.sqrt(self.strength / self.width) * B)


def limit_sde(
    network: ResidualNetwork | None = None,
    *,
    width: int | None = None,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    variance: float = 1.0,
    horizon: float = 1.0,
) -> LimitSDE:
    r"""Return the stochastic differential equation that a residual network tends to.

    Args:
        network: take everything from this network; its weights must be independent over layers.
        width: :math:`d`, if no network is given.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch, Lipschitz; None is its default.
        variance: :math:`v` of the entries of :math:`\sqrt d\,V` (R, Proposition 10, has 2).
        horizon: :math:`T = L\alpha^2`; 1 at :math:`\beta = ½`.

    Returns:
        A :class:`MatrixSDE` for res-1, else a :class:`KernelSDE`.

    Raises:
        ValueError: if neither or both of ``network`` and ``width`` are given, the weights are
            not independent, the activation is not Lipschitz, or a number is not positive.
        TypeError: if ``network`` is not a :class:`ResidualNetwork`.

    Example:
        >>> limit_sde(width=40, branch="res-1", activation="tanh").sense
        'strong, on the path that the weights are increments of'
        >>> limit_sde(width=40).noise_shape(3)
        (3, 40)
    """
    gaussian = True
    if (network is None) == (width is None):
        raise ValueError("`network` or `width` must be given, and not both")
    if network is not None:
        if not isinstance(network, ResidualNetwork):
            raise TypeError(f"`network` must be a ResidualNetwork; got {type(network).__name__}")
        if not isinstance(network.weights, Independent):
            raise ValueError(
                "`network` must have weights that are independent over layers; got "
                f"{network.weights!r}: smooth weights have a limit_ode, fractional ones a "
                "young_limit"
            )
        width, branch, activation = network.width, network.branch, network.activation
        horizon = network.depth * network.branch_scale**2
        gaussian = isinstance(network.weights.entries, Normal)
    width = positive_integer("width", width)  # type: ignore[arg-type]
    if branch not in BRANCHES:
        raise ValueError(f"`branch` must be one of {', '.join(BRANCHES)}; got {branch!r}")
    for name, value in (("variance", variance), ("horizon", horizon)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be a positive finite number; got {value!r}")
    function = branch_activation(branch, activation)
    if not math.isfinite(lipschitz_constant(function)):
        raise ValueError(f"`activation` must be Lipschitz continuous; got {activation!r}")
    sigma = resolve_activation(function)
    if branch == "res-1":
        sense = (
            "strong, on the path that the weights are increments of"
            if gaussian
            else "weak: the law of the states, by Donsker's theorem"
        )
        return MatrixSDE(width, sigma, variance * horizon, sense)
    sense = "weak: the joint law of the states of all inputs"
    if not gaussian:
        sense = "weak, and exact for one input of a homogeneous branch alone: for several inputs "
        sense += "the kernel is that of Gaussian W"
    return KernelSDE(width, sigma, variance * horizon, sense)


def coupled_network(sde: MatrixSDE, path: BrownianPath, depth: int) -> ResidualNetwork:
    r"""Return the res-1 network of a depth whose weights are increments of a given path.

    .. math:: V_{k+1}^\top = \sqrt{vL/d}\,(B_{(k+1)/L} - B_{k/L}), \qquad \alpha = \sqrt{T/L}

    with the variance :math:`v` taken into :math:`T`. Its input weight is the identity, so its
    inputs are states :math:`h_0`.

    Args:
        sde: the limit of res-1.
        path: a path of shape (d, d) over [0, 1].
        depth: :math:`L`, a grid of the path.

    Returns:
        The network: its states are the Euler--Maruyama scheme of ``sde`` on ``path``.

    Raises:
        TypeError: if ``sde`` is not the limit of res-1.
        ValueError: if the path has another shape or horizon, or no such grid.

    Example:
        >>> sde = limit_sde(width=8, branch="res-1")
        >>> path = BrownianPath((8, 8), steps=32, seed=0)
        >>> coupled_network(sde, path, depth=64)(torch.ones(2, 8)).shape
        torch.Size([2, 1])
    """
    if not isinstance(sde, MatrixSDE):
        raise TypeError(f"`sde` must be the limit of res-1; got {type(sde).__name__}")
    d = sde.width
    if path.shape != (d, d) or path.horizon != 1.0:
        raise ValueError(
            f"`path` must have shape ({d}, {d}) and horizon 1; got {path.shape} and {path.horizon}"
        )
    increments = path.increments(depth)
    network = ResidualNetwork(
        d, d, depth, 1, branch="res-1", activation=sde.activation.function,
        branch_scale=math.sqrt(sde.strength / depth), generator=torch.Generator().manual_seed(0),
        dtype=path.dtype, device=path.device,
    )  # fmt: skip
    with torch.no_grad():
        network.V.copy_(increments.mT).mul_(math.sqrt(depth / d))
        network.input_weight.copy_(torch.eye(d))
    return network


def gaussian_kernel(h: Tensor, activation: Activation) -> Tensor:
    r"""Return :math:`K_{ab} = E[\sigma(u_a)\sigma(u_b)]` for :math:`u \sim N(0, hh^\top/d)` .

    With slopes :math:`(a_+, a_-)` it is :math:`s_as_b[(a_+^2+a_-^2)\kappa(\rho) -
    2a_+a_-\kappa(-\rho)]`, where :math:`\kappa(\rho) = \frac{1}{2\pi}(\sqrt{1-\rho^2} +
    \rho(\pi-\arccos\rho))`, the arc-cosine kernel. Otherwise it is a Gauss--Hermite sum.

    Args:
        h: states, shape (..., n, d).
        activation: :math:`\sigma`.

    Returns:
        Kernels of shape (..., n, n).
    """
    norms = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    scale = norms / math.sqrt(h.shape[-1])
    unit = h / norms.clamp_min(torch.finfo(h.dtype).tiny)
    rho = (unit @ unit.mT).clamp(-1.0, 1.0)
    rho = rho + torch.diag_embed(1 - torch.diagonal(rho, dim1=-2, dim2=-1))
    if activation.slopes is not None:
        positive, negative = activation.slopes
        same = (positive**2 + negative**2) * _relu_moment(rho)
        opposite = 2 * positive * negative * _relu_moment(-rho)
        return scale * scale.mT * (same - opposite)
    z, w = np.polynomial.hermite_e.hermegauss(_KERNEL_NODES)
    nodes = torch.as_tensor(z, dtype=h.dtype, device=h.device)
    weights = torch.as_tensor(w / w.sum(), dtype=h.dtype, device=h.device)
    first = activation.function(scale * nodes)  # (..., n, q): σ(s_a z₁)
    mixed = rho[..., None, None] * nodes[:, None]
    mixed = mixed + (1 - rho**2).clamp_min(0).sqrt()[..., None, None] * nodes
    second = activation.function(scale.mT[..., None, None] * mixed) @ weights
    kernel = (first[..., :, None, :] * second * weights).sum(-1)
    return (kernel + kernel.mT) / 2


def _relu_moment(rho: Tensor) -> Tensor:
    r"""Return :math:`E[u_+v_+]` for standard Gaussians of correlation :math:`\rho` ."""
    root = (1 - rho**2).clamp_min(0.0).sqrt()
    return (root + rho * (math.pi - torch.arccos(rho))) / (2 * math.pi)
