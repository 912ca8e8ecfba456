"""Which axes of a weight are summed over, which are produced, and what is packed in it.

A bare shape does not say it: a transposed convolution stores its inputs first, a grouped one
hides its groups, an attention layer stacks queries, keys and values. `Axes` says it once, and
fans, orthogonal draws and tables follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalinglimits.laws.fans import AxisLike, Fans, fans, normalize_axes

__all__ = ["Axes"]


@dataclass(frozen=True)
class Axes:
    """The meaning of a weight's axes; the default is PyTorch's dense layer or convolution.

    Axes that are neither input, output nor batch are a receptive field and count for both fans.

    Args:
        in_axis: The axis or axes of the inputs; ``()`` where an input element is an index, as
            in an embedding.
        out_axis: The axis or axes of the outputs.
        batch_axis: The axis or axes of independent copies, which count for no fan.
        blocks: The number of equal, independent maps packed along ``block_axis``: the groups of
            a convolution, the gates of a recurrent layer, or three for queries, keys and values.
        block_axis: The axis along which they are packed.
        in_share: The share of the terms that reach one output element: one over the product of
            strides in a transposed convolution.
        out_share: The share of the output elements that one input element feeds: one over the
            product of strides in a convolution.

    Raises:
        TypeError: If ``blocks`` is not an integer or a share is not a number.
        ValueError: If ``blocks`` is below one or a share is not in (0, 1].

    Example:
        >>> Axes().fans((256, 64))
        Fans(fan_in=64.0, fan_out=256.0)
        >>> Axes(blocks=3).fans((1536, 512))
        Fans(fan_in=512.0, fan_out=512.0)
    """

    in_axis: AxisLike = 1
    out_axis: AxisLike = 0
    batch_axis: AxisLike = ()
    blocks: int = 1
    block_axis: int = 0
    in_share: float = 1.0
    out_share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("in_axis", "out_axis", "batch_axis"):
            value = getattr(self, name)
            if isinstance(value, list):  # hashable, and not to be changed later
                object.__setattr__(self, name, tuple(value))
        if isinstance(self.blocks, bool) or not isinstance(self.blocks, int):
            raise TypeError(f"`blocks` must be an integer; got {self.blocks!r}")
        if self.blocks < 1:
            raise ValueError(f"`blocks` must be at least 1; got {self.blocks}")
        for name in ("in_share", "out_share"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, (int, float)):
                raise TypeError(f"`{name}` must be a real number; got {share!r}")
            if not 0.0 < share <= 1.0:
                raise ValueError(f"`{name}` must be above 0 and at most 1; got {share}")

    def fans(self, shape: Sequence[int]) -> Fans:
        """Return the fans of a weight of this shape, those of one block where it is packed.

        Args:
            shape: The shape of the whole weight.

        Returns:
            The two fans.

        Raises:
            TypeError: If an axis is not an integer.
            ValueError: If an axis is out of range or used twice, or the blocks do not fill
                their axis.
        """
        full = fans(self.block_shape(shape), self.in_axis, self.out_axis, self.batch_axis)
        return Fans(full.fan_in * self.in_share, full.fan_out * self.out_share)

    def block_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one block of a weight of this shape.

        Args:
            shape: The shape of the whole weight.

        Returns:
            The shape with ``block_axis`` divided by ``blocks``.

        Raises:
            ValueError: If the blocks do not fill their axis.
        """
        sizes = list(shape)
        if self.blocks > 1:
            if not -len(sizes) <= self.block_axis < len(sizes):
                raise ValueError(
                    f"`block_axis` must lie in [{-len(sizes)}, {len(sizes)}) for a weight of "
                    f"{len(sizes)} axes; got {self.block_axis}"
                )
            if sizes[self.block_axis] % self.blocks:
                raise ValueError(
                    f"`blocks` must divide axis {self.block_axis} of the weight; got "
                    f"{self.blocks} blocks in an axis of size {sizes[self.block_axis]}"
                )
            sizes[self.block_axis] //= self.blocks
        return tuple(sizes)

    def matrices(self, shape: Sequence[int]) -> MatrixView:
        """Return how a weight of this shape is a stack of matrices, one for each block.

        Args:
            shape: The shape of the whole weight.

        Returns:
            The view.

        Raises:
            TypeError: If an axis is not an integer.
            ValueError: If an axis is out of range or used twice, or the blocks do not fill
                their axis.
        """
        block = self.block_shape(shape)
        inputs, outputs, batch = normalize_axes(
            len(block), in_axis=self.in_axis, out_axis=self.out_axis, batch_axis=self.batch_axis
        )
        field = tuple(a for a in range(len(block)) if a not in {*inputs, *outputs, *batch})
        # Strides thin out one side. The field goes to the other, so that patches that do not
        # overlap (stride = kernel) give an exact isometry.
        rows = (*outputs, *field) if self.in_share < self.out_share else outputs
        columns = inputs if self.in_share < self.out_share else (*inputs, *field)
        axis = self.block_axis % len(block) if block else 0
        split = (*block[:axis], self.blocks, *block[axis:])

        def place(group: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a + (a >= axis) for a in group)

        return MatrixView(
            split=split,
            order=(axis, *place(batch), *place(rows), *place(columns)),
            rows=math.prod(block[a] for a in rows),
            columns=math.prod(block[a] for a in columns),
        )


@dataclass(frozen=True)
class MatrixView:
    """A weight as a stack of matrices: reshape to ``split``, permute by ``order``, flatten."""

    split: tuple[int, ...]
    order: tuple[int, ...]
    rows: int
    columns: int
