"""Spectral norms by a block Krylov iteration: six passes over the matrix."""

from __future__ import annotations

__all__ = ["spectral_norm"]

import torch
from torch import Tensor

_VECTORS, _POWERS = 8, 2


def spectral_norm(weight: Tensor) -> Tensor:
    r"""Estimate the largest singular value of a matrix.

    With a random $G$ of eight columns, the Rayleigh-Ritz value on the span of $WG$, $(WW^T)WG$ and
    $(WW^T)^2WG$: a lower bound, 2 to 3 % low for Gaussian matrices (whose largest singular values
    lie densely) and exact to rounding for matrices of low rank, such as an update.

    Args:
        weight: of shape (rows, columns); more axes are flattened into the columns.

    Returns:
        The estimate, a float32 tensor without axes.

    Example:
        >>> bool(abs(spectral_norm(torch.diag(torch.tensor([3.0, 2.0, 1.0]))) - 3) < 1e-5)
        True
    """
    W = weight.detach().flatten(1).float()
    if W.shape[0] < W.shape[1]:
        W = W.T
    scale = torch.linalg.vector_norm(W)
    if not bool(scale > 0):
        return scale
    if min(W.shape) <= 3 * _VECTORS:
        W = W / scale
        return torch.linalg.matrix_norm(W.T @ W, ord=2).sqrt() * scale
    # A fixed start: the same matrix gives the same value.
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(W.shape[1], _VECTORS, generator=generator).to(W.device)
    block = (W @ start) / scale
    blocks = [block]
    for _ in range(_POWERS):
        block = W @ (W.T @ block)
        block = block / block.norm()
        blocks.append(block)
    basis, _ = torch.linalg.qr(torch.cat(blocks, dim=1))
    return torch.linalg.matrix_norm((W.T @ basis) / scale, ord=2) * scale
