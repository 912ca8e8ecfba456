r"""Fractional Gaussian noise and fractional Brownian motion, exactly and in batches.

Fractional Brownian motion :math:`B^H` with Hurst index :math:`H \in (0, 1)` is the Gaussian
process with :math:`B^H_0 = 0` and :math:`E(B^H_t - B^H_s)^2 = |t-s|^{2H}`. Its increments over
unit steps, fractional Gaussian noise, are stationary with variance 1 and autocovariance

.. math:: \gamma(k) = \tfrac12\bigl(|k+1|^{2H} - 2|k|^{2H} + |k-1|^{2H}\bigr).

They are independent at :math:`H = \tfrac12`, positively correlated above and negatively below:
:math:`\gamma(1) = 2^{2H-1} - 1`.

Sampling embeds the covariance of :math:`n` values in a circulant of size :math:`2n'`,
:math:`n' \ge n`, with first row
:math:`\gamma(0), …, \gamma(n'-1), \gamma(n'), \gamma(n'-1), …, \gamma(1)`. Its eigenvalues are
non-negative for every :math:`H` and :math:`n'` (Dietrich and Newsam 1997 for
:math:`H \ge \tfrac12`, where :math:`\gamma` is convex and decreasing; Craigmile 2003 for
:math:`H < \tfrac12`, where :math:`\gamma(k) < 0` for :math:`k \ge 1`), so the law is exact. With
0 in place of the middle entry they are not.

Reference:
    "Scaling ResNets in the Large-depth Regime", section 4.1: weights that are, across depth,
    increments of fractional Brownian motion.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy import fft

from scalinglimits.laws._circulant import (
    circulant_eigenvalues,
    draw_paths,
    draw_white,
    mode_amplitudes,
)
from scalinglimits.laws._random import Array, Device, DType, Generator, open_source
from scalinglimits.laws._validate import check_count, check_hurst, check_positive, check_shape

__all__ = ["fgn_autocovariance", "fractional_brownian_motion", "fractional_gaussian_noise"]

# From this lag on, 8 terms of the large-lag series reach double precision: 16^-16 = 5e-20.
_SHORT_SERIES_LAG = 16
# At lag 2 the series' terms fall by a factor above 4 each: 4^-30 = 9e-19.
_LONG_SERIES_TERMS = 30
_SHORT_SERIES_TERMS = 8


def fgn_autocovariance(n: int, hurst: float) -> np.ndarray:
    r"""Return the autocovariance of fractional Gaussian noise at lags 0, …, n-1.

    Beyond lag 1 the second difference is summed as its series

    .. math:: \gamma(k) = k^{2H}\sum_{j\ge1}\binom{2H}{2j}k^{-2j},

    whose terms all have one sign, so every lag has full relative precision: no digits cancel,
    as they do in the closed formula at large lags or near :math:`H = \tfrac12`.

    Args:
        n: The number of lags, at least 1.
        hurst: The Hurst index, strictly between 0 and 1.

    Returns:
        :math:`\gamma(0), …, \gamma(n-1)` in float64, of shape (n,).

    Raises:
        TypeError: If ``n`` is not an integer or ``hurst`` not a real number.
        ValueError: If ``n`` is below 1 or ``hurst`` outside (0, 1).

    Example:
        >>> fgn_autocovariance(3, 0.75).round(6).tolist()
        [1.0, 0.414214, 0.269649]
    """
    n, hurst = check_count("n", n), check_hurst(hurst)
    gamma = np.empty(n)
    gamma[0] = 1.0
    if n > 1:
        gamma[1] = np.expm1((2.0 * hurst - 1.0) * np.log(2.0))
    split = min(n, _SHORT_SERIES_LAG)
    gamma[2:split] = _large_lag_series(2, split, hurst, _LONG_SERIES_TERMS)
    gamma[split:] = _large_lag_series(split, n, hurst, _SHORT_SERIES_TERMS)
    return gamma


def fractional_gaussian_noise(
    n: int,
    hurst: float,
    size: int | tuple[int, ...] = (),
    *,
    generator: Generator = None,
    dtype: DType = None,
    device: Device = None,
    axis: int = -1,
) -> Array:
    r"""Draw independent paths of fractional Gaussian noise, of exact law.

    Each path takes its own stretch of the random stream: drawing ``size=a`` and then ``size=b``
    gives bitwise the paths of ``size=a+b`` (NumPy generators and PyTorch CPU generators; a
    generator on an accelerator gives no such promise).

    Args:
        n: Steps of a path, at least 1.
        hurst: The Hurst index, strictly between 0 and 1.
        size: The shape of the collection of paths; the default is a single path.
        generator: A ``numpy.random.Generator`` gives an array, a ``torch.Generator`` a tensor;
            None is PyTorch's default generator of ``device``.
        dtype: A floating-point type of that framework; None for its default. The spectrum is
            computed in float64 whatever the type.
        device: Where a tensor is delivered; None for the generator's device. A CPU generator
            gives the same values on every device.
        axis: Where time goes: -1 (last) or 0 (first). Both results are contiguous.

    Returns:
        Paths of shape ``(*size, n)``, or ``(n, *size)`` for ``axis=0``, each value of variance 1.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If ``n`` is below 1, ``hurst`` outside (0, 1) or ``axis`` not -1 or 0.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> noise = fractional_gaussian_noise(500, 0.9, size=(40, 40), generator=rng)
        >>> noise.shape
        (40, 40, 500)
        >>> bool(np.mean(noise[..., 1:] * noise[..., :-1]) > 0.7)  # 2^0.8 - 1 = 0.741
        True
    """
    n, hurst, shape = check_count("n", n), check_hurst(hurst), check_shape("size", size)
    time_first = _time_first(axis)
    source = open_source(generator, dtype, device)
    if n == 1 or hurst == 0.5:
        return source.deliver(draw_white(n, shape, source, time_first=time_first))
    amplitudes = _fgn_amplitudes(n, hurst)
    return source.deliver(draw_paths(amplitudes, n, shape, source, time_first=time_first))


def fractional_brownian_motion(
    n: int,
    hurst: float,
    size: int | tuple[int, ...] = (),
    *,
    horizon: float | None = None,
    generator: Generator = None,
    dtype: DType = None,
    device: Device = None,
    axis: int = -1,
) -> Array:
    r"""Draw independent paths of fractional Brownian motion at n + 1 equidistant times.

    The times are :math:`0, T/n, …, T`, the first value is 0, and the increments are fractional
    Gaussian noise times :math:`(T/n)^H`.

    Args:
        n: Steps of a path, at least 1.
        hurst: The Hurst index, strictly between 0 and 1.
        size: The shape of the collection of paths; the default is a single path.
        horizon: The last time :math:`T`; None for unit steps, :math:`T = n`.
        generator: As for `fractional_gaussian_noise`.
        dtype: As for `fractional_gaussian_noise`. Sums are taken in float64.
        device: As for `fractional_gaussian_noise`.
        axis: Where time goes: -1 (last) or 0 (first).

    Returns:
        Paths of shape ``(*size, n + 1)``, or ``(n + 1, *size)`` for ``axis=0``.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If ``n`` is below 1, ``hurst`` outside (0, 1), ``horizon`` not positive or
            ``axis`` not -1 or 0.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> path = fractional_brownian_motion(1000, 0.2, horizon=1.0, generator=rng)
        >>> path.shape, float(path[0])
        ((1001,), 0.0)
    """
    n, hurst, shape = check_count("n", n), check_hurst(hurst), check_shape("size", size)
    step = 1.0 if horizon is None else check_positive("horizon", horizon) / n
    time_first = _time_first(axis)
    source = open_source(generator, dtype, device)
    if n == 1 or hurst == 0.5:
        paths = draw_white(
            n, shape, source, time_first=time_first, cumulative=True, scale=step**hurst
        )
    else:
        paths = draw_paths(
            _fgn_amplitudes(n, hurst), n, shape, source,
            time_first=time_first, cumulative=True, scale=step**hurst,
        )  # fmt: skip
    return source.deliver(paths)


@functools.lru_cache(maxsize=8)
def _fgn_amplitudes(n: int, hurst: float) -> np.ndarray:
    half = fft.next_fast_len(n, real=True)
    amplitudes = mode_amplitudes(circulant_eigenvalues(fgn_autocovariance(half + 1, hurst)))
    amplitudes.setflags(write=False)
    return amplitudes


def _large_lag_series(start: int, stop: int, hurst: float, terms: int) -> np.ndarray:
    """Return the autocovariance at lags start, …, stop - 1, all of them at least 2."""
    lags = np.arange(start, stop, dtype=np.float64)
    coefficients = [hurst * (2.0 * hurst - 1.0)]  # binom(2H, 2), then binom(2H, 2j)
    for j in range(2, terms + 1):
        ratio = (2.0 * hurst - 2 * j + 2) * (2.0 * hurst - 2 * j + 1) / ((2 * j - 1) * (2 * j))
        coefficients.append(coefficients[-1] * ratio)
    inverse_square = lags**-2
    total = np.zeros_like(lags)
    for coefficient in reversed(coefficients):
        total *= inverse_square
        total += coefficient
    result: np.ndarray = total * lags ** (2.0 * hurst - 2.0)
    return result


def _time_first(axis: int) -> bool:
    if isinstance(axis, bool) or axis not in (-1, 0):
        raise ValueError(f"`axis` must be -1 or 0; got {axis!r}")
    return axis == 0
