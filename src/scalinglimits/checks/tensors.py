"""Tensors inside whatever a module takes or returns, and moving batches.

Modules return tensors, tuples, dictionaries, dataclasses, and nests of these; so do data loaders.
"""

from __future__ import annotations

__all__ = ["HALF", "autocasts", "find_tensors", "full_precision", "move", "rms", "seeded"]

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
"""Precisions in which small updates do not survive."""


def find_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in a nest of containers, in order.

    Args:
        value: a tensor, tuple, list, mapping, dataclass, or a nest of these; others are passed by.

    Yields:
        The tensors.

    Example:
        >>> [tuple(t.shape) for t in find_tensors({"a": torch.ones(2), "b": (torch.ones(3), 4)})]
        [(2,), (3,)]
    """
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from find_tensors(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from find_tensors(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from find_tensors(getattr(value, field.name, None))


def move(value: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Return a batch with its tensors on a device, and its floating-point ones in a precision.

    Args:
        value: a tensor, tuple, list, mapping, dataclass, or a nest of these.
        device: where to; None leaves the tensors where they are.
        dtype: of floating-point tensors; None leaves them as they are.

    Returns:
        The same nest; what is no tensor is kept.
    """
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, Mapping):
        moved = {key: move(part, device, dtype) for key, part in value.items()}
        return moved if type(value) is dict else _rebuilt(value, moved)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(part, device, dtype) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(move(part, device, dtype) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: move(getattr(value, field.name), device, dtype)
            for field in dataclasses.fields(value)
            if field.init
        }
        return dataclasses.replace(value, **parts)
    return value


def rms(x: Tensor) -> Tensor:
    """Return the root mean square of a tensor's entries, in float32 at least.

    Args:
        x: of any shape.

    Returns:
        A tensor without axes, detached.
    """
    x = x.detach()
    if x.dtype not in (torch.float32, torch.float64):
        x = x.float()
    # The norm is one pass, without a squared copy.
    return torch.linalg.vector_norm(x) / max(x.numel(), 1) ** 0.5


def autocasts(tensor: Tensor) -> bool:
    """Return whether operations on a tensor run in half precision for now.

    Args:
        tensor: of any kind.

    Returns:
        Whether `torch.autocast` is on for its device.
    """
    device = tensor.device.type
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)


@contextmanager
def full_precision(tensor: Tensor) -> Iterator[None]:
    """Turn `torch.autocast` off: small updates do not survive half precision.

    Args:
        tensor: on the device that it is about.

    Yields:
        Nothing.
    """
    if not autocasts(tensor):
        yield
        return
    with torch.autocast(tensor.device.type, enabled=False):
        yield


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[Callable[[], None]]:
    """Seed the global generators within a context, and restore them afterwards.

    Args:
        seed: the seed.
        device: whose generator is seeded besides the CPU's.

    Yields:
        A function that seeds them again.
    """
    devices = [device] if device.type == "cuda" else []

    def again() -> None:
        # Not torch.manual_seed, which formats a stack trace for each kind of accelerator.
        torch.default_generator.manual_seed(seed)
        if devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    with torch.random.fork_rng(devices):
        again()
        yield again


def _rebuilt(value: Mapping[Any, Any], moved: dict[Any, Any]) -> Any:
    """A mapping of the same class where that can be made from a dictionary."""
    try:
        return type(value)(moved)  # type: ignore[call-arg]
    except TypeError:
        return moved
