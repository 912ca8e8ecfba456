r"""Draws of a whole tensor, block by block, each block from a stream of its own.

A block is a run of rows with about four million numbers. Its stream is seeded by the tensor's
seed and the block's number, so a process draws only the blocks of which it holds something, and
the values depend neither on the sharding nor on the number of processes. Numbers are drawn in
contiguous memory, in float64 for float64 tensors and in float32 for all others, and rounded
once: memory layout and precision do not change the draw.

In main memory, uniform numbers and signs are made from the raw bits of NumPy's SFC64, which
needs half the time of PyTorch's generator; normal numbers are PyTorch's, whose vectorised
transform is the faster one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from scalinglimits.init._shards import Region, open_region
from scalinglimits.init.axes import Axes
from scalinglimits.laws import EntryLaw, TruncatedNormal
from scalinglimits.laws.streams import derive_seed

__all__ = ["DISTRIBUTIONS", "Drawer", "draw_", "draw_blocks_", "orthogonal_", "working_dtype"]

DISTRIBUTIONS = ("normal", "truncated_normal", "uniform", "rademacher", "orthogonal")

BLOCK = 2**22
"""The size of a block; part of what a seed means."""

Drawer = Callable[[torch.Tensor, int], None]
"""Fills a contiguous buffer, on the buffer's device, from the stream of a seed."""

_CUT = 2.0
_PIECE = 2**15  # numbers; too few for PyTorch to start threads that cost more than they save


def draw_(
    tensor: torch.Tensor,
    distribution: str | EntryLaw,
    std: float,
    axes: Axes,
    seed: int,
    device: torch.device | None,
    zero_row: int | None = None,
) -> None:
    """Fill a tensor in place with mean 0 and deviation ``std``.

    Args:
        tensor: What to fill; nothing happens if it is empty or on the meta device.
        distribution: A name in `DISTRIBUTIONS` or a law of one entry.
        std: The standard deviation of each entry.
        axes: The meaning of the tensor's axes, for orthogonal matrices.
        seed: The tensor's seed.
        device: Where to draw; None for where the tensor is.
        zero_row: A row to set to zero afterwards.
    """
    if tensor.is_meta or tensor.numel() == 0:
        return
    with torch.no_grad():
        region = open_region(tensor)
        if distribution == "orthogonal":
            orthogonal_(region, std, axes, seed, device)
        else:
            draw_blocks_(region, _drawer(distribution, std), seed, device)
        if zero_row is not None:
            region.zero_row(zero_row)


def draw_blocks_(region: Region, draw: Drawer, seed: int, device: torch.device | None) -> None:
    """Fill what is held of a tensor, drawing each block of which something is held."""
    local = region.local
    device = local.device if device is None else device
    dtype = working_dtype(local.dtype)
    direct = region.whole and local.dtype == dtype and local.device == device
    length, rest = region.shape[0], region.shape[1:]
    step = max(1, BLOCK // max(1, math.prod(rest)))
    for block, start in enumerate(range(0, length, step)):
        stop = min(start + step, length)
        if not region.holds_rows(start, stop):
            continue
        stream = derive_seed(seed, "block", block)
        if direct and local[start:stop].is_contiguous():
            draw(local[start:stop], stream)
        else:
            buffer = torch.empty((stop - start, *rest), dtype=dtype, device=device)
            draw(buffer, stream)
            region.write_rows(buffer, start)


def orthogonal_(
    region: Region, std: float, axes: Axes, seed: int, device: torch.device | None
) -> None:
    r"""Fill with matrices of orthonormal rows or columns, scaled to entries of deviation ``std``.

    Each matrix is uniform (Haar): the Q of a Gaussian matrix, with the signs of R's diagonal
    moved into it. A matrix of r rows and c columns has entries of mean square 1/max(r, c).
    """
    device = region.local.device if device is None else device
    dtype = working_dtype(region.local.dtype)
    view = axes.matrices(region.shape)
    long, short = max(view.rows, view.columns), min(view.rows, view.columns)
    count = math.prod(region.shape) // (long * short)
    gaussian = torch.empty((count, long, short), dtype=dtype, device=device)
    draw_blocks_(open_region(gaussian), _normal(1.0), seed, device)
    q, r = torch.linalg.qr(gaussian)
    signs = r.diagonal(dim1=-2, dim2=-1).sgn()
    q *= signs.masked_fill(signs == 0, 1.0).unsqueeze(-2)
    if view.rows < view.columns:
        q = q.transpose(-2, -1)
    permuted = q.reshape([view.split[axis] for axis in view.order])
    back = [view.order.index(axis) for axis in range(len(view.order))]
    whole = permuted.permute(back).reshape(region.shape).mul(std * math.sqrt(long))
    region.write_rows(whole, 0)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which numbers are drawn for a tensor of type ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _drawer(distribution: str | EntryLaw, std: float) -> Drawer:
    if isinstance(distribution, EntryLaw):
        return _entries(distribution, std)
    return {
        "normal": _normal,
        "truncated_normal": _truncated_normal,
        "uniform": _uniform,
        "rademacher": _rademacher,
    }[distribution](std)


def _normal(std: float) -> Drawer:
    def draw(buffer: torch.Tensor, seed: int) -> None:
        buffer.normal_(0.0, std, generator=_generator(buffer, seed))

    return draw


def _uniform(std: float) -> Drawer:
    bound = std * math.sqrt(3.0)

    def draw(buffer: torch.Tensor, seed: int) -> None:
        if buffer.device.type != "cpu":
            buffer.uniform_(-bound, bound, generator=_generator(buffer, seed))
            return
        for piece, unit in _raw_pieces(buffer, seed):
            piece.mul_(bound * unit)

    return draw


def _truncated_normal(std: float) -> Drawer:
    # Inverse distribution function: √2 erfinv(u), u uniform on ±erf(cut/√2), rescaled so that
    # the deviation after the cut is `std`.
    share = math.erf(_CUT / math.sqrt(2.0))
    factor = std * math.sqrt(2.0) * TruncatedNormal(_CUT).bound / _CUT

    def draw(buffer: torch.Tensor, seed: int) -> None:
        if buffer.device.type != "cpu":
            generator = _generator(buffer, seed)
            buffer.uniform_(-share, share, generator=generator).erfinv_().mul_(factor)
            return
        for piece, unit in _raw_pieces(buffer, seed):
            piece.mul_(share * unit)
        buffer.erfinv_().mul_(factor)  # at once: PyTorch starts threads for it

    return draw


def _rademacher(std: float) -> Drawer:
    def draw(buffer: torch.Tensor, seed: int) -> None:
        if buffer.device.type != "cpu":
            buffer.random_(0, 2, generator=_generator(buffer, seed)).mul_(2.0 * std).sub_(std)
            return
        for piece, _ in _raw_pieces(buffer, seed):
            # Half a step more, so that no value is zero and both signs are as likely.
            piece.add_(0.5).sign_().mul_(std)

    return draw


def _entries(law: EntryLaw, std: float) -> Drawer:
    def draw(buffer: torch.Tensor, seed: int) -> None:
        generator = _generator(buffer, seed)
        values = law.sample(tuple(buffer.shape), generator, dtype=buffer.dtype)
        torch.mul(values, std, out=buffer)

    return draw


def _generator(buffer: torch.Tensor, seed: int) -> torch.Generator:
    return torch.Generator(buffer.device).manual_seed(seed)


def _raw_pieces(buffer: torch.Tensor, seed: int) -> Iterator[tuple[torch.Tensor, float]]:
    """Fill a buffer with random integers, and yield it in pieces that stay in the cache.

    Integers are uniform on all of int32 (int64 for float64). The second thing yielded is the
    unit that takes them to [-1, 1].
    """
    bits = 8 * buffer.element_size()
    kind = np.dtype(f"int{bits}")
    stream = np.random.SFC64(seed)
    flat = buffer.view(-1)
    for start in range(0, flat.numel(), _PIECE):
        piece = flat[start : start + _PIECE]
        raw = stream.random_raw(-(-piece.numel() * kind.itemsize // 8)).view(kind)
        piece.copy_(torch.from_numpy(raw[: piece.numel()]))
        yield piece, 2.0 ** (1 - bits)
