r"""Deep linear networks of any width.

With `n` hidden matrices and layers of `m_0, ..., m_n` neurons, inner products `<a, b>` being means
over the neurons of a layer,

    f_0 = U x,    f_l = H_l f_{l-1}    (or f_{l-1} + alpha H_l f_{l-1} in a residual network),
    H_l = g_l Z_l / sqrt(m_{l-1}) + W_l / m_{l-1},    network(x) = s <V, f_n>,

where U, V and the `Z_l` have standard entries and `W_l = 0` at first. Gradient descent with step
size `tau` is

    U   -= tau c_U   s b_0 xi^T,                b_n = V,  b_{l-1} = H_l^T b_l m_{l-1} / m_l,
    W_l -= tau c_l   s b_l (f_{l-1} xi)^T,      (times alpha in a residual network)
    V   -= tau c_V   s f_n xi.

The parametrisation is `s`, `g` and `c`: see `LinearNetwork`. With `s = g = c = 1` this is (2.5).

Reference: "Infinite-width limit of deep linear neural networks" (L), (2.1) to (2.5).
"""

from __future__ import annotations

__all__ = ["PARAMETRIZATIONS", "LinearNetwork", "Scales"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ._validate import check_choice, check_count, check_real, check_sequence

PARAMETRIZATIONS = ("mup", "ntk", "standard", "integrable")

_MAX_WIDTH = 10**18


@dataclass(frozen=True)
class Scales:
    """What a parametrisation makes of the scaled variables, at given widths.

    Attributes:
        output: `s`, the factor of the output.
        gains: `g_l`, the factors of the random hidden matrices.
        steps: `c_U, c_1, ..., c_n, c_V`, the factors of the step size.
    """

    output: float
    gains: tuple[float, ...]
    steps: tuple[float, ...]


@dataclass(frozen=True)
class LinearNetwork:
    r"""A deep linear network: sizes, random matrices and parametrisation.

    In terms of the weights that a program would store (written `u`, `w`, `v`), the
    parametrisations are, at width `m`, for a step size `tau`:

    ============ ============================== ======================= =========================
    name         network                        initial deviations      step sizes of u, w, v
    ============ ============================== ======================= =========================
    "mup"        v^T w_n ... w_1 u x            1, m^-1/2, m^-1         tau m, tau, tau / m
    "ntk"        the same, each of v, w over    1, 1, 1                 tau, tau, tau
                 sqrt(m)
    "standard"   v^T w_n ... w_1 u x            1, m^-1/2, m^-1/2       tau, tau, tau
    "integrable" the same, each of v, w over m  1, 1, 1                 tau m, tau m^2, tau m
    ============ ============================== ======================= =========================

    Only "mup" learns features from random matrices of any number at infinite width. There "ntk" is
    a linear dynamics of the predictor from a random start; "standard" diverges at the first step;
    "integrable" loses its random matrices, and with two or more of them is zero for ever.

    Args:
        in_features: dimension `d` of the inputs.
        hidden: number `n` of hidden square matrices; 1 is the three-layer network of L.
        width: number of neurons of a layer, an integer up to 10^18 or `math.inf`; or a sequence of
            `hidden + 1` of them, all finite or all infinite.
        out_features: number of outputs.
        matrices: hidden matrices: `"gaussian"`, `"haar"` (orthogonal), or a law of entries such as
            those of `scalinglimits.laws`, for matrices held in full. At infinite width all laws of
            entries have the same limit (L, remark iv).
        vectors: law of the entries of `U(0)` and `V(0)`; `None` is Gaussian.
        residual_scale: `alpha` of a linear residual network; `None` is a plain network.
        parametrization: `"mup"`, `"ntk"`, `"standard"` or `"integrable"`.
        scale: factor of the output, besides that of the parametrisation.
        relative_widths: at infinite width, the limits of the ratios of the layers' widths.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range, or the widths do not fit.

    Example:
        >>> LinearNetwork(3, hidden=2, width=1000).widths
        (1000, 1000, 1000)
        >>> LinearNetwork(3).is_finite
        False
    """

    in_features: int
    hidden: int = 1
    width: float | Sequence[float] = math.inf
    out_features: int = 1
    matrices: Any = "gaussian"
    vectors: Any = None
    residual_scale: float | None = None
    parametrization: str = "mup"
    scale: float = 1.0
    relative_widths: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_count("in_features", self.in_features, 1)
        check_count("hidden", self.hidden)
        check_count("out_features", self.out_features, 1)
        check_choice("parametrization", self.parametrization, PARAMETRIZATIONS)
        check_real("scale", self.scale, above=0.0)
        if isinstance(self.matrices, str):
            check_choice("matrices", self.matrices, ("gaussian", "haar"))
        elif not callable(getattr(self.matrices, "sample", None)):
            raise TypeError(
                "`matrices` must be 'gaussian', 'haar' or a law of entries with a method `sample`; "
                f"got {self.matrices!r}"
            )
        if self.vectors is not None and not callable(getattr(self.vectors, "sample", None)):
            raise TypeError(
                "`vectors` must be None or a law of entries with a method `sample`; "
                f"got {self.vectors!r}"
            )
        count = self.hidden + 1
        one = not isinstance(self.width, Sequence) or isinstance(self.width, str)
        widths = (self.width,) * count if one else check_sequence("width", self.width, count)
        checked = tuple(_checked_width(m) for m in widths)
        if len({m == math.inf for m in checked}) > 1:
            raise ValueError(f"`width` must be all finite or all infinite; got {widths}")
        object.__setattr__(self, "width", checked[0] if one else checked)
        if self.relative_widths is not None:
            ratios = check_sequence("relative_widths", self.relative_widths, count)
            ratios = tuple(check_real("relative_widths", r, above=0.0) for r in ratios)
            if checked[0] != math.inf:
                raise ValueError(f"`relative_widths` must be None at finite width; got {ratios}")
            object.__setattr__(self, "relative_widths", ratios)
        if self.residual_scale is not None:
            check_real("residual_scale", self.residual_scale)
            if len(set(checked)) > 1 or len(set(self.relative_widths or (1.0,))) > 1:
                raise ValueError(
                    f"`width` must be the same in all layers of a residual network; got {checked}"
                )

    @property
    def widths(self) -> tuple[float, ...]:
        """Numbers of neurons `m_0, ..., m_n`."""
        if isinstance(self.width, Sequence):
            return tuple(self.width)
        return (self.width,) * (self.hidden + 1)

    @property
    def is_finite(self) -> bool:
        """Whether the widths are finite."""
        return self.widths[0] != math.inf

    @property
    def ratios(self) -> tuple[float, ...]:
        """The widths, or at infinite width their ratios."""
        if self.is_finite:
            return self.widths
        if self.relative_widths is not None:
            return tuple(self.relative_widths)
        return (1.0,) * (self.hidden + 1)

    @property
    def is_kernel_limit(self) -> bool:
        """Whether the limit leaves the weights where they are, or makes them diverge at once."""
        return not self.is_finite and self.parametrization in ("ntk", "standard")

    @property
    def has_explicit_form(self) -> bool:
        """Whether it is a plain network with one Gaussian hidden matrix (see `explicit_limit`)."""
        gaussian = isinstance(self.matrices, str) and self.matrices == "gaussian"
        plain = self.vectors is None and self.residual_scale is None
        return self.hidden == 1 and gaussian and plain and not self.is_kernel_limit

    @property
    def scales(self) -> Scales:
        """The factors of the parametrisation.

        Raises:
            ValueError: if they are infinite: "ntk" and "standard" at infinite width.
        """
        if self.is_kernel_limit:
            raise ValueError(
                f"`width` must be finite for the scales of {self.parametrization!r}; got inf"
            )
        m = self.widths
        ones = (1.0,) * self.hidden
        if self.parametrization == "mup":
            return Scales(self.scale, ones, (1.0, *ones, 1.0))
        if self.parametrization == "integrable":
            gains = tuple(1.0 / math.sqrt(w) for w in m[:-1])
            return Scales(self.scale, gains, (1.0, *ones, 1.0))
        output = self.scale * math.sqrt(m[-1])
        if self.parametrization == "ntk":
            return Scales(output, ones, (1.0 / m[0], *(1.0 / w for w in m[1:]), 1.0 / m[-1]))
        inner = (m[i] / m[i + 1] for i in range(self.hidden))
        return Scales(output, ones, (1.0 / m[0], *inner, 1.0))

    def with_width(self, width: float | Sequence[float]) -> LinearNetwork:
        """The same network at another width.

        Args:
            width: as in the constructor.

        Returns:
            The network.
        """
        return replace(self, width=width, relative_widths=None)


def _checked_width(width: Any) -> float:
    if isinstance(width, float) and width == math.inf:
        return math.inf
    try:
        count = check_count("width", width, 1)
    except TypeError:
        raise TypeError(f"`width` must be an integer or math.inf; got {width!r}") from None
    if count > _MAX_WIDTH:
        raise ValueError(f"`width` must be at most 10**18, or math.inf; got {count}")
    return count
