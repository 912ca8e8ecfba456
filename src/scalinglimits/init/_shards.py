"""What this process holds of a tensor: all of it, or its shards of a distributed one.

A distributed tensor is described by one vector of global indices for each of its axes. That
covers every layout whose local part is a product of index sets: `Shard`, nested shards, uneven
ones, and the strided shards of data and tensor parallelism on one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Region", "held_indices", "is_distributed", "open_region"]


@dataclass(frozen=True)
class Region:
    """The part of a tensor that this process holds.

    Args:
        local: The memory of that part.
        shape: The shape of the whole tensor, of one axis at least.
        indices: For each axis the global indices held, sorted; None where all are.
    """

    local: torch.Tensor
    shape: tuple[int, ...]
    indices: tuple[torch.Tensor | None, ...]

    @property
    def whole(self) -> bool:
        """Whether this process holds all of the tensor."""
        return all(index is None for index in self.indices)

    def holds_rows(self, start: int, stop: int) -> bool:
        """Whether some of rows ``start`` to ``stop`` of the whole tensor are held here."""
        if self.local.numel() == 0:
            return False
        first, last = self._range(start, stop)
        return first < last

    def write_rows(self, rows: torch.Tensor, start: int) -> None:
        """Copy what is held here of rows ``start``, … of the whole tensor."""
        first, last = self._range(start, start + rows.shape[0])
        index = self.indices[0]
        if index is not None:
            rows = rows.index_select(0, (index[first:last] - start).to(rows.device))
        for axis, held in enumerate(self.indices[1:], start=1):
            if held is not None:
                rows = rows.index_select(axis, held.to(rows.device))
        self.local[first:last].copy_(rows)

    def zero_row(self, row: int) -> None:
        """Set one row of the whole tensor to zero, where it is held."""
        first, last = self._range(row, row + 1)
        self.local[first:last].zero_()

    def _range(self, start: int, stop: int) -> tuple[int, int]:
        index = self.indices[0]
        if index is None:
            return start, stop
        first, last = torch.searchsorted(index, torch.tensor([start, stop])).tolist()
        return first, last


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a DTensor, without importing torch.distributed."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def open_region(tensor: torch.Tensor) -> Region:
    """Return the part of ``tensor`` that this process holds."""
    tensor = tensor.detach()
    shape = tuple(tensor.shape)
    if is_distributed(tensor):
        distributed: Any = tensor
        mesh = distributed.device_mesh
        place = mesh.get_coordinate() or []
        indices = held_indices(shape, distributed.placements, tuple(mesh.shape), place)
        return Region(distributed.to_local(), shape, indices)
    if not shape:
        tensor, shape = tensor.reshape(1), (1,)
    return Region(tensor, shape, (None,) * len(shape))


def held_indices(
    shape: Sequence[int], placements: Sequence[Any], mesh: Sequence[int], coordinate: Sequence[int]
) -> tuple[torch.Tensor | None, ...]:
    """Return for each axis of a tensor the global indices held at one place of a mesh.

    Args:
        shape: The shape of the whole tensor.
        placements: One placement for each axis of the mesh.
        mesh: The shape of the mesh.
        coordinate: The place; empty for a process outside the mesh.

    Returns:
        Sorted indices, or None for an axis that is not split.

    Raises:
        ValueError: If a placement is neither a shard nor a replica.
    """
    indices: list[torch.Tensor | None] = [None] * len(shape)
    for axis, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        if not hasattr(placement, "dim"):
            raise ValueError(f"`tensor` must be sharded or replicated; got placement {placement}")
        held = indices[placement.dim]
        if held is None:
            held = torch.arange(shape[placement.dim])
        # A strided shard comes after other splits of the axis: it takes its part of each.
        parts = getattr(placement, "split_factor", 1)
        pieces = [
            _chunk(part, mesh[axis], coordinate[axis] if coordinate else mesh[axis])
            for part in held.chunk(parts)
        ]
        indices[placement.dim] = torch.cat(pieces)
    return tuple(indices)


def _chunk(values: torch.Tensor, count: int, which: int) -> torch.Tensor:
    chunks = values.chunk(count)  # fewer than `count` where they do not suffice, as in DTensor
    return chunks[which] if which < len(chunks) else values[:0]
