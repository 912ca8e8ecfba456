"""One pass forward and backward through a model, with second moments at every leaf layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

__all__ = ["Pass", "Visit", "probe"]

_COMPOSITE = (nn.MultiheadAttention,)  # uses its children's weights, not their forward


@dataclass(eq=False)
class Visit:
    """One call of one leaf layer.

    Args:
        name: The layer's path.
        module: The layer.
        call: The number of earlier calls.
        second_moment: Mean square of its input; 1 for an index.
        shape: The shape of its input; empty for an index.
        forward: Mean square of its output over that of its input.
        backward: Mean square of the gradient it passes down over that of the one it receives.
    """

    name: str
    module: nn.Module
    call: int
    second_moment: float
    shape: tuple[int, ...] = ()
    forward: float = math.nan
    backward: float = math.nan
    received: float = math.nan
    unit: float = 1.0


@dataclass(frozen=True)
class Pass:
    """What one pass shows.

    Args:
        visits: The calls of leaf layers, in order.
        chain: Whether each leaf's input is the last one's output, and nothing else happens.
        second_moment: Mean square of the model's input; 1 for an index.
        forward: Mean square of the model's output over that of its input.
        backward: Mean square of the gradient at the input over that at the output.
    """

    visits: list[Visit]
    chain: bool
    second_moment: float
    forward: float
    backward: float


def probe(model: nn.Module, inputs: tuple[Any, ...], generator: torch.Generator) -> Pass:
    """Run a model on inputs, and backward on a Gaussian gradient at its output.

    Args:
        model: The model; its parameters' gradients are not touched.
        inputs: Its arguments.
        generator: A CPU generator for the gradient at the output.

    Returns:
        What the pass shows.

    Raises:
        TypeError: If the output holds no floating-point tensor.
    """
    watch = _Watch()
    handles: list[Any] = []
    for name, module in _leaves(model):
        handles.append(module.register_forward_pre_hook(watch.before(name)))
        handles.append(module.register_forward_hook(watch.after))
    arguments = tuple(x.detach().clone().requires_grad_() if _is_float(x) else x for x in inputs)
    source = _first(arguments)
    watch.follow(source)
    try:
        with torch.enable_grad():
            output = _first(model(*arguments))
            if output is None:
                raise TypeError(
                    "`model` must return a floating-point tensor, or a tuple, list or "
                    "mapping with one"
                )
            chain = watch.chain and watch.follows(output)
            cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64)
            cotangent = cotangent.to(output.device, output.dtype)
            wanted = [source, *watch.entries] if source is not None else watch.entries
            if output.requires_grad and wanted:
                torch.autograd.grad(output, wanted, cotangent, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    start = 1.0 if source is None else _square(source)
    end = _square(cotangent)
    return Pass(
        visits=watch.visits,
        chain=chain,
        second_moment=start,
        forward=_square(output) / start if start > 0.0 else math.nan,
        backward=watch.arrived / end if end > 0.0 else math.nan,
    )


class _Watch:
    """Hooks that note second moments, and whether the layers form a chain."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.entries: list[torch.Tensor] = []
        self.chain = True
        self.arrived = math.nan
        self._open: list[tuple[Visit, torch.Tensor | None]] = []
        self._last: tuple[torch.Tensor, int] | None = None

    def follow(self, tensor: torch.Tensor | None) -> None:
        """Remember a tensor as the last output; note the gradient at the model's input."""
        if tensor is None:
            return
        if not self.visits:
            tensor.register_hook(self._arrive)
        self._last = (tensor, tensor._version)

    def follows(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is the last output or a view of it, unchanged."""
        if self._last is None:
            return not self.visits  # an index enters the first layer
        last, version = self._last
        same = tensor.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
        return same and tensor._version == version

    def before(self, name: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            place = next((i for i, x in enumerate(arguments) if _is_float(x)), None)
            call = sum(visit.module is module for visit in self.visits)
            visit = Visit(name, module, call, 1.0)
            entry = None
            if place is None:
                self.chain &= not self.visits
            else:
                given = arguments[place]
                self.chain &= self.follows(given)
                visit.second_moment = _square(given)
                visit.shape = tuple(given.shape)
                # A copy of its own: its gradient is what this call alone passes down, and an
                # in-place layer may overwrite it.
                entry = given.clone()
                if not entry.requires_grad:
                    entry.requires_grad_()
                entry.register_hook(_note_passed(visit))
                self.entries.append(entry)
                arguments = (*arguments[:place], entry, *arguments[place + 1 :])
            if isinstance(module, nn.Bilinear):
                other = _square(arguments[1])
                visit.second_moment *= other
                visit.unit = other * module.in2_features
            self.visits.append(visit)
            self._open.append((visit, entry))
            return arguments

        return hook

    def after(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        visit, _ = self._open.pop()
        value = _first((output,))
        if value is None:
            self.chain = False
            return
        if visit.second_moment > 0.0:
            visit.forward = _square(value) / visit.second_moment
        if value.requires_grad:
            value.register_hook(_note_received(visit))
        self._last = (value, value._version)

    def _arrive(self, gradient: torch.Tensor) -> None:
        self.arrived = _square(gradient)


def _note_received(visit: Visit) -> Any:
    def hook(gradient: torch.Tensor) -> None:
        visit.received = _square(gradient)

    return hook


def _note_passed(visit: Visit) -> Any:
    def hook(gradient: torch.Tensor) -> None:
        if visit.received > 0.0:
            visit.backward = _square(gradient) / visit.received / visit.unit

    return hook


def _leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    closed: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in closed):
            continue
        children = [child for child, _ in module.named_children() if child != "parametrizations"]
        if isinstance(module, _COMPOSITE) or parametrize.is_parametrized(module) or not children:
            closed.append(f"{name}." if name else "")
            yield name, module
            if not name:
                return


def _first(value: Any) -> torch.Tensor | None:
    """Return the first floating-point tensor in a nest of tuples, lists and mappings."""
    if _is_float(value):
        return value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return next((x for x in map(_first, value) if x is not None), None)
    return None


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _square(value: torch.Tensor) -> float:
    return float(value.detach().double().square().mean())
