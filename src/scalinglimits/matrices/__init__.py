"""Random matrices of any width, infinite included, known by their products.

A `NeuronSpace` is a layer of `width` neurons (an integer up to 10^18, or `math.inf`) with the inner
product `(1/m) sum_i a_i b_i`. Its vectors are NumPy arrays of coordinates in an orthonormal basis
that grows as vectors appear; missing coordinates are zero, so older, shorter arrays stay valid.

::

    space = NeuronSpace(width, generator=seed)      # seed optional at math.inf
    U = space.draw(d)                               # (k, d): d fresh vectors of i.i.d. entries
    space.dimension                                 # k now; never more than the width
    space.pad(v), space.inner(a, b)                 # zero-padding; inner products

A random matrix maps one space to another, and is sampled by its products::

    W = GaussianMatrix(domain, codomain)            # or HaarMatrix, DenseMatrix(entries=law)
    W.matvec(a)                                     # W a: coordinates in the codomain
    W.rmatvec(b)                                    # W^T b: coordinates in the domain
                                                    # a, b: (k,) or a block (k, c)
    GaussianMatrix(domain, codomain, "fan_out", scale=2.0, tolerance=1e-10, generator=seed)

`GaussianMatrix` and `HaarMatrix` never hold the matrix: each product is drawn from its law given
the earlier ones, exactly at every finite width, and is deterministic at infinite width. They work
between spaces of different widths (`relative_width` states the ratio of infinite ones).
`DenseMatrix` holds its entries, between spaces made with `explicit=True`. One object is one matrix:
used in two places it gives answers that agree. `rank_known`, `shape`, `variance`, `forward_gain`
and `backward_gain` describe it.

::

    entries(space, vectors, q)                      # their values at the first q neurons
    W.entries(q)                                    # the first q x q entries, over their deviation

`loopless_chain` makes the vectors J_k, K_k (L, 3.4), which tend to the implicit basis.

For the theory see `docs/random-matrices.md`; letters and equation numbers are those of
"Infinite-width limit of deep linear neural networks" (L).
"""

from scalinglimits.matrices.base import VARIANCE_MODES, RandomMatrix
from scalinglimits.matrices.chains import MAX_CHAIN_LENGTH, chain_variance, loopless_chain
from scalinglimits.matrices.dense import DenseMatrix
from scalinglimits.matrices.entries import entries
from scalinglimits.matrices.gaussian import GaussianMatrix
from scalinglimits.matrices.haar import HaarMatrix
from scalinglimits.matrices.haar_blocks import HaarBlock
from scalinglimits.matrices.spaces import MAX_WIDTH, EntryLaw, NeuronSpace

__all__ = [
    "MAX_CHAIN_LENGTH",
    "MAX_WIDTH",
    "VARIANCE_MODES",
    "DenseMatrix",
    "EntryLaw",
    "GaussianMatrix",
    "HaarBlock",
    "HaarMatrix",
    "NeuronSpace",
    "RandomMatrix",
    "chain_variance",
    "entries",
    "loopless_chain",
]
