r"""Loopless chains: the random vectors behind the basis of the infinite-width limit.

Iterated products of `Z` and `Z^T` with `U` are sums over bipartite chains; `J_k` keeps the chains
that visit no vertex twice, and `K_k` does the same for products with `V` (L, 3.2 to 3.4):

    J_k(i) = m^(-k/2) sum_{loopless k-chains ending at i} Z_{i, i_k} ... Z_{i_2, i_1} U_{i_1}.

As the width grows, `(J_0, J_1, ...)` and `(K_0, K_1, ...)` become independent standard Gaussian
vectors, and every iterated product becomes a combination of them, with the coefficients that
`GaussianMatrix` has at infinite width: the basis vectors are

    domain:   U = J_0, K_1, J_2, K_3, ...        codomain:   V = K_0, J_1, K_2, J_3, ...

The sum over chains without loops is an alternating sum over all chains whose vertices are
identified in some way: for a set partition `pi` of the vertices on one side, with blocks `b`, the
weight is the Moebius function `prod_b (-1)^(|b|-1) (|b|-1)!`. Each term is a contraction, so that
the cost is polynomial in the width.

Reference: "Infinite-width limit of deep linear neural networks" (L), section 3.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator

import numpy as np

__all__ = ["MAX_CHAIN_LENGTH", "chain_variance", "loopless_chain"]

MAX_CHAIN_LENGTH = 7


def loopless_chain(z: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """The vector `J_k` of loopless chains, (3.4); `K_k` is that of the transpose.

    Args:
        z: square array `Z` of unit-variance entries, shape `(m, m)`; for `K_k` give `Z.T`.
        start: the vector `U` (for `K_k`, `V`), shape `(m,)`.
        length: the number `k` of factors, from 0 to `MAX_CHAIN_LENGTH` (the number of terms
            is a product of two Bell numbers: 225 for `k = 7`).

    Returns:
        Array of shape `(m,)`.

    Raises:
        ValueError: if the shapes do not fit or the length is out of range.

    Example:
        >>> z, u = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])
        >>> loopless_chain(z, u, 2)  # (Z^T Z - diag(Z^T Z)) u / 2
        array([7., 7.])
    """
    z, start = np.asarray(z, dtype=np.float64), np.asarray(start, dtype=np.float64)
    if z.ndim != 2 or z.shape[0] != z.shape[1]:
        raise ValueError(f"`z` must be a square matrix; got shape {z.shape}")
    if start.shape != z.shape[:1]:
        raise ValueError(f"`start` must have shape {z.shape[:1]}; got {start.shape}")
    _check_length(length)
    if length == 0:
        return start.copy()
    # Vertices 0, ..., k in the order of the chain: even ones are columns of Z, odd ones are rows.
    columns, rows = range(0, length + 1, 2), range(1, length + 1, 2)
    total = np.zeros_like(start)
    for column_blocks in _partitions(len(columns)):
        for row_blocks in _partitions(len(rows)):
            label = {v: column_blocks[i] for i, v in enumerate(columns)}
            label |= {v: len(columns) + row_blocks[i] for i, v in enumerate(rows)}
            weight = _moebius(column_blocks) * _moebius(row_blocks)
            total += weight * _contract(z, start, label, length)
    return total / z.shape[0] ** (length / 2)


def chain_variance(width: int, length: int) -> float:
    """Exact variance of an entry of `J_k`: the number of loopless chains over `m^k`.

    Two different loopless chains that end at one vertex are uncorrelated. The last vertex is given;
    its side has as many others to choose among `m - 1` as it has further vertices, and the other
    side chooses among `m`.

    Args:
        width: the number `m` of vertices on either side.
        length: the number `k` of factors.

    Returns:
        The variance; it tends to one as the width grows.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> chain_variance(10, 2)  # 10 * 9 / 10^2
        0.9
    """
    if width < 1:
        raise ValueError(f"`width` must be at least 1; got {width}")
    if length < 0:
        raise ValueError(f"`length` must be non-negative; got {length}")
    same, other = length // 2, (length + 1) // 2
    return math.perm(width - 1, same) * math.perm(width, other) / width**length


def _contract(z: np.ndarray, start: np.ndarray, label: dict[int, int], length: int) -> np.ndarray:
    """The sum over all chains whose vertices are identified as the labels say."""
    names = {vertex: string.ascii_lowercase[block] for vertex, block in label.items()}
    factors = [names[0]]
    for step in range(length):
        row, column = (step + 1, step) if step % 2 == 0 else (step, step + 1)
        factors.append(names[row] + names[column])
    formula = f"{','.join(factors)}->{names[length]}"
    return np.einsum(formula, start, *[z] * length, optimize="greedy")


def _partitions(size: int) -> Iterator[tuple[int, ...]]:
    """All set partitions of `range(size)`, each as the block number of every element."""

    def extend(prefix: tuple[int, ...], blocks: int) -> Iterator[tuple[int, ...]]:
        if len(prefix) == size:
            yield prefix
            return
        for block in range(blocks + 1):
            yield from extend((*prefix, block), max(blocks, block + 1))

    return extend((), 0)


def _moebius(blocks: tuple[int, ...]) -> int:
    """Moebius function of the partition lattice, from all apart to this partition."""
    weight = 1
    for block in set(blocks):
        size = blocks.count(block)
        weight *= (-1) ** (size - 1) * math.factorial(size - 1)
    return weight


def _check_length(length: int) -> None:
    if not 0 <= length <= MAX_CHAIN_LENGTH:
        raise ValueError(f"`length` must be between 0 and {MAX_CHAIN_LENGTH}; got {length}")
