r"""Stability for given weights, smooth in depth: Propositions 12 and 13 of R, with their constants.

Both are deterministic: they read the weights of one network. Take
:math:`|\sigma(x)| \le b|x|` and :math:`M_k = b\,\|V_k\|_2\,\|W_k\|_2` (:math:`b\,\|V_k\|_2` for
res-1). Then :math:`\|h_{k+1}-h_k\| \le \alpha M_{k+1}\|h_k\|`, and by induction

.. math::

    \sup_k\frac{\|h_k-h_0\|}{\|h_0\|} \le \prod_k(1+\alpha M_k) - 1
    \le \bar M e^{\bar M}\,L^{1-\beta} \quad (\beta \ge 1), \qquad \bar M = \frac1L\sum_k M_k .
"""

from __future__ import annotations

__all__ = ["linear_explosion_bound", "smooth_change_bound"]

import math

import numpy as np
import torch
from torch import Tensor

from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.assumptions import Assumption
from scalinglimits.residual.bounds.record import Bound
from scalinglimits.residual.constants import branch_constants
from scalinglimits.residual.model import ResidualNetwork

_LARGEST_EXPONENT = 709.0


@torch.no_grad()
def smooth_change_bound(network: ResidualNetwork) -> Bound:
    r"""Bound the change of every hidden state, for every input (R, Proposition 12).

    .. math:: \sup_k\frac{\|h_k-h_0\|}{\|h_0\|} \le \prod_{k=1}^L(1+\alpha M_k) - 1

    It holds for any weights. Where they are values of a smooth process, :math:`\bar M` does not
    depend on the depth, and the bound tends to 0 as :math:`L^{1-\beta}` for
    :math:`\beta > 1` and stays bounded for :math:`\beta = 1`.

    Args:
        network: the network.

    Returns:
        The bound on the norm of the change (not its square).

    Raises:
        TypeError: if ``network`` is not a :class:`ResidualNetwork`.

    Example:
        >>> from scalinglimits.laws import SmoothProcess
        >>> network = ResidualNetwork(8, width=16, depth=200, out_features=1, beta=2.0,
        ...     weights=SmoothProcess(), generator=torch.Generator().manual_seed(0))
        >>> bound = smooth_change_bound(network)
        >>> bound.guaranteed, bound.upper < 0.1
        (True, True)
    """
    _check_network(network)
    constants = branch_constants(network.branch, network.activation, width=network.width)
    b = constants.quotient[1]
    norms = b * torch.linalg.matrix_norm(network.V.double(), ord=2)
    if network.W is not None:
        norms = norms * torch.linalg.matrix_norm(network.W.double(), ord=2)
    alpha, L = network.branch_scale, network.depth
    mean = float(norms.mean())
    beta = network.beta
    exponent = float(torch.log1p(alpha * norms).sum()) if math.isfinite(mean) else math.inf
    upper = math.expm1(exponent) if exponent < _LARGEST_EXPONENT else math.inf
    c = mean * math.exp(mean) if mean < _LARGEST_EXPONENT / 2 else math.inf
    rate = f"c L^(1−β) with c = {c:.3g}, M̄ = {mean:.3g}"
    if math.isnan(beta) or beta > 1 + 1e-9:
        words = f"Identity as L grows with the same M̄: at most {rate}."
    else:
        words = f"Bounded as L grows with the same M̄: {rate}."
    return Bound(
        theorem="R, Proposition 12",
        quantity="sup ‖h_k−h_0‖/‖h_0‖",
        lower=0.0,
        upper=upper,
        delta=0.0,
        assumptions=(
            Assumption("A6", "|σ(x)| ≤ b|x|", b, math.inf, math.isfinite(b)),
            Assumption.at_most("branch scale", "Lα ≤ 1 (β ≥ 1)", L * alpha, 1.0),
        ),
        consequence=words,
    )


@torch.no_grad()
def linear_explosion_bound(network: ResidualNetwork, inputs: Tensor) -> Bound:
    r"""Bound the largest hidden state of a linear network from below (R, Proposition 13).

    Let :math:`y^\top\mathscr V_0 = \lambda y^\top`, :math:`\lambda > 0`, :math:`\|y\| = 1`, and
    :math:`\|V_{k+1}-\mathscr V_0\| \le ck/L`. Suppose :math:`\|h_k\| \le M` for all k. With
    :math:`q = 1+\alpha\lambda` and :math:`u_k = \langle h_k, y\rangle`,
    :math:`|u_{k+1}| \ge q|u_k| - \alpha cMk/L`, so

    .. math::

        M \ge |u_L| \ge q^L\Bigl(|u_0| - \frac{cM}{\alpha\lambda^2L}\Bigr)
        \quad\Longrightarrow\quad
        \max_k\frac{\|h_k\|}{\|h_0\|} \ge
        \frac{|u_0|/\|h_0\|}{q^{-L} + c/(\lambda^2L\alpha)},

    which tends to infinity as :math:`L^{1-\beta}` for :math:`\beta < 1`.

    Args:
        network: a res-1 network with the identity for activation.
        inputs: data of shape (n_inputs, in_features); the bound is for the worst of them.

    Returns:
        The bound on the norm ratio (not its square), for the best eigenvector.

    Raises:
        TypeError: if ``network`` is not a :class:`ResidualNetwork`.
        ValueError: if the inputs have the wrong shape or give a zero hidden state.

    Example:
        >>> from scalinglimits.laws import SmoothProcess
        >>> network = ResidualNetwork(8, width=16, depth=400, out_features=1, branch="res-1",
        ...     activation="identity", beta=0.25, weights=SmoothProcess(1.0),
        ...     generator=torch.Generator().manual_seed(0))
        >>> bound = linear_explosion_bound(network, torch.ones(1, 8))
        >>> bound.guaranteed, bound.lower > 1
        (True, True)
    """
    _check_network(network)
    if inputs.ndim != 2 or inputs.shape[1] != network.in_features or not len(inputs):
        raise ValueError(
            f"`inputs` must have shape (n_inputs, {network.in_features}); got {tuple(inputs.shape)}"
        )
    h_0 = (inputs.double() @ network.input_weight.double().T).cpu().numpy()
    sizes = np.linalg.norm(h_0, axis=1)
    if not bool(np.all(sizes > 0)):
        raise ValueError("`inputs` must give a non-zero hidden state; got one with norm 0")
    slopes = resolve_activation(network.activation).slopes
    linear = network.branch == "res-1" and slopes == (1.0, 1.0)
    V, L, alpha = network.V.double().cpu(), network.depth, network.branch_scale
    values, vectors = np.linalg.eig(V[0].numpy().T)
    real = (np.abs(values.imag) < 1e-12) & (values.real > 0)
    drift = torch.linalg.matrix_norm(V[1:] - V[0], ord=2) * L / torch.arange(1, L)
    c = float(drift.max()) if L > 1 else 0.0
    lower = 0.0
    for eigenvalue, y in zip(values.real[real], vectors.real.T[real], strict=True):
        cosine = float((np.abs(h_0 @ y) / sizes).min()) / float(np.linalg.norm(y))
        decay = math.exp(-L * math.log1p(alpha * float(eigenvalue)))
        ratio = float(cosine) / (decay + c / (float(eigenvalue) ** 2 * L * alpha) + 1e-300)
        lower = max(lower, ratio)
    largest = float(values.real[real].max()) if real.any() else 0.0
    beta = network.beta
    return Bound(
        theorem="R, Proposition 13",
        quantity="max ‖h_k‖/‖h_0‖",
        lower=lower,
        upper=math.inf,
        delta=0.0,
        assumptions=(
            Assumption("branch", "res-1 with σ the identity", float(linear), 1.0, linear),
            Assumption("branch scale", "β < 1", beta, 1.0, bool(beta < 1)),
            Assumption("eigenvalue", "λ > 0", largest, 0.0, largest > 0),
        ),
        consequence=(
            f"Explosion as L^(1−β): the Lipschitz constant of the weights is {c:.3g} and the "
            f"largest eigenvalue {largest:.3g}."
        ),
    )


def _check_network(network: ResidualNetwork) -> None:
    if not isinstance(network, ResidualNetwork):
        raise TypeError(f"`network` must be a ResidualNetwork; got {type(network).__name__}")
