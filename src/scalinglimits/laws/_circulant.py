r"""Stationary Gaussian paths from the spectrum of a circulant covariance, exactly.

Let a real symmetric circulant of even size :math:`N` have non-negative eigenvalues
:math:`\lambda_0, …, \lambda_{N/2}` (the others repeat them). With :math:`z_0, …, z_{N-1}`
independent standard normal numbers,

.. math::
    x_j = \sqrt{\tfrac{\lambda_0}{N}}\,z_0 + (-1)^j\sqrt{\tfrac{\lambda_{N/2}}{N}}\,z_1
        + \sum_{0<k<N/2} \sqrt{\tfrac{2\lambda_k}{N}}\,
          \bigl(z_{2k}\cos\tfrac{2\pi jk}{N} - z_{2k+1}\sin\tfrac{2\pi jk}{N}\bigr)

has that circulant as its covariance; its first :math:`n` values are the path. The sum is one
inverse real FFT of a half-spectrum whose zero-frequency and Nyquist modes are real.

Each path takes its own consecutive stretch of the random stream. So neither the size of the
blocks in which paths are computed nor a split into several calls changes a value, for NumPy
generators and PyTorch CPU generators.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from scalinglimits.laws._random import Array, Source

if TYPE_CHECKING:
    import torch

__all__ = [
    "circulant_eigenvalues",
    "draw_paths",
    "draw_white",
    "mode_amplitudes",
    "paths_from_noise",
    "tensor_paths_from_noise",
]

_BLOCK_NUMBERS = 1 << 17
"""Random numbers in one block: one megabyte in float64, so that a block stays in cache."""
_LEAST_ROWS = 4
"""The FFT transforms up to four long paths in the lanes of one register."""
_DEVICE_BLOCK_NUMBERS = 1 << 26
"""The same for an accelerator, which wants large batches."""


def circulant_eigenvalues(first_row: np.ndarray) -> np.ndarray:
    r"""Return the eigenvalues of a symmetric circulant.

    Args:
        first_row: Its first row up to the middle, float64, of shape (N/2 + 1,).

    Returns:
        :math:`\lambda_0, …, \lambda_{N/2}`, of shape (N/2 + 1,).
    """
    eigenvalues: np.ndarray = fft.rfft(np.concatenate([first_row, first_row[-2:0:-1]])).real
    return eigenvalues


def mode_amplitudes(eigenvalues: np.ndarray) -> np.ndarray:
    r"""Return the factors by which the noise of each mode is multiplied.

    Args:
        eigenvalues: Those of the circulant, float64, of shape (N/2 + 1,).

    Returns:
        The amplitude that goes with each of :math:`z_0, …, z_{N-1}`, of shape (N,). Those of
        the inner modes are halved to :math:`\sqrt{\lambda_k/(2N)}`, because the inverse real FFT
        counts each inner mode twice. Negative eigenvalues, which are rounding, count as zero.
    """
    half = eigenvalues.shape[0] - 1
    shares = np.maximum(eigenvalues, 0.0) / (2 * half)
    amplitudes = np.repeat(np.sqrt(0.5 * shares[:half]), 2)
    amplitudes[0], amplitudes[1] = math.sqrt(shares[0]), math.sqrt(shares[half])
    return amplitudes


def paths_from_noise(noise: np.ndarray, amplitudes: np.ndarray) -> np.ndarray:
    """Map noise to whole circulant paths: linear in the noise.

    Args:
        noise: Standard normal numbers, float32 or float64, of shape (paths, width) with
            width at least N; the numbers beyond N are not used.
        amplitudes: What `mode_amplitudes` returns, in the noise's precision, of shape (N,).

    Returns:
        Paths in the noise's precision, of shape (paths, N).
    """
    size = amplitudes.shape[0]
    # As real numbers the half-spectrum is (Re, Im) of N/2 + 1 modes. The noise has the same
    # order, with the Nyquist mode's number in the place of the zero mode's imaginary part.
    spectrum = np.empty((noise.shape[0], size + 2), dtype=noise.dtype)
    np.multiply(noise[:, :size], amplitudes, out=spectrum[:, :size])
    spectrum[:, size] = spectrum[:, 1]
    spectrum[:, 1] = 0.0
    spectrum[:, size + 1] = 0.0
    modes = spectrum.view(np.complex64 if noise.dtype == np.float32 else np.complex128)
    paths: np.ndarray = fft.irfft(modes, size, axis=1, norm="forward", overwrite_x=True)
    return paths


def tensor_paths_from_noise(noise: torch.Tensor, amplitudes: torch.Tensor) -> torch.Tensor:
    """Do what `paths_from_noise` does, with PyTorch on the noise's device.

    Args:
        noise: Standard normal numbers of shape (paths, width), width at least N.
        amplitudes: What `mode_amplitudes` returns, of the noise's type and device.

    Returns:
        Paths of shape (paths, N).
    """
    import torch

    size = amplitudes.shape[0]
    spectrum = noise.new_empty((noise.shape[0], size + 2))
    spectrum[:, :size] = noise[:, :size] * amplitudes
    spectrum[:, size] = spectrum[:, 1]
    spectrum[:, 1] = 0.0
    spectrum[:, size + 1] = 0.0
    modes = torch.view_as_complex(spectrum.view(-1, size // 2 + 1, 2))
    return torch.fft.irfft(modes, size, dim=1, norm="forward")


def draw_paths(
    amplitudes: np.ndarray,
    length: int,
    size: tuple[int, ...],
    source: Source,
    *,
    time_first: bool = False,
    cumulative: bool = False,
    scale: float = 1.0,
) -> Array:
    """Draw independent paths.

    Args:
        amplitudes: What `mode_amplitudes` returns.
        length: Values wanted of each path, at most the circulant's size.
        size: The shape of the collection of paths.
        source: The stream of random numbers.
        time_first: Whether time is the first axis of the result rather than the last.
        cumulative: Whether to return partial sums from 0 on, ``length + 1`` values a path.
        scale: A factor for all values.

    Returns:
        Paths of shape (*size, length), or (length, *size) if ``time_first``, in the source's
        working precision.
    """
    collect: Any
    transform: Any
    if source.on_host:
        collect, transform = _collect_on_host, paths_from_noise
        factors = (amplitudes * scale).astype(source.host_dtype)
    else:
        collect, transform = _collect_on_device, tensor_paths_from_noise
        factors = source.working(amplitudes * scale)
    return collect(
        lambda noise: transform(noise, factors)[:, :length],
        _stretch(amplitudes.shape[0], source), length, size, source,
        time_first=time_first, cumulative=cumulative,
    )  # fmt: skip


def draw_white(
    length: int,
    size: tuple[int, ...],
    source: Source,
    *,
    time_first: bool = False,
    cumulative: bool = False,
    scale: float = 1.0,
) -> Array:
    """Draw paths of independent standard normal values; see `draw_paths`.

    Args:
        length: Values of each path.
        size: The shape of the collection of paths.
        source: The stream of random numbers.
        time_first: Whether time is the first axis of the result rather than the last.
        cumulative: Whether to return partial sums from 0 on, ``length + 1`` values a path.
        scale: A factor for all values.

    Returns:
        Paths of shape (*size, length), or (length, *size) if ``time_first``.
    """
    collect = _collect_on_host if source.on_host else _collect_on_device
    return collect(
        lambda noise: noise[:, :length] * scale if scale != 1.0 else noise[:, :length],
        _stretch(length, source), length, size, source,
        time_first=time_first, cumulative=cumulative,
    )  # fmt: skip


def _stretch(numbers: int, source: Source) -> int:
    """Round a path's count of random numbers up to whole chunks of the stream."""
    return -(-numbers // source.chunk) * source.chunk


def _collect_on_host(
    transform: Any,
    width: int,
    length: int,
    size: tuple[int, ...],
    source: Source,
    *,
    time_first: bool,
    cumulative: bool,
) -> np.ndarray:
    count, dtype = math.prod(size), source.host_dtype
    steps = length + cumulative
    result = np.empty((steps, count) if time_first else (count, steps), dtype=dtype)
    by_path = result.T if time_first else result
    rows = max(1, min(count, max(_LEAST_ROWS, _BLOCK_NUMBERS // width)))
    noise = np.empty((rows, width), dtype=dtype)
    for start in range(0, count, rows):
        block = noise[: min(rows, count - start)]
        source.fill_normal(block)
        target = by_path[start : start + block.shape[0]]
        if cumulative:
            target[:, 0] = 0.0
            # Sum in float64 whatever the precision: rounding would add up along the path.
            target[:, 1:] = np.cumsum(transform(block), axis=1, dtype=np.float64)
        else:
            target[...] = transform(block)
    return result.reshape((steps, *size) if time_first else (*size, steps))


def _collect_on_device(
    transform: Any,
    width: int,
    length: int,
    size: tuple[int, ...],
    source: Source,
    *,
    time_first: bool,
    cumulative: bool,
) -> torch.Tensor:
    import torch

    count = math.prod(size)
    steps = length + cumulative
    rows = max(1, min(count, _DEVICE_BLOCK_NUMBERS // width))
    like = source.normal((0,))
    result = torch.zeros(
        (steps, count) if time_first else (count, steps), dtype=like.dtype, device=like.device
    )
    by_path = result.T if time_first else result
    for start in range(0, count, rows):
        block = transform(source.normal((min(rows, count - start), width)))
        target = by_path[start : start + block.shape[0]]
        if cumulative:
            target[:, 1:] = block.cumsum(1, dtype=torch.float64)
        else:
            target[...] = block
    return result.reshape((steps, *size) if time_first else (*size, steps))
