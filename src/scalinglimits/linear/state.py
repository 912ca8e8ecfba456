r"""The weights of a network, in coordinates.

At finite width, `U` is known by the coordinates of its `d` columns in the space of the first layer,
`W_l` by the array of its coordinates (it acts as `W_l f = sum_ij W_ij e_i <e_j, f>`), and `V` by
those of its columns in the space of the last layer. So Frobenius norms of the coordinates are
`|U|^2 / m`, `|W|^2 / m^2` and `|V|^2 / m`; at infinite width they are A, G and B of L, (2.10).
"""

from __future__ import annotations

__all__ = ["NetworkState", "Weights"]

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scalinglimits.matrices import NeuronSpace, RandomMatrix, entries

from ._validate import check_count
from .trained import TrainedMatrix


class Weights(NamedTuple):
    """Actual weights of the first neurons of each layer, in the scaled variables of order one.

    Attributes:
        U: shape `(q, d)`.
        W: the trained parts `W_l`, each of shape `(q, q)`.
        Z: the random parts `Z_l`, each of shape `(q, q)`.
        V: shape `(q,)`, or `(q, o)` with several outputs.
    """

    U: np.ndarray
    W: tuple[np.ndarray, ...]
    Z: tuple[np.ndarray, ...]
    V: np.ndarray


@dataclass(frozen=True)
class NetworkState:
    """The weights after some steps.

    Attributes:
        spaces: the spaces of the layers' neurons.
        matrices: the random hidden matrices.
        U: coordinates, shape `(k_0, d)`.
        trained: the trained parts of the hidden matrices.
        V: coordinates, shape `(k_n,)` or `(k_n, o)`.
    """

    spaces: tuple[NeuronSpace, ...]
    matrices: tuple[RandomMatrix, ...]
    U: np.ndarray
    trained: tuple[TrainedMatrix, ...]
    V: np.ndarray

    @property
    def W(self) -> tuple[np.ndarray, ...]:
        """Coordinates of the trained parts, arrays of shape `(k_l, k_{l-1})`."""
        k = [space.dimension for space in self.spaces]
        return tuple(w.dense((k[i + 1], k[i])) for i, w in enumerate(self.trained))

    def entries(self, count: int) -> Weights:
        """Actual weights of the first neurons of each layer (L, 2.13).

        States of one run refer to the same neurons, so reading several of them shows how weights
        move. At infinite width the run needs a seed.

        Args:
            count: number `q` of neurons, at most the width.

        Returns:
            The weights.

        Raises:
            ValueError: if there are fewer neurons, or the run had no seed.
        """
        check_count("count", count, 1)
        rows = [space.rows(count) for space in self.spaces]
        inner = tuple(w.between(rows[i + 1], rows[i]) for i, w in enumerate(self.trained))
        return Weights(
            entries(self.spaces[0], self.U, count),
            inner,
            tuple(matrix.entries(count) for matrix in self.matrices),
            entries(self.spaces[-1], self.V, count),
        )
