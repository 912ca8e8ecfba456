r"""First-order response of a residual network to its weights: exact second moments.

While the hidden state has hardly moved from :math:`h_0`, its change is
:math:`\alpha\sum_k V_{k+1}\,g(h_0, W_{k+1})`, and the change of the backward vector is
:math:`\alpha\sum_k (\partial g/\partial h)^\top V_{k+1}^\top p_L`. Let the entries of the weights
be Gaussian across depth with autocovariance :math:`\gamma(j)`, :math:`\gamma(0) = 1`, and let
:math:`\sigma` have slopes :math:`(a_+, a_-)`. Then (derived in docs/residual.md)

.. math::

    E\frac{\|h_L-h_0\|^2}{\|h_0\|^2} \approx \alpha^2 S_L, \qquad
    S_L = \sum_{|j|<L}(L-|j|)\,\gamma(j)\,\kappa(\gamma(j))

for res-2 and res-3, with :math:`\kappa(\rho) = E[\sigma(u)\sigma(v)]` over standard Gaussian
pairs of correlation :math:`\rho`; for res-1, :math:`\kappa` is the constant
:math:`\|\sigma(h_0)\|^2/\|h_0\|^2 \approx (a_+^2+a_-^2)/2`. For the gradient the factor
:math:`\kappa` is replaced by
:math:`(1-\frac1d)\,\rho\,\dot\kappa(\rho) + \frac1d\,\kappa(\rho)` with
:math:`\dot\kappa(\rho) = E[\sigma'(u)\sigma'(v)]`.

So :math:`S_L \sim L^{2\max(H, 1/2)}` for increments of fractional Brownian motion, since
:math:`\kappa(0) = (a_+-a_-)^2/(2\pi)` is not zero: that is R's :math:`\beta_c = \max(H, ½)`. (In
res-2 with a linear :math:`\sigma` it is zero, and :math:`\beta_c = \max(2H-1, ½)`.) For
the gradient of a wide network it is not: there :math:`\rho\dot\kappa(\rho)` vanishes at 0, the
sum grows like :math:`L^{\max(1, 4H-2)}`, and :math:`L^{2H}` carries only the weight
:math:`1/d`.
"""

from __future__ import annotations

__all__ = ["ResponseMoments", "limit_exponent", "response_moments"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from scalinglimits.laws import DepthLaw
from scalinglimits.residual._checks import depth_law, positive_integer
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.model import branch_activation


@dataclass(frozen=True, eq=False)
class ResponseMoments:
    r"""Mean square of the first-order changes over :math:`\alpha^2`, for each depth.

    Attributes:
        depths: the depths, shape (n,).
        hidden: :math:`S_L` of the signal, shape (n,).
        gradient: the same of the gradient, shape (n,).
    """

    depths: np.ndarray
    hidden: np.ndarray
    gradient: np.ndarray

    def balanced_beta(self) -> tuple[np.ndarray, np.ndarray]:
        r"""Return the :math:`\beta` at which the first-order change equals the start.

        .. math:: L^{-2\beta} S_L = 1, \qquad \beta = \frac{\log S_L}{2\log L}

        Returns:
            The exponents of the signal and of the gradient, each of shape (n,).
        """
        scale = 2 * np.log(self.depths)
        return np.log(self.hidden) / scale, np.log(self.gradient) / scale


def response_moments(
    weights: DepthLaw,
    depths: int | list[int] | np.ndarray,
    *,
    width: int,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    total_depth: int | None = None,
) -> ResponseMoments:
    r"""Compute the first-order mean squares :math:`S_L` of signal and gradient.

    Args:
        weights: the law across depth, of which the autocovariance is used.
        depths: one or many depths L.
        width: :math:`d`.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch, positively homogeneous.
        total_depth: the depth the law is sampled at, if ``depths`` are the first layers of one
            deeper network; None: each depth is a network of its own.

    Returns:
        The moments, for each depth.

    Raises:
        TypeError: if ``weights`` is not a law across depth.
        ValueError: if a size is not a positive integer, ``total_depth`` is less than a depth,
            the branch is unknown, or its activation is not positively homogeneous.

    Example:
        >>> from scalinglimits.laws import Independent, Normal
        >>> response_moments(Independent(Normal()), [100], width=40).hidden
        array([50.])
    """
    depth_law(weights)
    width = positive_integer("width", width)
    sizes = np.array([positive_integer("depths", n) for n in np.atleast_1d(depths).tolist()])
    slopes = resolve_activation(branch_activation(branch, activation)).slopes
    if slopes is None:
        raise ValueError(f"`activation` must be positively homogeneous; got {activation!r}")
    if total_depth is not None and positive_integer("total_depth", total_depth) < sizes.max():
        raise ValueError(
            f"`total_depth` must be at least the greatest of `depths`, {sizes.max()}; "
            f"got {total_depth}"
        )
    moments = []
    for depth in sizes.tolist():
        gamma = np.asarray(weights.autocovariance(total_depth or depth), dtype=np.float64)[:depth]
        weight = np.where(np.arange(depth) > 0, 2.0, 1.0) * (depth - np.arange(depth)) * gamma
        kappa, kappa_dot = _branch_kernels(branch, slopes, gamma)
        if branch == "res-1":
            backward = kappa_dot
        else:
            backward = (1 - 1 / width) * gamma * kappa_dot + kappa / width
        moments.append((weight @ kappa, weight @ backward))
    hidden, gradient = np.array(moments).T
    return ResponseMoments(sizes, hidden, gradient)


def limit_exponent(
    critical_beta: float,
    branch: str,
    activation: str | Callable[[Tensor], Tensor] | None,
) -> float:
    r"""Return the exponent of :math:`\sqrt{S_L}` as :math:`L \to \infty`.

    It is that of the sum of the weights, but in res-2 with a linear :math:`\sigma`, where
    :math:`\gamma\kappa(\gamma)` is :math:`\gamma^2`.

    Args:
        critical_beta: exponent of the sum of the weights, at least ½.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch, positively homogeneous.

    Returns:
        The critical exponent of the network.

    Example:
        >>> limit_exponent(0.9, "res-3", None)
        0.9
        >>> limit_exponent(0.9, "res-2", "identity")
        0.8
    """
    slopes = resolve_activation(branch_activation(branch, activation)).slopes
    if branch == "res-2" and slopes is not None and slopes[0] == slopes[1]:
        return max(0.5, 2 * critical_beta - 1)
    return critical_beta


def _branch_kernels(
    branch: str, slopes: tuple[float, float], rho: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return :math:`E[\sigma(u)\sigma(v)]` and :math:`E[\sigma'(u)\sigma'(v)]`."""
    positive, negative = slopes
    squares, product = positive**2 + negative**2, positive * negative
    if branch == "res-1":
        constant = np.full_like(rho, squares / 2)
        return constant, constant
    rho = rho.clip(-1.0, 1.0)
    both = 0.25 + np.arcsin(rho) / (2 * math.pi)  # P(u > 0, v > 0)
    kappa = squares * _relu_moment(rho) - 2 * product * _relu_moment(-rho)
    return kappa, squares * both + 2 * product * (0.5 - both)


def _relu_moment(rho: np.ndarray) -> np.ndarray:
    r"""Return :math:`E[u_+v_+]` for standard Gaussians of correlation :math:`\rho`."""
    return (np.sqrt(1 - rho**2) + rho * (math.pi / 2 + np.arcsin(rho))) / (2 * math.pi)
