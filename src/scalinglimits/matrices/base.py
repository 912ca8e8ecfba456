r"""The interface of random matrices between neuron spaces, and their variance conventions.

A matrix `W` from a domain of `n` neurons to a codomain of `m` has entries of variance `v`. Products
take and return coordinates (see `NeuronSpace`): `matvec` is `W a`, `rmatvec` is `W^T b`, the plain
transpose of the entries, whatever the widths. Because inner products are means over neurons, their
adjoint relation is

    m <b, W a> = n <W^T b, a>.

A vector `a` independent of `W` is mapped to one of length about `sqrt(v n) |a|` (the forward
gain), a vector `b` independent of it to one of length about `sqrt(v m) |b|` (the backward gain).
Both have a limit at infinite width when `v` is a multiple of the inverse of a fan, provided that
`m/n` has one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from scalinglimits.matrices.spaces import NeuronSpace, child_generator

__all__ = ["VARIANCE_MODES", "RandomMatrix"]

VARIANCE_MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda m, n: n,
    "fan_out": lambda m, n: m,
    "fan_avg": lambda m, n: (m + n) / 2,
    "fan_geo_avg": lambda m, n: math.sqrt(m) * math.sqrt(n),
    "fan_quad_avg": lambda m, n: (m * m + n * n) / (m + n),
    "fan_max": lambda m, n: max(m, n),
}


class RandomMatrix(ABC):
    """A random matrix between two neuron spaces, used through its products.

    One object is one matrix: wherever it is used, its answers agree.

    Args:
        domain: space of the vectors it multiplies, `n` neurons.
        codomain: space of the products, `m` neurons.
        variance: variance of an entry. A number (finite widths only), or the name of a number `f`
            of neurons, for `scale / f`: `"fan_in"` (`n`), `"fan_out"` (`m`), `"fan_avg"`,
            `"fan_geo_avg"`, `"fan_quad_avg"` (`(m^2 + n^2) / (m + n)`) or `"fan_max"`.
        scale: factor of the variance.
        generator: a NumPy generator or a seed; `None` takes a stream of its own from the
            codomain's generator.

    Raises:
        ValueError: if one width is finite and the other not, or if the variance is not positive,
            unknown, or a number at infinite width.
    """

    def __init__(
        self,
        domain: NeuronSpace,
        codomain: NeuronSpace,
        variance: str | float = "fan_in",
        *,
        scale: float = 1.0,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        """Check the spaces and fix the gains."""
        if domain.is_finite != codomain.is_finite:
            raise ValueError(
                "`domain` and `codomain` must be both of finite or both of infinite width (between "
                "the two, use the vectors of `draw` as rows or columns); got widths "
                f"{domain.width} and {codomain.width}"
            )
        self.domain = domain
        self.codomain = codomain
        n, m = domain.relative_width, codomain.relative_width
        fan = _fan(variance, m, n, domain.is_finite)
        if not (0.0 < scale < math.inf):
            raise ValueError(f"`scale` must be positive and finite; got {scale!r}")
        self.forward_gain = math.sqrt(scale * n / fan)
        self.backward_gain = math.sqrt(scale * m / fan)
        self.variance = scale / fan if domain.is_finite else 0.0
        self.generator: np.random.Generator | None = None
        if generator is not None:
            self.generator = np.random.default_rng(generator)
        elif codomain.generator is not None:
            self.generator = child_generator(codomain.generator)

    @property
    def shape(self) -> tuple[float, float]:
        """Widths of codomain and domain."""
        return self.codomain.width, self.domain.width

    @property
    @abstractmethod
    def rank_known(self) -> int:
        """Number of independent directions in which the matrix is known."""

    @abstractmethod
    def matvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W a`.

        Args:
            vectors: coordinates in the domain, shape `(k,)` or a block `(k, c)`.

        Returns:
            Coordinates in the codomain, shape `(codomain.dimension,)` or
            `(codomain.dimension, c)`.

        Raises:
            ValueError: if the shape does not fit the domain.
        """

    @abstractmethod
    def rmatvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W^T b`.

        Args:
            vectors: coordinates in the codomain, shape `(k,)` or a block `(k, c)`.

        Returns:
            Coordinates in the domain, shape `(domain.dimension,)` or `(domain.dimension, c)`.

        Raises:
            ValueError: if the shape does not fit the codomain.
        """

    @abstractmethod
    def entries(self, rows: int, columns: int | None = None) -> np.ndarray:
        """Actual entries of the upper left block, divided by their standard deviation.

        The neurons are those of `NeuronSpace.rows`, so the entries of vectors and matrices fit
        together. At infinite width these are independent standard Gaussians: the trained part is
        negligible in front of them (L, remark ii), and so is what products reveal of them.

        Args:
            rows: number of neurons of the codomain.
            columns: number of neurons of the domain; `None` is the same number.

        Returns:
            Array of shape `(rows, columns)`.

        Raises:
            ValueError: if the spaces have fewer neurons, or no generator.
        """

    def __matmul__(self, vectors: np.ndarray) -> np.ndarray:
        """`W @ a` is `matvec(a)`."""
        return self.matvec(vectors)

    def __repr__(self) -> str:
        """Class, shape and known rank."""
        return f"{type(self).__name__}(shape={self.shape}, rank_known={self.rank_known})"


def _fan(variance: str | float, m: float, n: float, finite: bool) -> float:
    if isinstance(variance, str):
        if variance not in VARIANCE_MODES:
            raise ValueError(
                f"`variance` must be a number or one of {sorted(VARIANCE_MODES)}; got {variance!r}"
            )
        return float(VARIANCE_MODES[variance](m, n))
    if not finite:
        raise ValueError(
            f"`variance` must be one of {sorted(VARIANCE_MODES)} at infinite width; "
            f"got {variance!r}"
        )
    if not (0.0 < variance < math.inf):
        raise ValueError(f"`variance` must be positive and finite; got {variance!r}")
    return 1.0 / float(variance)
