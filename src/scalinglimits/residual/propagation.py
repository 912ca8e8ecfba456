r"""Norms of the signal and of the gradient across the depth of a residual network.

Notation of R: hidden states :math:`h_k`, backward vectors
:math:`p_k = \partial\,\mathrm{loss} / \partial h_k`, branch scale :math:`\alpha = L^{-\beta}`,

.. math::

    h_{k+1} = h_k + \alpha V_{k+1}\, g(h_k, W_{k+1}), \qquad
    p_k = p_{k+1} + \alpha \Bigl(\frac{\partial g}{\partial h}\Bigr)^{\!\top} V_{k+1}^\top p_{k+1}.

Both are followed as a start value plus a change, so that a change of :math:`10^{-10}` keeps its
digits, and with the power of two of their size carried apart where the recursion is positively
homogeneous (always for :math:`p`; for :math:`h` if :math:`\sigma` is), so that a ratio of
:math:`10^{300}` is a number like any other.
"""

from __future__ import annotations

__all__ = ["Propagation", "propagate", "propagate_stacks"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from scalinglimits.residual.activations import Activation, resolve_activation
from scalinglimits.residual.model import ResidualNetwork, branch_scale_from_beta

_LOG_HEADROOM = 36.0
"""Natural log by which a carried norm may grow before it is rescaled (float32 squares up to 44)."""
_DEFAULT_MEMORY = 2**28
"""Bytes that the stored derivatives of one block of columns may take."""


@dataclass(frozen=True, eq=False)
class Propagation:
    r"""Norms of hidden states and backward vectors, as natural logarithms.

    Attributes:
        beta: the exponents :math:`\beta`, shape (n_beta,); NaN where only the scale is known.
        branch_scale: :math:`\alpha`, shape (n_beta,).
        layers: the indices k of the recorded layers, increasing, shape (n_layers,).
        log_hidden: :math:`\log(\|h_k\|/\|h_0\|)`, shape (n_beta, n_inputs, n_layers).
        log_hidden_change: :math:`\log(\|h_k-h_0\|/\|h_0\|)`, the same shape (−inf at k = 0).
        log_backward: :math:`\log(\|p_k\|/\|p_L\|)`, the same shape; empty without a backward
            pass.
        log_backward_change: :math:`\log(\|p_k-p_L\|/\|p_L\|)`, the same shape (−inf at k = L).
        hidden_norm: :math:`\|h_0\|`, shape (n_inputs,).
        depth: the number of layers L.
    """

    beta: np.ndarray
    branch_scale: np.ndarray
    layers: np.ndarray
    log_hidden: np.ndarray
    log_hidden_change: np.ndarray
    log_backward: np.ndarray
    log_backward_change: np.ndarray
    hidden_norm: np.ndarray
    depth: int

    @property
    def log_ratios(self) -> dict[str, np.ndarray]:
        r"""The four ratios of R from end to end, as natural logarithms of shape (n_beta, n_inputs).

        ``hidden_change`` is :math:`\|h_L-h_0\|/\|h_0\|`, ``hidden_ratio`` is
        :math:`\|h_L\|/\|h_0\|`, ``gradient_change`` is :math:`\|p_0-p_L\|/\|p_L\|` and
        ``gradient_ratio`` is :math:`\|p_0\|/\|p_L\|`. The gradient's are absent without a
        backward pass.
        """
        ratios = {
            "hidden_change": self.log_hidden_change[..., -1],
            "hidden_ratio": self.log_hidden[..., -1],
        }
        if self.log_backward.size:
            ratios["gradient_change"] = self.log_backward_change[..., 0]
            ratios["gradient_ratio"] = self.log_backward[..., 0]
        return ratios

    def to_frame(self) -> pd.DataFrame:
        """Return one row per exponent, input and layer.

        Returns:
            Columns ``beta, branch_scale, input, layer`` and the recorded natural logarithms.
        """
        n_beta, n_inputs, n_layers = self.log_hidden.shape
        i, j, k = (index.ravel() for index in np.indices((n_beta, n_inputs, n_layers)))
        columns = {
            "beta": self.beta[i],
            "branch_scale": self.branch_scale[i],
            "input": j,
            "layer": self.layers[k],
            "log_hidden": self.log_hidden.ravel(),
            "log_hidden_change": self.log_hidden_change.ravel(),
        }
        if self.log_backward.size:
            columns["log_backward"] = self.log_backward.ravel()
            columns["log_backward_change"] = self.log_backward_change.ravel()
        return pd.DataFrame(columns)

    def summary(self) -> pd.DataFrame:
        """Return the median and quartiles over inputs of each end-to-end ratio, in powers of ten.

        Returns:
            One row per exponent and ratio, columns ``beta, ratio, lower_quartile, median,
            upper_quartile``: log10 of the ratio.
        """
        rows = []
        for name, values in self.log_ratios.items():
            for beta, value in zip(self.beta, values, strict=True):
                # method="lower" would bias; infinities make the default interpolation NaN
                quartiles = np.quantile(value, [0.25, 0.5, 0.75], method="nearest") / math.log(10)
                rows.append((beta, name, *quartiles))
        names = ["beta", "ratio", "lower_quartile", "median", "upper_quartile"]
        return pd.DataFrame(rows, columns=names)


def propagate(
    network: ResidualNetwork,
    inputs: Tensor | np.ndarray,
    *,
    beta: float | Sequence[float] | np.ndarray | None = None,
    layers: Literal["all", "ends"] | Sequence[int] = "all",
    backward: bool = True,
    output_gradient: Tensor | None = None,
    generator: torch.Generator | None = None,
    max_memory: int = _DEFAULT_MEMORY,
) -> Propagation:
    r"""Measure how signal and gradient change across the depth of a residual network.

    The ratios of R: :math:`\|h_k\|/\|h_0\|`, :math:`\|h_k-h_0\|/\|h_0\|`,
    :math:`\|p_k\|/\|p_L\|` and :math:`\|p_k-p_L\|/\|p_L\|`, for all inputs and all exponents
    :math:`\beta` on the same weights. No weight gradient is built. Where :math:`\sigma` is
    positively homogeneous nothing overflows; elsewhere a hidden state that does is recorded
    as +inf.

    Args:
        network: the network; its own branch scale is used if ``beta`` is None.
        inputs: data of shape (n_inputs, in_features), finite and with :math:`Ax \ne 0`.
        beta: one or many exponents, finite.
        layers: which layers to record: "all" (0 … L), "ends" (0 and L) or indices.
        backward: whether to follow the backward vectors too.
        output_gradient: :math:`\partial\,\mathrm{loss}/\partial y` for each input, shape
            (n_inputs, out_features). None: with one output it is 1, since its size does not
            matter to the ratios; with more its direction is drawn, standard normal.
        generator: for that draw; None is torch's default generator.
        max_memory: bytes that stored derivatives may take; more columns are done in blocks.

    Returns:
        The record of all norms.

    Raises:
        TypeError: if ``network`` is not a :class:`ResidualNetwork`.
        ValueError: if inputs have the wrong shape, are not finite or give h_0 = 0; if a
            ``beta``, ``layers`` or ``output_gradient`` is out of range.

    Example:
        >>> import torch
        >>> from scalinglimits.residual import ResidualNetwork, propagate
        >>> seeded = torch.Generator().manual_seed(0)
        >>> network = ResidualNetwork(64, width=40, depth=1000, out_features=1, generator=seeded)
        >>> record = propagate(network, torch.ones(1, 64), beta=[0.25, 0.5, 1.0], layers="ends")
        >>> (record.log_ratios["hidden_change"][:, 0] > 0).tolist()
        [True, False, False]
    """
    if not isinstance(network, ResidualNetwork):
        raise TypeError(f"`network` must be a ResidualNetwork; got {type(network).__name__}")
    x = torch.as_tensor(inputs)
    if x.ndim != 2 or x.shape[1] != network.in_features or not len(x):
        raise ValueError(
            f"`inputs` must have shape (n_inputs, {network.in_features}); got {tuple(x.shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError("`inputs` must be finite; got NaN or infinity in it")
    betas, scales = _exponents(network, beta)
    work = torch.promote_types(network.V.dtype, torch.float32)
    like: dict[str, Any] = {"dtype": work, "device": network.V.device}
    with torch.no_grad():
        h_0 = network.input_weight.to(work) @ x.to(**like).T
        p_L = None
        if backward:
            gradient = _output_gradient(network, len(x), output_gradient, generator, like)
            p_L = network.output_weight.to(work).T @ gradient.T
        return propagate_stacks(
            network.V.detach().to(work),
            None if network.W is None else network.W.detach().to(work),
            h_0,
            p_L,
            branch_scale=scales,
            beta=betas,
            activation=resolve_activation(network.activation),
            layers=layers,
            max_memory=max_memory,
        )


@torch.no_grad()
def propagate_stacks(
    V: Tensor,
    W: Tensor | None,
    h_0: Tensor,
    p_L: Tensor | None,
    *,
    branch_scale: np.ndarray,
    beta: np.ndarray,
    activation: Activation,
    layers: Literal["all", "ends"] | Sequence[int] = "all",
    max_memory: int = _DEFAULT_MEMORY,
) -> Propagation:
    """Propagate through given stacks of weights: what :func:`propagate` does for a network.

    Args:
        V: output weights of the branches, shape (depth, width, width).
        W: inner weights, the same shape, or None for res-1.
        h_0: first hidden states, shape (width, n_inputs), no column zero.
        p_L: last backward vectors, the same shape, or None for no backward pass.
        branch_scale: shape (n_beta,).
        beta: the exponents to record beside the scales, shape (n_beta,).
        activation: of the branch.
        layers: "all", "ends" or indices from 0 to depth.
        max_memory: bytes that stored derivatives may take.

    Returns:
        The record of all norms.

    Raises:
        ValueError: if a start vector is zero or not finite, or ``layers`` is out of range.
    """
    depth, width = V.shape[0], V.shape[1]
    recorded = _layer_indices(layers, depth)
    n_inputs, n_beta = h_0.shape[1], len(branch_scale)
    for name, start in (("inputs", h_0), ("output_gradient", p_L)):
        if start is not None:
            norms = torch.linalg.vector_norm(start, dim=0)
            bad = torch.nonzero(~(torch.isfinite(norms) & (norms > 0)))
            if len(bad):
                raise ValueError(
                    f"`{name}` must give a finite non-zero start vector for each input; "
                    f"got norm {float(norms[bad[0, 0]])} for input {int(bad[0, 0])}"
                )
    # Columns run over the exponents first, then over the inputs.
    columns = torch.arange(n_beta * n_inputs, device=V.device)
    alpha = torch.as_tensor(branch_scale, dtype=V.dtype, device=V.device)[columns // n_inputs]
    derivative_bytes = 1 if activation.slopes is not None else V.element_size()
    per_column = max(1, depth * width * derivative_bytes if p_L is not None else 1)
    block = max(1, max_memory // per_column)
    interval = _rescaling_interval(V, W, branch_scale, activation)
    parts = []
    for c in columns.split(block):
        walk = _Walk(V, W, alpha[c], activation, recorded, interval)
        forward = walk.forward(h_0[:, c % n_inputs], keep_derivatives=p_L is not None)
        backward = () if p_L is None else walk.backward(p_L[:, c % n_inputs])
        parts.append([*forward, *backward])
    logs = [torch.cat(group, dim=-1).T.double().cpu().numpy() for group in zip(*parts, strict=True)]
    logs = [log.reshape(n_beta, n_inputs, len(recorded)) for log in logs]
    empty = np.empty((n_beta, n_inputs, 0))
    return Propagation(
        beta=np.asarray(beta, dtype=np.float64),
        branch_scale=np.asarray(branch_scale, dtype=np.float64),
        layers=np.array(recorded),
        log_hidden=logs[0],
        log_hidden_change=logs[1],
        log_backward=logs[2] if p_L is not None else empty,
        log_backward_change=logs[3] if p_L is not None else empty,
        hidden_norm=torch.linalg.vector_norm(h_0, dim=0).double().cpu().numpy(),
        depth=depth,
    )


class _ScaledState:
    """Columns ``2**exponent · (share · start + change)``, followed without overflow."""

    def __init__(self, start: Tensor) -> None:
        self.norm = torch.linalg.vector_norm(start, dim=0)
        self.start = start / self.norm
        self.change = torch.zeros_like(start)
        self.share = torch.ones_like(self.norm)
        self.exponent = torch.zeros_like(self.norm, dtype=torch.float64)

    def value(self) -> Tensor:
        return torch.addcmul(self.change, self.share, self.start)

    def rescale(self) -> None:
        """Move the power of two of each column's size to its exponent: exact in any format."""
        size = torch.maximum(self.change.abs().amax(0), self.share)
        exponent = torch.frexp(size).exponent
        # Beyond the format's range both count as zero; the sizes come closer at the next call.
        factor = torch.ldexp(torch.ones_like(size), -exponent)
        self.change *= factor
        self.share *= factor
        # Subnormal shares slow the arithmetic down and no longer change the sum.
        self.share = torch.where(self.share < torch.finfo(size.dtype).eps ** 4, 0.0, self.share)
        self.exponent += exponent

    def log_norms(self) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the norms of the state and of its change, over the start's."""
        shift = self.exponent * math.log(2)
        state = torch.linalg.vector_norm(self.value(), dim=0).double().log()
        # The start's share is 2**-exponent, in full precision even where it was flushed.
        return state + shift, torch.linalg.vector_norm(self.change, dim=0).double().log() + shift


class _Walk:
    """One block of columns, forwards and backwards through the stacks."""

    def __init__(
        self,
        V: Tensor,
        W: Tensor | None,
        alpha: Tensor,
        activation: Activation,
        recorded: list[int],
        interval: int | None,
    ) -> None:
        self.V, self.W, self.alpha, self.activation = V, W, alpha, activation
        self.recorded, self.interval = recorded, interval
        self.depth = V.shape[0]
        self.derivatives: Tensor | None = None

    def forward(self, h_0: Tensor, keep_derivatives: bool) -> tuple[Tensor, Tensor]:
        slopes = self.activation.slopes
        state = _ScaledState(h_0)
        if slopes is None:  # the activation sees the true size
            state.start, state.change = h_0, torch.zeros_like(h_0)
        if keep_derivatives:
            kind = torch.bool if slopes is not None else h_0.dtype
            self.derivatives = torch.empty((self.depth, *h_0.shape), dtype=kind, device=h_0.device)
        logs = {0: state.log_norms()} if 0 in self.recorded else {}
        wanted = set(self.recorded)
        for k in range(self.depth):
            h = state.value()
            z = h if self.W is None else self.W[k] @ h
            if self.derivatives is not None:
                if slopes is not None:
                    torch.gt(z, 0, out=self.derivatives[k])
                else:
                    self.derivatives[k] = self.activation.derivative(z)
            a = (
                z.relu_()
                if slopes == (1.0, 0.0) and self.W is not None
                else self.activation.function(z)
            )
            state.change.addcmul_(self.V[k] @ a, self.alpha)
            if slopes is not None and self.interval and (k + 1) % self.interval == 0:
                state.rescale()
            if k + 1 in wanted:
                logs[k + 1] = state.log_norms()
        states, changes = self._stack(logs)
        if slopes is None:  # the start was not of norm one
            log_start = state.norm.double().log()
            return _overflow_to_inf(states - log_start), _overflow_to_inf(changes - log_start)
        return states, changes

    def backward(self, p_L: Tensor) -> tuple[Tensor, Tensor]:
        assert self.derivatives is not None
        slopes = self.activation.slopes
        state = _ScaledState(p_L)
        wanted = set(self.recorded)
        logs = {self.depth: state.log_norms()} if self.depth in wanted else {}
        for k in reversed(range(self.depth)):
            q = self.V[k].T @ state.value()
            if slopes is None or slopes == (1.0, 0.0):
                q *= self.derivatives[k]
            else:
                q = torch.where(self.derivatives[k], slopes[0] * q, slopes[1] * q)
            u = q if self.W is None else self.W[k].T @ q
            state.change.addcmul_(u, self.alpha)
            if self.interval and k % self.interval == 0:
                state.rescale()
            if k in wanted:
                logs[k] = state.log_norms()
        return self._stack(logs)

    def _stack(self, logs: dict[int, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        state, change = zip(*(logs[k] for k in self.recorded), strict=True)
        return torch.stack(state), torch.stack(change)


def _overflow_to_inf(log: Tensor) -> Tensor:
    return torch.where(log.isnan(), torch.inf, log)


def _rescaling_interval(
    V: Tensor, W: Tensor | None, branch_scale: np.ndarray, activation: Activation
) -> int | None:
    """Return after how many layers a state may have grown by the headroom, at the most.

    A layer multiplies the norm by at most 1 + α·lip·‖V‖·‖W‖ (Frobenius norms).
    """
    norms = torch.linalg.vector_norm(V.flatten(1), dim=1).double()
    if W is not None:
        norms = norms * torch.linalg.vector_norm(W.flatten(1), dim=1).double()
    if not bool(torch.isfinite(norms).all()):
        raise ValueError("`network` must have finite weights; got NaN or infinity in V or W")
    if activation.slopes is None:
        return 1
    slope = max(map(abs, activation.slopes))
    growth = 1.0 + float(np.max(branch_scale)) * slope * float(norms.max())
    return max(1, int(_LOG_HEADROOM / math.log(growth))) if growth > 1.0 else None


def _exponents(
    network: ResidualNetwork, beta: float | Sequence[float] | np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    if beta is None:
        return np.array([network.beta]), np.array([network.branch_scale])
    betas = np.atleast_1d(np.asarray(beta, dtype=np.float64))
    if betas.ndim != 1 or not len(betas) or not np.isfinite(betas).all():
        raise ValueError(f"`beta` must be one or many finite numbers; got {beta!r}")
    return betas, np.array([branch_scale_from_beta(b, network.depth) for b in betas])


def _output_gradient(
    network: ResidualNetwork,
    n_inputs: int,
    output_gradient: Tensor | None,
    generator: torch.Generator | None,
    like: dict[str, Any],
) -> Tensor:
    shape = (n_inputs, network.out_features)
    if output_gradient is None:
        if network.out_features == 1:
            return torch.ones(shape, **like)
        device = like["device"] if generator is None else generator.device
        drawn = torch.randn(shape, generator=generator, dtype=like["dtype"], device=device)
        return drawn.to(like["device"])
    gradient = torch.as_tensor(output_gradient).to(**like)
    if gradient.shape != shape:
        raise ValueError(f"`output_gradient` must have shape {shape}; got {tuple(gradient.shape)}")
    return gradient


def _layer_indices(layers: Literal["all", "ends"] | Sequence[int], depth: int) -> list[int]:
    if isinstance(layers, str):
        if layers not in ("all", "ends"):
            raise ValueError(f"`layers` must be 'all', 'ends' or indices; got {layers!r}")
        return list(range(depth + 1)) if layers == "all" else [0, depth]
    indices = sorted({int(k) for k in layers} | {0, depth})
    if indices[0] < 0 or indices[-1] > depth:
        raise ValueError(f"`layers` must lie between 0 and the depth {depth}; got {layers!r}")
    return indices
