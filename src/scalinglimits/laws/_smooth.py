r"""A stationary Gaussian process with squared-exponential kernel, on an equidistant grid.

Kernel :math:`\kappa(t) = e^{-t^2/(2\ell^2)}`, times :math:`k/L`. Repeating the kernel with
period :math:`P = 1 + c\,\ell` changes no lag in [0, 1] by more than :math:`e^{-c^2/2}`, which is
below double precision at :math:`c = 8.7`, and the repeated kernel has a Fourier series with
positive coefficients (Poisson summation),

.. math::
    \sum_m \kappa(t + mP) = \frac1P \sum_j \hat\kappa(\omega_j)\cos\omega_j t, \qquad
    \omega_j = \frac{2\pi j}{P}, \quad \hat\kappa(\omega) = \ell\sqrt{2\pi}\,e^{-\omega^2\ell^2/2}.

So the process is a sum of a constant, cosines and sines with independent normal factors, about
:math:`2.5/\ell + 21` of them before they fall below double precision. A short sum is a matrix
product; a long one is an FFT on a grid of period at least :math:`P`.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import fft

from scalinglimits.laws._circulant import circulant_eigenvalues, mode_amplitudes

__all__ = ["grid_amplitudes", "increment_autocovariance", "value_autocovariance", "wave_factor"]

_IMAGE_DISTANCE = 8.7
"""The distance c of the nearest image of the kernel, in length scales: e^(-c^2/2) = 4e-17."""
_CUTOFF = 8.5
"""Waves of frequency above this over the length scale weigh less than e^(-36) = 2e-16."""
_MOST_WAVES = 160
"""Above this many waves the FFT is faster than the matrix product."""


def value_autocovariance(depth: int, length_scale: float) -> np.ndarray:
    """Return the kernel at lags 0, 1/depth, …, (depth - 1)/depth.

    Args:
        depth: The number of times.
        length_scale: The kernel's length scale, in units of the whole depth.

    Returns:
        Autocovariances in float64, of shape (depth,).
    """
    lags = np.arange(depth) / (depth * length_scale)
    result: np.ndarray = np.exp(-0.5 * lags**2)
    return result


def increment_autocovariance(depth: int, length_scale: float) -> np.ndarray:
    r"""Return the autocorrelation of the process's increments over steps 1/depth.

    With :math:`a = L\ell` and :math:`\kappa_j = e^{-j^2/(2a^2)}`, the second difference
    :math:`2\kappa_j - \kappa_{j+1} - \kappa_{j-1}` over :math:`2 - 2\kappa_1` is written as

    .. math::
        \kappa_j\,\frac{(1-e^{-u})\cosh(2uj) - 2\sinh^2(uj)}{1 - e^{-u}},
        \qquad u = \frac{1}{2a^2},

    which keeps its digits when :math:`a` is large.

    Args:
        depth: The number of increments.
        length_scale: The kernel's length scale, in units of the whole depth.

    Returns:
        Autocorrelations in float64, of shape (depth,).
    """
    lags = np.arange(depth, dtype=np.float64)
    steps = depth * length_scale
    if steps < 4.0:  # no digits to lose, and the hyperbolic functions could overflow
        kernel = np.exp(-0.5 * (np.arange(-1, depth + 1) / steps) ** 2)
        difference = 2.0 * kernel[1:-1] - kernel[2:] - kernel[:-2]
        direct: np.ndarray = difference / difference[0]
        return direct
    result = np.zeros(depth)
    near = lags < 40.0 * steps  # beyond, the kernel is e^-800 and underflows
    rate = 0.5 / steps**2
    drop = -np.expm1(-rate)
    x = rate * lags[near]
    kernel = np.exp(-x * lags[near])
    result[near] = kernel * (np.cosh(2.0 * x) - 2.0 * np.sinh(x) ** 2 / drop)
    return result


@functools.lru_cache(maxsize=8)
def wave_factor(depth: int, length_scale: float, increments: bool) -> np.ndarray | None:
    """Return the process as a matrix acting on independent normal numbers, if that is short.

    Args:
        depth: The number of times.
        length_scale: The kernel's length scale, in units of the whole depth.
        increments: Whether the process is that of normalised increments rather than values.

    Returns:
        A matrix of shape (depth, waves) in float64 whose rows have norm 1; None if it takes so
        many waves that the FFT of `grid_amplitudes` is the better way.
    """
    period = 1.0 + _IMAGE_DISTANCE * length_scale
    count = math.ceil(_CUTOFF * period / (2.0 * math.pi * length_scale))
    if 2 * count + 1 > _MOST_WAVES:
        return None
    frequencies = 2.0 * math.pi * np.arange(count + 1) / period
    weights = np.exp(-0.25 * (frequencies * length_scale) ** 2)
    weights[1:] *= math.sqrt(2.0)
    if increments:
        # e^{iw(t+h)} - e^{iwt} = 2i sin(wh/2) e^{iw(t+h/2)}: again waves, with these lengths.
        weights *= 2.0 * np.sin(0.5 * frequencies / depth)
    weights /= np.linalg.norm(weights)
    phases = np.outer(np.arange(depth) / depth, frequencies)
    factor = np.concatenate([np.cos(phases) * weights, np.sin(phases[:, 1:]) * weights[1:]], axis=1)
    factor.setflags(write=False)
    return factor


@functools.lru_cache(maxsize=8)
def grid_amplitudes(depth: int, length_scale: float, increments: bool) -> np.ndarray:
    """Return the amplitudes of the circulant that embeds the process on its grid.

    Args:
        depth: The number of times.
        length_scale: The kernel's length scale, in units of the whole depth.
        increments: Whether the process is that of normalised increments rather than values.

    Returns:
        Amplitudes for `draw_paths`, in float64.
    """
    half = fft.next_fast_len(
        math.ceil(0.5 * depth * (1.0 + _IMAGE_DISTANCE * length_scale)) + 2, real=True
    )
    steps = depth * length_scale
    lags = np.arange(half + 1)
    if steps >= 1.0:
        # Poisson summation on the grid: frequencies that differ by 2 pi are one.
        waves = np.pi * lags / half
        spectrum = sum(np.exp(-0.5 * (steps * (waves + 2.0 * np.pi * m)) ** 2) for m in (0, -1, 1))
    else:
        row = np.exp(-0.5 * (lags / steps) ** 2) + np.exp(-0.5 * ((2 * half - lags) / steps) ** 2)
        spectrum = circulant_eigenvalues(row)
    eigenvalues = np.maximum(spectrum, 0.0)
    if increments:
        eigenvalues *= np.sin(0.5 * np.pi * lags / half) ** 2
    # The variance is the mean of all eigenvalues, of which the inner ones come twice.
    mean = (eigenvalues[0] + 2.0 * np.sum(eigenvalues[1:-1]) + eigenvalues[-1]) / (2 * half)
    amplitudes = mode_amplitudes(eigenvalues / mean)
    amplitudes.setflags(write=False)
    return amplitudes
