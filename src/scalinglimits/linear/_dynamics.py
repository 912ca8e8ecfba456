r"""Forward and backward passes of a network in coordinates, at any width.

All vectors are coordinates in bases that grow by about one vector a product. Arrays may be longer
or shorter than the basis: missing coordinates are zero.

`Drops` follows what the finite tolerance of the bases leaves out. A product with a vector `v` drops
at most `tolerance |v|`, which then runs through the rest of the pass with the gains of the pass
itself.
"""

from __future__ import annotations

__all__ = ["LARGEST_NORM", "Diverged", "Dynamics", "Passes", "Trained"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalinglimits.matrices import (
    DenseMatrix,
    GaussianMatrix,
    HaarMatrix,
    NeuronSpace,
    RandomMatrix,
)

from ._streams import MATRIX, SPACE, stream
from .network import LinearNetwork
from .state import NetworkState
from .trained import TrainedMatrix, add_product, padded

# Beyond, squares and products of several norms overflow: training has diverged.
LARGEST_NORM = 1e50
_SMALLEST_TOLERANCE = 1e-15

Trained = TrainedMatrix | np.ndarray


class Diverged(Exception):
    """A norm is too large, or not a number."""


@dataclass
class Passes:
    """Vectors of a backward and a forward pass, their norms, and what the tolerance dropped."""

    b: list[np.ndarray]
    b_norm: list[float]
    b_drop: list[float]
    f: list[np.ndarray]
    f_norm: list[float]
    f_drop: list[float]


class Dynamics:
    """A network's random matrices and initial weights, and its passes.

    Args:
        network: the network; its limit must not be a kernel limit.
        seed: root of the streams of all its parts; may be `None` at infinite width.
        tolerance: of the bases.
    """

    def __init__(self, network: LinearNetwork, seed: int | None, tolerance: float) -> None:
        self.network = network
        scales = network.scales
        # An output scaled up by s needs inner products that are as much more precise.
        finer = max(tolerance / max(scales.output, 1.0), _SMALLEST_TOLERANCE)
        self.tolerance = min(tolerance, finer)
        self.output = scales.output
        self.step_factors = scales.steps
        n = network.hidden
        explicit = not isinstance(network.matrices, str) and network.is_finite
        self.alpha = network.residual_scale
        m = network.ratios
        self.spaces: list[NeuronSpace] = []
        for i in range(n + 1):
            if self.alpha is not None and i > 0:
                self.spaces.append(self.spaces[0])
                continue
            self.spaces.append(
                NeuronSpace(
                    network.widths[i],
                    generator=stream(seed, SPACE, i),
                    explicit=explicit,
                    relative_width=None if network.is_finite else m[i],
                )
            )
        U = self.spaces[0].draw(network.in_features, network.vectors)
        V = self.spaces[-1].draw(network.out_features, network.vectors)
        if network.out_features == 1:
            V = V[:, 0]
        self.matrices = [
            self._matrix(i, stream(seed, MATRIX, i), explicit) for i in range(1, n + 1)
        ]
        self.gains = scales.gains
        # From the plain transpose to the adjoint for inner products that are means over neurons.
        self.back_gains = [g * m[i] / m[i + 1] for i, g in enumerate(self.gains)]
        self.initial = (U, V)

    def _matrix(self, layer: int, generator: Any, explicit: bool) -> RandomMatrix:
        domain, codomain = self.spaces[layer - 1], self.spaces[layer]
        kind = self.network.matrices
        if explicit:
            return DenseMatrix(domain, codomain, entries=kind, generator=generator)
        cls = HaarMatrix if isinstance(kind, str) and kind == "haar" else GaussianMatrix
        return cls(domain, codomain, tolerance=self.tolerance, generator=generator)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Numbers of basis vectors of the layers."""
        return tuple(space.dimension for space in self.spaces)

    def backward(self, arrays: Sequence[Any]) -> tuple[np.ndarray, Passes]:
        """The predictor `s U^T b_0` and the vectors `b_l`.

        Raises:
            Diverged: if a norm is too large.
        """
        n = len(self.matrices)
        b: list[Any] = [None] * (n + 1)
        norm, drop = [0.0] * (n + 1), [0.0] * (n + 1)
        b[n] = arrays[-1][: self.spaces[n].dimension]
        norm[n] = _norm(b[n])
        for layer in range(n, 0, -1):
            out, dropped = self._apply(layer, arrays[layer], b[layer], transpose=True)
            b[layer - 1] = out
            norm[layer - 1] = _norm(out)
            ratio = norm[layer - 1] / norm[layer] if norm[layer] > 0.0 else 0.0
            drop[layer - 1] = dropped * norm[layer] + ratio * drop[layer]
        first = b[0]
        predictor = self.output * (arrays[0][: first.shape[0]].T @ first[: arrays[0].shape[0]])
        _norm(predictor)
        return predictor, Passes(b, norm, drop, [], [], [])

    def forward(self, arrays: Sequence[Any], xi: np.ndarray, passes: Passes) -> None:
        """The vectors `f_l xi`, added to the passes.

        Raises:
            Diverged: if a norm is too large.
        """
        f = arrays[0][: self.spaces[0].dimension] @ xi
        passes.f, passes.f_norm, passes.f_drop = [f], [_norm(f)], [0.0]
        for layer in range(1, len(self.matrices) + 1):
            f, dropped = self._apply(layer, arrays[layer], f, transpose=False)
            passes.f.append(f)
            before, after = passes.f_norm[-1], _norm(f)
            ratio = after / before if before > 0.0 else 0.0
            passes.f_drop.append(dropped * before + ratio * passes.f_drop[-1])
            passes.f_norm.append(after)

    def _apply(
        self, layer: int, trained: Trained, vector: np.ndarray, transpose: bool
    ) -> tuple[np.ndarray, float]:
        """`H_l f` or its adjoint, and the fraction of the length that was dropped at most."""
        gain = (self.back_gains if transpose else self.gains)[layer - 1]
        matrix = self.matrices[layer - 1]
        dropped = 0.0
        target = self.spaces[layer - 1 if transpose else layer]
        if gain == 0.0:
            out = np.zeros((target.dimension, *vector.shape[1:]))
        else:
            known = matrix.rank_known
            out = matrix.rmatvec(vector) if transpose else matrix.matvec(vector)
            if matrix.rank_known == known and not target.explicit:
                dropped = gain * self.tolerance
            if gain != 1.0:
                out *= gain
        if isinstance(trained, TrainedMatrix):
            trained.add_product(vector, out, transpose)
        else:
            add_product(trained, vector, out, transpose)
        if self.alpha is not None:
            out *= self.alpha
            out[: vector.shape[0]] += vector
            dropped *= abs(self.alpha)
        return out, dropped

    def factors(self) -> list[float]:
        """Factors of the gradients of U, W_1, ..., W_n, V, the step size aside."""
        inner = 1.0 if self.alpha is None else self.alpha
        n = len(self.matrices)
        return [
            c * self.output * (inner if 0 < i <= n else 1.0)
            for i, c in enumerate(self.step_factors)
        ]

    def snapshot(self, arrays: Sequence[Any]) -> NetworkState:
        """A copy of the weights."""
        k = self.dimensions
        n = len(self.matrices)
        return NetworkState(
            tuple(self.spaces),
            tuple(self.matrices),
            padded(arrays[0], (k[0], *arrays[0].shape[1:])),
            tuple(
                w.copy() if isinstance(w, TrainedMatrix) else TrainedMatrix.from_array(w)
                for w in arrays[1 : n + 1]
            ),
            padded(arrays[-1], (k[n], *arrays[-1].shape[1:])),
        )


def _norm(array: np.ndarray) -> float:
    flat = array.ravel()
    norm = math.sqrt(flat @ flat)
    if not norm < LARGEST_NORM:
        raise Diverged
    return norm
