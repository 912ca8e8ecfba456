r"""Actual weights of the first neurons, from coordinates.

A vector of coordinates `c` has the entry `sum_i c_i Gamma_i` at a neuron, where `Gamma_i` is the
entry of the basis vector `e_i` there: independent Gaussians at infinite width (L, 2.12 and 2.13),
rows of a Haar frame at finite width, and the law of the initial weights for the vectors drawn with
one (L, remark v).

Reference: "Infinite-width limit of deep linear neural networks" (L), Theorem 2.2, Figure 2.3.
"""

from __future__ import annotations

import numpy as np

from scalinglimits.matrices.spaces import NeuronSpace

__all__ = ["entries"]


def entries(space: NeuronSpace, vectors: np.ndarray, count: int) -> np.ndarray:
    """Entries of vectors at the first `count` neurons of their space.

    For the entries of a matrix see `RandomMatrix.entries`; all refer to the same neurons.

    Args:
        space: the space of the vectors.
        vectors: coordinates, shape `(k,)` or `(k, c)`.
        count: number of neurons, at most the width.

    Returns:
        Array of shape `(count,)` or `(count, c)`.

    Raises:
        ValueError: if there are fewer neurons, the shape does not fit the space, or the space has
            no generator.

    Example:
        >>> space = NeuronSpace(4, generator=0)
        >>> v = space.draw()
        >>> values = entries(space, v, 4)
        >>> bool(np.isclose(np.mean(values**2), space.inner(v, v)[0, 0]))
        True
    """
    vectors = space.coordinates(vectors)
    return space.rows(count)[:, : vectors.shape[0]] @ vectors
