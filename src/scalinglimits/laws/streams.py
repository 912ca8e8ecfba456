"""Named sub-streams of randomness.

A parameter, a layer or a replicate draws from a stream of its own, whose seed is a hash of the
root seed and of a name. So a draw depends neither on what was drawn before nor on the order or
the number of workers. (PyTorch's CPU generator keeps 32 bits of a seed: among n streams of one
experiment two coincide with probability of about n² / 2^33.)
"""

from __future__ import annotations

__all__ = ["derive_seed", "root_seed", "substream"]

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SEED_BITS = 63


def derive_seed(root: int, *names: str | int) -> int:
    """Return the seed in [0, 2^63) that belongs to ``names`` under ``root``.

    Args:
        root: the seed from which all streams of an experiment derive.
        *names: what the stream is for, from the general to the particular.

    Returns:
        The first 63 bits of the SHA-256 hash of the root and the names.

    Example:
        >>> derive_seed(0, "V") == derive_seed(0, "V")
        True
        >>> derive_seed(0, "V") == derive_seed(0, "W")
        False
    """
    text = "\x1f".join([str(int(root)), *(f"{type(name).__name__}:{name}" for name in names)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _SEED_BITS)


def root_seed(generator: torch.Generator | None = None) -> int:
    """Draw the root seed of an experiment from ``generator``.

    Args:
        generator: a torch generator, which moves on by one draw; None takes torch's default one.

    Returns:
        An integer in [0, 2^63).

    Example:
        >>> import torch
        >>> a, b = (root_seed(torch.Generator().manual_seed(0)) for _ in range(2))
        >>> a == b
        True
    """
    import torch

    device = "cpu" if generator is None else generator.device
    high = 2**_SEED_BITS - 1
    return int(torch.randint(high, (), generator=generator, device=device, dtype=torch.int64))


def substream(root: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a torch generator for the stream ``names`` under ``root``.

    Args:
        root: the root seed.
        *names: what the stream is for.
        device: where the generator draws.

    Returns:
        A generator seeded with :func:`derive_seed`.

    Example:
        >>> import torch
        >>> a, b = (torch.randn(2, generator=substream(0, "V")) for _ in range(2))
        >>> bool((a == b).all())
        True
    """
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(root, *names))
