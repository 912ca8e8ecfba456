r"""Norms of the signal and of the gradient across the depth of a residual network.

Notation of R: hidden states :math:`h_k`, backward vectors
:math:`p_k = \partial\,\mathrm{loss} / \partial h_k`, branch scale :math:`\alpha = L^{-\beta}`,

.. math::

    h_{k+1} = h_k + \alpha V_{k+1}\, g(h_k, W_{k+1}), \qquad
    p_k = p_{k+1} + \alpha \Bigl(\frac{\partial g}{\partial h}\Bigr)^{\!\top} V_{k+1}^\top p_{k+1}.

How they are followed without overflow or loss of digits is told in the module ``_walk``.
"""

from __future__ import annotations

__all__ = ["Propagation", "propagate", "propagate_stacks"]

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from scalinglimits.residual._walk import Walk, column_norms, plan
from scalinglimits.residual.activations import Activation, resolve_activation
from scalinglimits.residual.model import ResidualNetwork, branch_scale_from_beta

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
    as +inf, and so are the gradients before it.

    Args:
        network: the network; its own branch scale is used if ``beta`` is None.
        inputs: data of shape (n_inputs, in_features), finite and with :math:`Ax \ne 0`.
        beta: one or many exponents, finite.
        layers: which layers to record: "all" (0 … L), "ends" (0 and L) or indices, to which the
            two ends are added.
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
        ValueError: if the shapes do not fit, a start vector is zero or not finite, or ``layers``
            is out of range.
    """
    depth, width = V.shape[0], V.shape[-1]
    shapes = {"V": (V, (depth, width, width)), "W": (W, tuple(V.shape))}
    shapes |= {"h_0": (h_0, (width, h_0.shape[-1])), "p_L": (p_L, tuple(h_0.shape))}
    for name, (tensor, shape) in shapes.items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"`{name}` must have shape {shape}; got {tuple(tensor.shape)}")
    recorded = _layer_indices(layers, depth)
    n_inputs, n_beta = h_0.shape[1], len(branch_scale)
    for name, start in (("inputs", h_0), ("output_gradient", p_L)):
        if start is not None:
            norms = column_norms(start)
            bad = torch.nonzero(~(torch.isfinite(norms) & (norms > 0)))
            if len(bad):
                raise ValueError(
                    f"`{name}` must give a finite non-zero start vector for each input; "
                    f"got norm {float(norms[bad[0, 0]])} for input {int(bad[0, 0])}"
                )
    # Columns run over the exponents first, then over the inputs.
    columns = torch.arange(n_beta * n_inputs, device=V.device)
    dtype, interval = plan(V, W, branch_scale, activation)
    V, W = V.to(dtype), None if W is None else W.to(dtype)
    h_0, p_L = h_0.to(dtype), None if p_L is None else p_L.to(dtype)
    alpha = torch.as_tensor(branch_scale, dtype=dtype, device=V.device)[columns // n_inputs]
    derivative_bytes = 1 if activation.slopes is not None else V.element_size()
    per_column = max(1, depth * width * derivative_bytes if p_L is not None else 1)
    block = max(1, max_memory // per_column)
    parts = []
    for c in columns.split(block):
        walk = Walk(V, W, alpha[c], activation, recorded, interval)
        forward = walk.forward(h_0[:, c % n_inputs], keep_derivatives=p_L is not None)
        backward = () if p_L is None else walk.backward(p_L[:, c % n_inputs])
        parts.append([*forward, *backward])
    logs = [torch.cat(group, dim=-1).T.cpu().numpy() for group in zip(*parts, strict=True)]
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
        hidden_norm=column_norms(h_0).cpu().numpy(),
        depth=depth,
    )


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
    try:
        indices = sorted({operator.index(k) for k in layers} | {0, depth})
    except TypeError:
        raise ValueError(f"`layers` must be 'all', 'ends' or indices; got {layers!r}") from None
    if indices[0] < 0 or indices[-1] > depth:
        raise ValueError(f"`layers` must lie between 0 and the depth {depth}; got {layers!r}")
    return indices
