r"""Laws of one weight: mean 0, variance exactly 1, and the constants that theorems ask for.

A weight matrix of fan-in :math:`d` has entries :math:`\xi/\sqrt d` with :math:`\xi` of such a
law. Every law here is symmetric and :math:`s^2`-sub-Gaussian,

.. math:: E\,e^{t\xi} \le e^{s^2 t^2/2} \quad\text{for all real } t,

the assumption A1 of "Scaling ResNets in the Large-depth Regime". For all four the best constant
is the variance, :math:`s^2 = 1`. Each is a density :math:`e^{-V}` (or a limit of such) with
:math:`V` even and :math:`V'` convex on the positive half line: the class for which Ellis, Monroe
and Newman (Communications in Mathematical Physics 46, 1976) prove the
Griffiths--Hurst--Sherman inequality, :math:`(\log E\,e^{t\xi})''' \le 0` for :math:`t \ge 0`.
Hence :math:`(\log E\,e^{t\xi})'' \le 1`, and two integrations from 0 give the bound.

Reference:
    "Scaling ResNets in the Large-depth Regime", assumption A1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from scalinglimits.laws._random import Array, Device, DType, Generator, open_source
from scalinglimits.laws._validate import check_positive, check_shape

__all__ = ["EntryLaw", "Normal", "Rademacher", "TruncatedNormal", "Uniform"]

_ROOT_3 = math.sqrt(3.0)
_ROOT_2 = math.sqrt(2.0)
# Below, the truncated normal is uniform to within double precision and its formulas underflow.
_SMALLEST_CUT = 1e-6


class EntryLaw(ABC):
    """A symmetric law of mean 0 and variance 1.

    A law of your own subclasses this with `sample`, `sub_gaussian`, `fourth_moment` and `cdf`;
    a frozen dataclass makes it comparable, hashable and printable.
    """

    @property
    @abstractmethod
    def sub_gaussian(self) -> float:
        r"""The constant :math:`s^2` of :math:`E\,e^{t\xi} \le e^{s^2t^2/2}`."""

    @property
    @abstractmethod
    def fourth_moment(self) -> float:
        r""":math:`E\,\xi^4`, the kurtosis, as the variance is 1."""

    @abstractmethod
    def sample(
        self,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw independent values.

        Args:
            shape: The shape of the result.
            generator: A ``numpy.random.Generator`` gives an array, a ``torch.Generator`` a
                tensor; None is PyTorch's default generator of ``device``.
            dtype: A floating-point type of that framework; None for float64 (NumPy) or the
                default type (PyTorch). Half-precision values are drawn in float32 and rounded.
            device: Where a tensor is delivered; None for the generator's device. A CPU
                generator gives the same values on every device.

        Returns:
            An array or tensor of that shape.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If ``shape`` has a negative entry or ``dtype`` is not supported.
        """

    @abstractmethod
    def cdf(self, values: ArrayLike) -> np.ndarray:
        r"""Return the distribution function :math:`P(\xi \le x)`.

        Args:
            values: The points :math:`x`.

        Returns:
            Probabilities in float64, one for each point.
        """


@dataclass(frozen=True)
class Normal(EntryLaw):
    """The standard normal law.

    Example:
        >>> import numpy as np
        >>> Normal().sample((2, 3), np.random.default_rng(0)).shape
        (2, 3)
        >>> Normal().sub_gaussian, Normal().fourth_moment
        (1.0, 3.0)
    """

    @property
    def sub_gaussian(self) -> float:
        """One, with equality in the bound."""
        return 1.0

    @property
    def fourth_moment(self) -> float:
        """Three."""
        return 3.0

    def sample(
        self,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw independent values; see `EntryLaw.sample`."""
        size, source = check_shape("shape", shape), open_source(generator, dtype, device)
        return source.deliver(source.normal(size))

    def cdf(self, values: ArrayLike) -> np.ndarray:
        """Return the distribution function; see `EntryLaw.cdf`."""
        return _as_float64(special.ndtr(_as_float64(values)))


@dataclass(frozen=True)
class Uniform(EntryLaw):
    r"""The uniform law on :math:`[-\sqrt3, \sqrt3]`.

    Example:
        >>> import numpy as np
        >>> bool(abs(Uniform().sample(1000, np.random.default_rng(0))).max() <= 3**0.5)
        True
        >>> Uniform().fourth_moment
        1.8
    """

    @property
    def sub_gaussian(self) -> float:
        r"""One: :math:`\sinh(u)/u = \sum u^{2k}/(2k+1)! \le \sum u^{2k}/(6^k k!) = e^{u^2/6}`."""
        return 1.0

    @property
    def fourth_moment(self) -> float:
        """Nine fifths."""
        return 1.8

    def sample(
        self,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw independent values; see `EntryLaw.sample`."""
        size, source = check_shape("shape", shape), open_source(generator, dtype, device)
        values = source.uniform(size)
        values -= 0.5
        values *= 2.0 * _ROOT_3
        return source.deliver(values)

    def cdf(self, values: ArrayLike) -> np.ndarray:
        """Return the distribution function; see `EntryLaw.cdf`."""
        return np.clip(_as_float64(values) / (2.0 * _ROOT_3) + 0.5, 0.0, 1.0)


@dataclass(frozen=True)
class Rademacher(EntryLaw):
    """One or minus one, with probability one half each.

    Example:
        >>> import numpy as np
        >>> set(Rademacher().sample(100, np.random.default_rng(0)).tolist()) == {-1.0, 1.0}
        True
    """

    @property
    def sub_gaussian(self) -> float:
        r"""One: :math:`\cosh t = \sum t^{2k}/(2k)! \le \sum t^{2k}/(2^k k!) = e^{t^2/2}`."""
        return 1.0

    @property
    def fourth_moment(self) -> float:
        """One."""
        return 1.0

    def sample(
        self,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw independent values; see `EntryLaw.sample`."""
        size, source = check_shape("shape", shape), open_source(generator, dtype, device)
        return source.deliver(source.signs(size))

    def cdf(self, values: ArrayLike) -> np.ndarray:
        """Return the distribution function; see `EntryLaw.cdf`."""
        points = _as_float64(values)
        return 0.5 * (points >= -1.0) + 0.5 * (points >= 1.0)


@dataclass(frozen=True)
class TruncatedNormal(EntryLaw):
    r"""A normal law cut at plus and minus ``cut`` deviations, then rescaled to variance 1.

    With :math:`P(a) = P(a, c^2/2)` the regularised incomplete gamma function and :math:`c` the
    cut, a standard normal variable cut at :math:`\pm c` has variance
    :math:`v = P(\tfrac32)/P(\tfrac12)` and fourth moment :math:`3P(\tfrac52)/P(\tfrac12)`.
    Values are divided by :math:`\sqrt v`, so they lie within :math:`\pm c/\sqrt v`. At
    ``cut=2``, :math:`\sqrt v = 0.879626`: the deviation that an uncorrected truncated normal
    loses.

    Args:
        cut: Where the normal law is cut, in its own standard deviations before rescaling.

    Raises:
        TypeError: If ``cut`` is not a real number.
        ValueError: If ``cut`` is not positive and finite, or is below 1e-6.

    Example:
        >>> law = TruncatedNormal(cut=2.0)
        >>> round(law.bound, 6), round(law.fourth_moment, 6)
        (2.273694, 2.365537)
    """

    cut: float = 2.0

    def __post_init__(self) -> None:
        cut = check_positive("cut", self.cut)
        if cut < _SMALLEST_CUT:
            raise ValueError(f"`cut` must be at least {_SMALLEST_CUT}; got {cut}")
        object.__setattr__(self, "cut", cut)

    @property
    def sub_gaussian(self) -> float:
        r"""One, the variance: the law is strictly sub-Gaussian.

        It is the limit of :math:`e^{-V}` with :math:`V = x^2/2 + (x/c)^{2n}`, whose derivative
        is convex on the positive half line; see the module's text.
        """
        return 1.0

    @property
    def fourth_moment(self) -> float:
        r""":math:`3P(\tfrac52)P(\tfrac12)/P(\tfrac32)^2`, between 9/5 (small cut) and 3."""
        half, three_halves, five_halves = self._gamma_ratios()
        return 3.0 * five_halves * half / three_halves**2

    @property
    def bound(self) -> float:
        """The largest absolute value: ``cut`` over the deviation before rescaling."""
        half, three_halves, _ = self._gamma_ratios()
        return self.cut * math.sqrt(half / three_halves)

    def sample(
        self,
        shape: int | tuple[int, ...],
        generator: Generator = None,
        *,
        dtype: DType = None,
        device: Device = None,
    ) -> Array:
        """Draw independent values; see `EntryLaw.sample`."""
        size, source = check_shape("shape", shape), open_source(generator, dtype, device)
        # Inverse distribution function: sqrt(2) erfinv(u), u uniform on +-erf(c / sqrt(2)).
        values = source.uniform(size)
        values -= 0.5
        values *= 2.0 * math.erf(self.cut / _ROOT_2)
        values = source.erfinv(values)
        values *= _ROOT_2 * self.bound / self.cut
        # For cuts above 5, erf rounds to 1 in float32 and the end of the range maps to infinity.
        return source.deliver(values.clip(-self.bound, self.bound))

    def cdf(self, values: ArrayLike) -> np.ndarray:
        """Return the distribution function; see `EntryLaw.cdf`."""
        points = np.clip(_as_float64(values) * (self.cut / self.bound), -self.cut, self.cut)
        share = special.erf(points / _ROOT_2) / math.erf(self.cut / _ROOT_2)
        return _as_float64(0.5 * (1.0 + share))

    def _gamma_ratios(self) -> tuple[float, float, float]:
        orders = np.array([0.5, 1.5, 2.5])
        half, three_halves, five_halves = special.gammainc(orders, 0.5 * self.cut**2)
        return float(half), float(three_halves), float(five_halves)


def _as_float64(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)
