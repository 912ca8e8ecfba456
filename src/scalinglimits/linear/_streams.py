"""Sub-streams of randomness: one for each part of a network, and one seed for each replicate.

So a draw depends neither on what else was drawn nor on the order.
"""

from __future__ import annotations

__all__ = ["MATRIX", "PREDICTOR", "SPACE", "replicate_seed", "stream"]

import numpy as np

SPACE, MATRIX, PREDICTOR, BAND, _REPLICATE = range(5)


def stream(seed: int | None, kind: int, index: int = 0) -> np.random.Generator | None:
    """The generator of a part; `None` without a seed."""
    if seed is None:
        return None
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(kind, index)))


def replicate_seed(seed: int, index: int) -> int:
    """The seed of a replicate, whatever their number.

    Args:
        seed: root seed.
        index: index of the replicate.

    Returns:
        An integer in `[0, 2^64)`.

    Example:
        >>> replicate_seed(0, 0) == replicate_seed(0, 1)
        False
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(_REPLICATE, index))
    return int(sequence.generate_state(1, np.uint64)[0])
