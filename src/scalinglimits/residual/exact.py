r"""Exact law of the norm ratio of a residual network with Gaussian weights, and its limit.

Notation: width :math:`d`, depth :math:`L`, branch scale :math:`\alpha`, a branch
:math:`V\sigma(Wh)` whose weights are independent Gaussian of variance :math:`1/d` and whose
:math:`\sigma(x) = a_+x_+ - a_-(-x)_+` is positively homogeneous (res-3: slopes (1, 0)).

Given :math:`h_k`, the vector :math:`Wh_k` is :math:`N(0, \|h_k\|^2/d)` and :math:`V` is
rotation invariant. So the direction of :math:`h_k` does not matter, and

.. math::

    \frac{\|h_{k+1}\|^2}{\|h_k\|^2}
        = \Bigl(1 + \frac{\alpha r z}{\sqrt d}\Bigr)^{2} + \frac{\alpha^2 r^2 q}{d}, \qquad
    r^2 = \frac{a_+^2 \chi^2_n + a_-^2 \chi^2_{d-n}}{d},

with :math:`n \sim \mathrm{Binomial}(d, \tfrac12)`, :math:`z \sim N(0,1)` and
:math:`q \sim \chi^2_{d-1}` independent. The factors of different layers are independent:
:math:`\log\|h_k\|` is a random walk, and as :math:`L \to \infty` with :math:`L\alpha^2 = T` it
tends to a Gaussian, :math:`\log(\|h_L\|/\|h_0\|) \to N(cT(1-2/d)/2,\; cT/d)` with
:math:`c = E r^2 = (a_+^2 + a_-^2)/2`. This answers the question left open after R, Corollary 4.
"""

from __future__ import annotations

__all__ = ["limit_norm_law", "norm_ratio_samples"]

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import stats
from torch import Tensor

from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.model import branch_activation, branch_scale_from_beta

_BLOCK = 256
"""Replicates of one stream: results do not depend on how many threads share the blocks."""
_STEPS = 64
"""Layers drawn at once, so that a block stays in the cache."""


def norm_ratio_samples(
    width: int,
    depth: int,
    beta: float,
    replicates: int,
    *,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    log: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
) -> np.ndarray:
    r"""Sample :math:`\|h_L\|/\|h_0\|` exactly, without building a network.

    .. math::

        \log\frac{\|h_L\|}{\|h_0\|} = \frac12\sum_{k=0}^{L-1}
        \log\Bigl[\Bigl(1+\frac{\alpha r_k z_k}{\sqrt d}\Bigr)^2+\frac{\alpha^2r_k^2q_k}{d}\Bigr]

    The cost of a layer does not depend on the width.

    Args:
        width: size :math:`d` of the hidden states.
        depth: number :math:`L` of layers.
        beta: scaling exponent, :math:`\alpha = L^{-\beta}`.
        replicates: how many independent networks.
        branch: "res-3", or "res-2" with a positively homogeneous activation. (In res-1 the law
            depends on the direction of the hidden state.)
        activation: of res-2.
        log: return natural logarithms, which do not overflow.
        seed: of the draw; the result does not depend on ``n_jobs``.
        n_jobs: threads; None takes all cores.

    Returns:
        Ratios, or their logarithms, float64 of shape (replicates,).

    Raises:
        ValueError: if a size is not a positive integer, ``beta`` is not finite, the branch is
            not res-2 or res-3, the activation is not positively homogeneous, or ``n_jobs`` is
            not a positive integer.

    Example:
        >>> from scalinglimits.residual import norm_ratio_samples
        >>> ratios = norm_ratio_samples(100, 1000, 0.5, 2000)
        >>> 1.2 < float(np.quantile(ratios, 0.25)) < 1.24
        True
    """
    width = positive_integer("width", width)
    depth = positive_integer("depth", depth)
    replicates = positive_integer("replicates", replicates)
    slopes = _homogeneous_slopes(branch, activation)
    alpha = branch_scale_from_beta(beta, depth)
    threads = (os.cpu_count() or 1) if n_jobs is None else positive_integer("n_jobs", n_jobs)
    counts = [min(_BLOCK, replicates - start) for start in range(0, replicates, _BLOCK)]
    streams = np.random.SeedSequence(seed).spawn(len(counts))
    with ThreadPoolExecutor(threads) as pool:
        blocks = pool.map(
            lambda part: _log_ratio_block(width, depth, alpha, slopes, *part),
            zip(counts, streams, strict=True),
        )
        logs = np.concatenate(list(blocks))
    return logs if log else np.exp(logs)


def limit_norm_law(
    width: int,
    *,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    horizon: float = 1.0,
) -> stats.rv_continuous:
    r"""Return the limit law of :math:`\|h_L\|/\|h_0\|` at large depth, a log-normal one.

    .. math::

        \log\frac{\|h_L\|}{\|h_0\|} \longrightarrow
        N\Bigl(\frac{cT}{2}\Bigl(1-\frac2d\Bigr),\; \frac{cT}{d}\Bigr), \qquad
        T = L\alpha^2, \quad c = \frac{a_+^2+a_-^2}{2}

    Args:
        width: size :math:`d` of the hidden states.
        branch: "res-3" or "res-2".
        activation: of res-2, positively homogeneous.
        horizon: :math:`T`; 1 at :math:`\beta = ½`.

    Returns:
        A frozen ``scipy.stats.lognorm``.

    Raises:
        ValueError: if the width is not a positive integer, the horizon not positive, or the
            branch has no such limit.

    Example:
        >>> from scalinglimits.residual import limit_norm_law
        >>> [round(float(q), 3) for q in limit_norm_law(100).ppf([0.25, 0.75])]
        [1.218, 1.34]
    """
    width = positive_integer("width", width)
    if not (math.isfinite(horizon) and horizon > 0):
        raise ValueError(f"`horizon` must be a positive finite number; got {horizon!r}")
    positive, negative = _homogeneous_slopes(branch, activation)
    c = (positive**2 + negative**2) / 2
    mean, variance = c * horizon * (1 - 2 / width) / 2, c * horizon / width
    return stats.lognorm(s=math.sqrt(variance), scale=math.exp(mean))


def _homogeneous_slopes(
    branch: str, activation: str | Callable[[Tensor], Tensor] | None
) -> tuple[float, float]:
    if branch not in ("res-2", "res-3"):
        raise ValueError(f"`branch` must be 'res-2' or 'res-3'; got {branch!r}")
    slopes = resolve_activation(branch_activation(branch, activation)).slopes
    if slopes is None:
        raise ValueError(f"`activation` must be positively homogeneous; got {activation!r}")
    return slopes


def _log_ratio_block(
    width: int,
    depth: int,
    alpha: float,
    slopes: tuple[float, float],
    count: int,
    stream: np.random.SeedSequence,
) -> np.ndarray:
    """Return the log-ratios of ``count`` chains: sums over layers of independent log-factors."""
    rng = np.random.Generator(np.random.SFC64(stream))
    positive, negative = slopes[0] ** 2, slopes[1] ** 2
    total = np.zeros(count)
    for start in range(0, depth, _STEPS):
        shape = (min(_STEPS, depth - start), count)
        if positive == negative:
            r_squared = positive * rng.chisquare(width, shape) / width
        else:
            n = rng.binomial(width, 0.5, shape)
            # χ²_n = 2 Γ(n/2), and Γ(0) is 0
            r_squared = positive * 2 * rng.standard_gamma(n / 2)
            if negative:
                r_squared += negative * 2 * rng.standard_gamma((width - n) / 2)
            r_squared /= width
        # α² r²/d, of which both terms of the factor are made
        s = alpha**2 * r_squared / width
        along = np.sqrt(s) * rng.standard_normal(shape)
        across = s * (2 * rng.standard_gamma((width - 1) / 2, shape))
        factor = along * (2 + along) + across
        shrunk = factor < -0.5
        logs = np.log1p(np.where(shrunk, 0.0, factor))
        if shrunk.any():  # there 1 + α r z/√d cancels, and log1p of it would too
            logs[shrunk] = np.log((1 + along[shrunk]) ** 2 + across[shrunk])
        total += logs.sum(axis=0)
    return total / 2
