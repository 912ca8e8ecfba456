"""Spectral norms by a few steps of Golub and Kahan's bidiagonalisation."""

from __future__ import annotations

__all__ = ["spectral_norm", "spectral_norms"]

from collections.abc import Sequence

import torch
from torch import Tensor

_STEPS = 4


def spectral_norm(weight: Tensor) -> Tensor:
    r"""Estimate the largest singular value of a matrix.

    Four steps from a fixed random unit vector $v_1$,

    $$\alpha_k u_k = W v_k - \beta_{k-1} u_{k-1}, \qquad
    \beta_k v_{k+1} = W^T u_k - \alpha_k v_k,$$

    then the largest singular value of the bidiagonal matrix of the $\alpha_k$ and $\beta_k$: a
    lower bound, much closer where few directions dominate, as in an update, than for a Gaussian
    matrix. There $\alpha_k \to \sqrt p$, $\beta_k \to \sqrt n$, so that at every size alike the
    estimate is low by the same factor, $\cos(\pi/9) = 0.94$ if the matrix is square.

    Args:
        weight: of shape (rows, columns); more axes are flattened into the columns.

    Returns:
        The estimate, a float32 tensor without axes, on the weight's device.

    Reference:
        G. Golub and W. Kahan, "Calculating the singular values and pseudo-inverse of a matrix"
        (1965).

    Example:
        >>> bool(abs(spectral_norm(torch.diag(torch.tensor([3.0, 2.0, 1.0]))) - 3) < 1e-5)
        True
    """
    return spectral_norms([weight])[0]


def spectral_norms(weights: Sequence[Tensor]) -> Tensor:
    """Estimate the largest singular value of each of several matrices.

    Args:
        weights: as for :func:`spectral_norm`, at least one.

    Returns:
        Their estimates, shape (matrices,).
    """
    found = [_bidiagonal(weight.detach().flatten(1).float()) for weight in weights]
    # One decomposition for all the small matrices.
    alphas = torch.stack([torch.stack(alpha) for alpha, _, _ in found])
    betas = torch.stack([torch.stack(beta) for _, beta, _ in found])
    B = torch.diag_embed(alphas) + torch.diag_embed(betas, 1)
    return torch.linalg.matrix_norm(B, ord=2) * torch.stack([size for _, _, size in found])


def _bidiagonal(W: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """The diagonals in units of the size."""
    tiny = torch.finfo(torch.float32).tiny
    # A fixed start: the same matrix gives the same value.
    v = torch.randn(W.shape[1], generator=torch.Generator().manual_seed(0)).to(W.device)
    v = v / torch.linalg.vector_norm(v)
    u = W @ v
    # In units of the first product, squares neither overflow nor underflow.
    size = u.abs().amax().clamp(min=tiny)
    u = u / size
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    for step in range(_STEPS):
        if step:
            u = torch.addcmul(W @ v / size, betas[-1], u, value=-1)
        alphas.append(torch.linalg.vector_norm(u))
        u = u / alphas[-1].clamp(min=tiny)
        if step < _STEPS - 1:
            v = torch.addcmul(u @ W / size, alphas[-1], v, value=-1)
            betas.append(torch.linalg.vector_norm(v))
            v = v / betas[-1].clamp(min=tiny)
    return alphas, betas, size
