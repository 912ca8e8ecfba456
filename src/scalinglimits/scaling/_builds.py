"""Models built without memory: their parameters' names, shapes, owners and initial laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from scalinglimits.scaling._record import LawRecorder
from scalinglimits.scaling.entry import InitLaw
from scalinglimits.scaling.sizes import Size

__all__ = ["Builder", "Snapshot"]

Build = Callable[..., Any]


@dataclass
class Snapshot:
    """A model of one size: each tensor once, under its first name."""

    size: Size
    model: nn.Module
    shapes: dict[str, tuple[int, ...]]
    aliases: dict[str, tuple[str, ...]]
    laws: dict[str, InitLaw | None] = field(repr=False)

    @property
    def parameters(self) -> int:
        return sum(self.model.get_parameter(name).numel() for name in self.shapes)


class Builder:
    """Call the user's `build` on the meta device, once a size, and check what it returns."""

    def __init__(self, build: Build) -> None:
        if not callable(build):
            raise TypeError(f"`build` must be callable; got {build!r}")
        self.function = build
        self._cache: dict[Size, Snapshot] = {}

    def meta(self, size: Size) -> Snapshot:
        """Return the model of that size on the meta device."""
        if size not in self._cache:
            self._cache[size] = self._snapshot(size, "meta")
        return self._cache[size]

    def concrete(self, size: Size, seed: int = 0) -> Snapshot:
        """Return the model of that size with its weights."""
        return self._snapshot(size, "cpu", seed)

    def fake(self, size: Size) -> Snapshot | None:
        """Return the model as built with memory, but without; None if it needs values."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode():
                return self._snapshot(size, "cpu")
        except ValueError:
            return None

    def _snapshot(self, size: Size, device: str, seed: int = 0) -> Snapshot:
        recorder = LawRecorder()
        with torch.random.fork_rng(devices=[]), torch.device(device), recorder.recording():
            torch.manual_seed(seed)
            try:
                model = size.build(self.function)
            except Exception as error:
                raise ValueError(
                    f"`build` must return a module at {size} on the {device} device; "
                    f"it raised {type(error).__name__}: {error}"
                ) from error
        if not isinstance(model, nn.Module):
            raise TypeError(f"`build` must return a torch.nn.Module; got {type(model).__name__}")
        names: dict[int, list[str]] = {}
        tensors: dict[int, nn.Parameter] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise ValueError(f"`build` must give `{name}` a shape; it is a lazy parameter")
            names.setdefault(id(parameter), []).append(name)
            tensors[id(parameter)] = parameter
        if not names:
            raise ValueError(f"`build` must return a module with parameters; at {size} it has none")
        first = {key: all_names[0] for key, all_names in names.items()}
        return Snapshot(
            size,
            model,
            {first[key]: tuple(tensor.shape) for key, tensor in tensors.items()},
            {first[key]: tuple(all_names[1:]) for key, all_names in names.items()},
            {first[key]: recorder.law(tensor) for key, tensor in tensors.items()},
        )
