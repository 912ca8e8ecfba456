"""Deterministic mini-batches: the same seed gives the same batches, wherever one starts."""

from __future__ import annotations

__all__ = ["minibatches"]

from collections.abc import Iterator

import numpy as np


def minibatches(
    size: int, batch_size: int, *, seed: int = 0, start: int = 0, steps: int | None = None
) -> Iterator[np.ndarray]:
    """Yield indices of mini-batches: each epoch is a new shuffle, of which the last part may go.

    The batch of a step depends on the seed and the step alone, so that a run that is resumed at
    step ``start`` sees what it would have seen.

    Args:
        size: number of samples.
        batch_size: samples a batch, at most ``size``.
        seed: of the shuffles, a non-negative integer.
        start: the first step.
        steps: how many batches; None goes on for ever.

    Yields:
        Indices, int64 of shape (batch_size,).

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> whole = list(minibatches(10, 3, seed=1, steps=5))
        >>> rest = list(minibatches(10, 3, seed=1, start=3, steps=2))
        >>> all((a == b).all() for a, b in zip(whole[3:], rest))
        True
    """
    for name, value, least in (
        ("size", size, 1), ("batch_size", batch_size, 1), ("seed", seed, 0), ("start", start, 0),
        ("steps", steps if steps is not None else 0, 0),
    ):  # fmt: skip
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ValueError(f"`{name}` must be an integer of at least {least}; got {value!r}")
    if batch_size > size:
        raise ValueError(f"`batch_size` must be at most the size {size}; got {batch_size!r}")
    return _generate(size, batch_size, seed, start, steps)


def _generate(
    size: int, batch_size: int, seed: int, start: int, steps: int | None
) -> Iterator[np.ndarray]:
    per_epoch = size // batch_size
    step, shuffled_epoch, order = start, -1, np.empty(0, dtype=np.int64)
    while steps is None or step < start + steps:
        epoch, position = divmod(step, per_epoch)
        if epoch != shuffled_epoch:
            order = np.random.default_rng([seed, epoch]).permutation(size)
            shuffled_epoch = epoch
        yield order[position * batch_size : (position + 1) * batch_size]
        step += 1
