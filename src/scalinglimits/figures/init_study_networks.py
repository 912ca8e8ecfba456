r"""The networks of the study of averages: widths that alternate, and what their signal must do.

All have an input matrix, an even number of hidden matrices between a start width and a middle
width, and a readout; no biases. With :math:`\phi` the ReLU and :math:`N` a normalisation without
parameters, or nothing:

=========  ======================================================================================
kind       hidden layers
=========  ======================================================================================
chain      :math:`h \leftarrow \phi(N(W h))` for every matrix, the input matrix included
ffn        :math:`h \leftarrow W_2\,\phi(W_1 N(h))` for every pair
residual   :math:`h \leftarrow h + W_2\,\phi(W_1 N(h))` for every pair
=========  ======================================================================================

The readout acts on :math:`h` in a chain and on :math:`N(h)` otherwise. Hidden matrices have
variance gain² / average of the fans, where the gain counts only ahead of a ReLU. Input and readout
are the same in every mode: variance gain²/fan_in with gain :math:`\sqrt2` ahead of a ReLU.

Reference:
    Su, "Rethinking the dimension-averaging strategy for non-square matrices in initialization".
"""

from __future__ import annotations

__all__ = ["ARCHITECTURES", "NORMS", "Architecture", "MatrixShape", "predicted_gains"]

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from scalinglimits.laws.fans import average_fan

NORMS = ("none", "layer", "rms")
"""No normalisation; to mean 0 and variance 1; to second moment 1."""


@dataclass(frozen=True)
class MatrixShape:
    """One weight matrix of a network.

    Attributes:
        fan_in: number of inputs.
        fan_out: number of outputs.
        has_relu: whether its outputs pass a ReLU.
        is_hidden: whether the mode and the gain apply to it.
    """

    fan_in: int
    fan_out: int
    has_relu: bool
    is_hidden: bool

    def variance(self, mode: str, gain: float) -> float:
        """Return the variance of its entries.

        Args:
            mode: average of the fans.
            gain: ahead of a ReLU.

        Returns:
            gain²/N for a hidden matrix, the fixed variance for the others.
        """
        if not self.is_hidden:
            return (2.0 if self.has_relu else 1.0) / self.fan_in
        scale = gain**2 if self.has_relu else 1.0
        return scale / average_fan(self.fan_in, self.fan_out, mode)


@dataclass(frozen=True)
class Architecture:
    """A family of networks, one for each even depth.

    Attributes:
        kind: "chain", "ffn" or "residual".
        start: width at the start and the end of each pair of hidden matrices.
        middle: width between them.
    """

    kind: str
    start: int
    middle: int

    def matrices(self, depth: int, inputs: int, classes: int) -> tuple[MatrixShape, ...]:
        """List the weight matrices, from input to readout.

        Args:
            depth: number of matrices, even, at least 4.
            inputs: number of features.
            classes: number of outputs.

        Returns:
            The matrices.

        Raises:
            ValueError: if the depth is odd or less than 4.
        """
        if depth < 4 or depth % 2:
            raise ValueError(f"`depth` must be an even number of at least 4; got {depth}")
        chain = self.kind == "chain"
        pair = (
            MatrixShape(self.start, self.middle, True, True),
            MatrixShape(self.middle, self.start, chain, True),
        )
        return (
            MatrixShape(inputs, self.start, chain, False),
            *(pair * ((depth - 2) // 2)),
            MatrixShape(self.start, classes, False, False),
        )


ARCHITECTURES = {
    "expand-2": Architecture("chain", 32, 64),
    "expand-4": Architecture("chain", 24, 96),
    "expand-8": Architecture("chain", 16, 128),
    "bottleneck-4": Architecture("chain", 96, 24),
    "ffn-4": Architecture("ffn", 24, 96),
    "residual-4": Architecture("residual", 24, 96),
}
"""By name: the number is the ratio of the wide to the narrow width."""


def predicted_gains(
    architecture: Architecture, depth: int, norm: str, mode: str, gain: float
) -> dict[str, float]:
    r"""Predict how second moments change from the first hidden state to the last, and back.

    Without normalisation, a matrix of variance :math:`t` and the ReLU after it multiply the
    second moment by :math:`mt/2` forward and :math:`nt/2` backward, so that a pair gives the
    branch gain :math:`b`; a chain gives :math:`b^K` over :math:`K` pairs, residual blocks
    :math:`(1+b)^K`. With normalisation the second moment of a chain is the same everywhere, that
    of the residual stream grows to :math:`1 + Kb`, and the gradient's in the same ratio.

    That is the mean over draws. The product of many layers of finite width is skewed, and its
    typical value lies below its mean: for a chain and an FFN stack without normalisation
    :math:`\lVert\phi(Wh)\rVert^2 = t\lVert h\rVert^2\chi^2_k` with
    :math:`k \sim \mathrm{Binomial}(n, ½)`, so the mean of its logarithm is exact.

    Args:
        architecture: the family.
        depth: number of matrices.
        norm: one of `NORMS`.
        mode: average of the fans.
        gain: of the matrices ahead of a ReLU.

    Returns:
        ``forward_predicted`` and ``backward_predicted``, natural logarithms of the ratios of the
        mean second moments, and ``forward_typical``, the mean of the logarithm (NaN where it is
        not known).

    Example:
        >>> gains = predicted_gains(ARCHITECTURES["expand-4"], 64, "none", "fan_avg", 2**0.5)
        >>> f"{math.exp(gains['forward_predicted']):.1e}"  # 0.64 for each of 31 pairs
        '9.8e-07'
    """
    first, second = architecture.matrices(depth, 1, 1)[1:3]
    pairs = (depth - 2) // 2
    t1, t2 = first.variance(mode, gain), second.variance(mode, gain)
    relus = 2.0 if second.has_relu else 1.0
    branch = (first.fan_in * t1) * (second.fan_in * t2) * 0.5**relus
    typical = math.nan
    if norm != "none":
        mean = {
            "chain": 0.0,
            "ffn": math.log(branch),
            "residual": math.log1p(pairs * branch),
        }[architecture.kind]
    elif architecture.kind == "residual":
        mean = pairs * math.log1p(branch)
    else:
        mean = pairs * math.log(branch)
        logs = [
            math.log(matrix.variance(mode, gain)) + _mean_log_norm(matrix)
            for matrix in (first, second)
        ]
        typical = pairs * sum(logs)
    return {"forward_predicted": mean, "backward_predicted": mean, "forward_typical": typical}


def _mean_log_norm(matrix: MatrixShape) -> float:
    """E log χ²_k, k the number of outputs that the ReLU lets pass; not all of them are zero."""
    if not matrix.has_relu:
        return float(special.digamma(matrix.fan_out / 2) + math.log(2))
    k = np.arange(1, matrix.fan_out + 1)
    weights = stats.binom.pmf(k, matrix.fan_out, 0.5)
    return float(weights @ (special.digamma(k / 2) + math.log(2)) / weights.sum())
