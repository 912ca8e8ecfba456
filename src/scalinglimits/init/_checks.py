"""Argument checks shared by the initialisers: each returns a plain value or raises."""

from __future__ import annotations

import math
import numbers
import warnings
from fnmatch import fnmatchcase

import torch
from torch.nn.parameter import is_lazy

from scalinglimits.init._draws import DISTRIBUTIONS
from scalinglimits.init._shards import is_distributed
from scalinglimits.laws import EntryLaw
from scalinglimits.laws.fans import MODES
from scalinglimits.laws.streams import root_seed

__all__ = [
    "check_distribution",
    "check_integer",
    "check_mode",
    "check_scale",
    "check_tensor",
    "matching",
    "resolve_seed",
    "warn_underflow",
]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_tensor(name: str, tensor: object) -> torch.Tensor:
    """Return ``tensor`` if it is a real floating-point tensor that has a shape."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"`{name}` must be a torch.Tensor; got {type(tensor).__name__}")
    if is_lazy(tensor):
        kind = type(tensor).__name__  # its values cannot be printed
        raise ValueError(f"`{name}` must have a shape: run a lazy module once first; got {kind}")
    if tensor.dtype not in _DTYPES:
        raise TypeError(
            f"`{name}` must be of type float16, bfloat16, float32 or float64; got {tensor.dtype}"
        )
    return tensor


def check_mode(mode: object) -> str:
    """Return ``mode`` if it names an average of fans."""
    if not isinstance(mode, str):
        raise TypeError(f"`mode` must be a string; got {mode!r}")
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}; got {mode!r}")
    return mode


def check_distribution(distribution: object) -> str | EntryLaw:
    """Return ``distribution`` if it is a known name or an entry law."""
    if isinstance(distribution, EntryLaw):
        return distribution
    if not isinstance(distribution, str):
        raise TypeError(f"`distribution` must be a string or an EntryLaw; got {distribution!r}")
    if distribution not in DISTRIBUTIONS:
        names = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"`distribution` must be one of {names}; got {distribution!r}")
    return distribution


def check_scale(name: str, value: object) -> float:
    """Return ``value`` as a finite number that is not negative; zero is a weight of zeros."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a real number; got {value!r}")
    if not 0.0 <= float(value) < math.inf:
        raise ValueError(f"`{name}` must be finite and not negative; got {value}")
    return float(value)


def check_integer(name: str, value: object) -> int:
    """Return ``value`` as an ``int``; NumPy integers are welcome, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"`{name}` must be an integer; got {value!r}")
    return int(value)


def resolve_seed(
    seed: int | None, generator: torch.Generator | None, tensors: list[torch.Tensor]
) -> tuple[int, torch.device | None]:
    """Return the root seed, and where to draw: None for where each tensor lives."""
    if seed is not None and generator is not None:
        raise ValueError("`seed` must not be given together with `generator`; got both")
    if seed is not None:
        return check_integer("seed", seed), torch.device("cpu")
    if generator is None:
        if any(is_distributed(tensor) for tensor in tensors):
            raise ValueError(
                "`seed` must be given for a sharded tensor, the same on every process; got None"
            )
        return root_seed(None), None
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"`generator` must be a torch.Generator; got {generator!r}")
    return root_seed(generator), generator.device


def warn_underflow(name: str, std: float, dtype: torch.dtype) -> None:
    """Warn where a deviation is below the smallest normal number of the type."""
    smallest = torch.finfo(dtype).tiny
    if 0.0 < std < smallest:
        warnings.warn(
            f"{name}: the standard deviation {std:.3g} is below {smallest:.3g}, the smallest "
            f"normal number of {dtype}, so values are rounded coarsely or to zero",
            stacklevel=3,
        )


def matching(patterns: list[str], names: tuple[str, ...]) -> list[str]:
    """Return the patterns that match one of the names, in the order of the patterns."""
    return [p for p in patterns if any(fnmatchcase(name, p) for name in names)]
