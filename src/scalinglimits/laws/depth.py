r"""Laws of weights across depth: the same coordinate of layers 1, …, L as one random sequence.

Coordinates are independent copies of a stationary sequence :math:`\xi_1, …, \xi_L` of mean 0 and
variance 1 with autocovariance :math:`\gamma(k) = E\,\xi_j\xi_{j+k}`. How much
:math:`\xi_1 + … + \xi_L` grows decides where a residual network with branches scaled by
:math:`L^{-\beta}` passes from explosion to identity:

=======================  ==========================  ====================
law                      the sum grows as            critical :math:`\beta`
=======================  ==========================  ====================
`Independent`            :math:`L^{1/2}`             1/2
`FractionalIncrements`   :math:`L^{H}`               max(H, 1/2)
`SmoothProcess`          :math:`L`                   1
`SmoothIncrements`       :math:`L`                   1
=======================  ==========================  ====================

Reference:
    "Scaling ResNets in the Large-depth Regime", sections 2 (independent), 3 (smooth) and 4.1
    (fractional).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from scalinglimits.laws import _smooth
from scalinglimits.laws._circulant import draw_paths
from scalinglimits.laws._random import Array, Device, DType, Generator, Source, open_source
from scalinglimits.laws._validate import check_count, check_hurst, check_positive, check_shape
from scalinglimits.laws.entries import EntryLaw, Normal
from scalinglimits.laws.fractional import fgn_autocovariance, fractional_gaussian_noise

__all__ = ["DepthLaw", "FractionalIncrements", "Independent", "SmoothIncrements", "SmoothProcess"]


class DepthLaw(ABC):
    """A law of one weight followed through the layers, of mean 0 and variance 1.

    A law of your own subclasses this with `sample` and `autocovariance`.
    """

    @property
    def critical_beta(self) -> float | None:
        r"""The :math:`\beta` between explosion and identity as depth grows; None if unknown."""
        return None

    @property
    def sub_gaussian(self) -> float | None:
        """The sub-Gaussian constant of one value, as in `EntryLaw`; None if unknown."""
        return None

    @abstractmethod
    def sample(
        self,
        depth: int,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw the weights of all layers.

        Args:
            depth: The number of layers, at least 1.
            shape: The shape of one layer's weights; each coordinate is an independent copy.
            generator: A ``numpy.random.Generator`` gives an array, a ``torch.Generator`` a
                tensor; None is PyTorch's default generator of ``device``.
            dtype: A floating-point type of that framework; None for its default.
            device: Where a tensor is delivered; None for the generator's device. A CPU
                generator gives the same values on every device.

        Returns:
            Values of variance 1, contiguous, of shape ``(depth, *shape)``.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If ``depth`` is below 1 or ``shape`` has a negative entry.
        """

    @abstractmethod
    def autocovariance(self, depth: int) -> np.ndarray:
        r"""Return the covariance of two layers as a function of their distance.

        Args:
            depth: The number of layers, at least 1.

        Returns:
            :math:`\gamma(0) = 1, …, \gamma(L-1)` in float64, of shape (depth,).

        Raises:
            TypeError: If ``depth`` is not an integer.
            ValueError: If ``depth`` is below 1.
        """


@dataclass(frozen=True)
class Independent(DepthLaw):
    """Independent layers: the usual initialisation, and the scaling limit of an SDE.

    Args:
        entries: The law of one weight.

    Raises:
        TypeError: If ``entries`` is not an `EntryLaw`.

    Example:
        >>> import numpy as np
        >>> law = Independent()
        >>> law.sample(10, (4, 3), np.random.default_rng(0)).shape, law.critical_beta
        ((10, 4, 3), 0.5)
    """

    entries: EntryLaw = field(default_factory=Normal)

    def __post_init__(self) -> None:
        if not isinstance(self.entries, EntryLaw):
            raise TypeError(f"`entries` must be an EntryLaw; got {self.entries!r}")

    @property
    def critical_beta(self) -> float:
        """One half."""
        return 0.5

    @property
    def sub_gaussian(self) -> float:
        """That of the entries."""
        return self.entries.sub_gaussian

    def sample(
        self,
        depth: int,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw the weights of all layers; see `DepthLaw.sample`."""
        size = (check_count("depth", depth), *check_shape("shape", shape))
        return self.entries.sample(size, generator, dtype=dtype, device=device)

    def autocovariance(self, depth: int) -> np.ndarray:
        """Return 1, 0, …, 0; see `DepthLaw.autocovariance`."""
        gamma = np.zeros(check_count("depth", depth))
        gamma[0] = 1.0
        return gamma


@dataclass(frozen=True)
class FractionalIncrements(DepthLaw):
    """Increments of fractional Brownian motion across depth: between noise and smoothness.

    Args:
        hurst: The Hurst index, strictly between 0 and 1; one half is independence.

    Raises:
        TypeError: If ``hurst`` is not a real number.
        ValueError: If ``hurst`` is outside (0, 1).

    Example:
        >>> import numpy as np
        >>> law = FractionalIncrements(0.8)
        >>> law.sample(1000, (40, 40), np.random.default_rng(0)).shape, law.critical_beta
        ((1000, 40, 40), 0.8)
    """

    hurst: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "hurst", check_hurst(self.hurst))

    @property
    def critical_beta(self) -> float:
        """The greater of the Hurst index and one half."""
        return max(self.hurst, 0.5)

    @property
    def sub_gaussian(self) -> float:
        """One: values are standard normal."""
        return 1.0

    def sample(
        self,
        depth: int,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw the weights of all layers; see `DepthLaw.sample`."""
        depth, size = check_count("depth", depth), check_shape("shape", shape)
        return fractional_gaussian_noise(
            depth, self.hurst, size, generator=generator, dtype=dtype, device=device, axis=0
        )

    def autocovariance(self, depth: int) -> np.ndarray:
        """Return that of fractional Gaussian noise; see `DepthLaw.autocovariance`."""
        return fgn_autocovariance(check_count("depth", depth), self.hurst)


@dataclass(frozen=True)
class SmoothProcess(DepthLaw):
    r"""Values at times k/L of a smooth Gaussian process: the scaling limit of an ODE.

    The kernel is :math:`e^{-(s-t)^2/(2\ell^2)}`. Layers draw near as depth grows: the law of
    two layers depends on their distance as a share of the depth.

    Args:
        length_scale: The kernel's length scale :math:`\ell`, in units of the whole depth.

    Raises:
        TypeError: If ``length_scale`` is not a real number.
        ValueError: If ``length_scale`` is not positive and finite.

    Example:
        >>> import numpy as np
        >>> law = SmoothProcess(length_scale=0.1)
        >>> law.sample(1000, (40, 40), np.random.default_rng(0)).shape, law.critical_beta
        ((1000, 40, 40), 1.0)
        >>> law.autocovariance(10).round(4)[:3].tolist()
        [1.0, 0.6065, 0.1353]
    """

    length_scale: float = 0.1

    def __post_init__(self) -> None:
        value = check_positive("length_scale", self.length_scale)
        object.__setattr__(self, "length_scale", value)

    @property
    def critical_beta(self) -> float:
        """One."""
        return 1.0

    @property
    def sub_gaussian(self) -> float:
        """One: values are standard normal."""
        return 1.0

    def sample(
        self,
        depth: int,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw the weights of all layers; see `DepthLaw.sample`."""
        depth, size = check_count("depth", depth), check_shape("shape", shape)
        source = open_source(generator, dtype, device)
        return _draw_smooth(depth, self.length_scale, size, source, increments=False)

    def autocovariance(self, depth: int) -> np.ndarray:
        """Return the kernel at lags k/L; see `DepthLaw.autocovariance`."""
        return _smooth.value_autocovariance(check_count("depth", depth), self.length_scale)


@dataclass(frozen=True)
class SmoothIncrements(DepthLaw):
    r"""Increments over steps 1/L of a smooth Gaussian process, scaled to variance 1.

    The process has kernel :math:`e^{-(s-t)^2/(2\ell^2)}`; the scaling is by the increments' true
    deviation :math:`\sqrt{2 - 2e^{-1/(2L^2\ell^2)}}`, not by that of the draw. As depth grows
    they become the values of the process's derivative, scaled alike.

    Args:
        length_scale: The kernel's length scale :math:`\ell`, in units of the whole depth.

    Raises:
        TypeError: If ``length_scale`` is not a real number.
        ValueError: If ``length_scale`` is not positive and finite.

    Example:
        >>> import numpy as np
        >>> law = SmoothIncrements(length_scale=0.1)
        >>> law.sample(1000, (40, 40), np.random.default_rng(0)).shape
        (1000, 40, 40)
        >>> bool(law.autocovariance(1000)[1] > 0.999)
        True
    """

    length_scale: float = 0.1

    def __post_init__(self) -> None:
        value = check_positive("length_scale", self.length_scale)
        object.__setattr__(self, "length_scale", value)

    @property
    def critical_beta(self) -> float:
        """One."""
        return 1.0

    @property
    def sub_gaussian(self) -> float:
        """One: values are standard normal."""
        return 1.0

    def sample(
        self,
        depth: int,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw the weights of all layers; see `DepthLaw.sample`."""
        depth, size = check_count("depth", depth), check_shape("shape", shape)
        source = open_source(generator, dtype, device)
        return _draw_smooth(depth, self.length_scale, size, source, increments=True)

    def autocovariance(self, depth: int) -> np.ndarray:
        """Return the normalised second difference; see `DepthLaw.autocovariance`."""
        return _smooth.increment_autocovariance(check_count("depth", depth), self.length_scale)


def _draw_smooth(
    depth: int, length_scale: float, size: tuple[int, ...], source: Source, *, increments: bool
) -> Array:
    factor = _smooth.wave_factor(depth, length_scale, increments)
    if factor is None:
        amplitudes = _smooth.grid_amplitudes(depth, length_scale, increments)
        return source.deliver(draw_paths(amplitudes, depth, size, source, time_first=True))
    waves = source.normal((factor.shape[1], int(np.prod(size, dtype=np.int64))))
    return source.deliver((source.working(factor) @ waves).reshape((depth, *size)))
