"""A small copy of the user's model that runs: what its parameters do, seen by trying."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from scalinglimits.laws.streams import substream

__all__ = ["Bench", "guess_example", "runner"]

Run = Callable[[nn.Module], Any]
_IMAGE_SIDES = (8, 16, 28, 32, 64, 96, 224)


class _Seen(Exception):
    """All that a run was for has been seen."""


class Bench:
    """A concrete model in float64 with generic weights, and a way to run it.

    Args:
        model: The model; its weights are overwritten.
        run: Runs it on inputs that are the same each time.
    """

    def __init__(self, model: nn.Module, run: Run) -> None:
        self.model = model
        self._run = run
        model.eval()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.train()  # with the statistics of the batch, as in training
        self.parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if parameter.is_floating_point():
                    parameter.add_(_noise(name, parameter))

    def run(self) -> Any:
        with torch.enable_grad():  # without it nn.TransformerEncoder takes a fused shortcut
            return self._run(self.model)

    @contextmanager
    def scaled(self, factors: Mapping[str, float]) -> Iterator[None]:
        """Multiply parameters within the block."""
        kept = {name: self.parameters[name].detach().clone() for name in factors}
        try:
            with torch.no_grad():
                for name, factor in factors.items():
                    self.parameters[name].mul_(factor)
            yield
        finally:
            with torch.no_grad():
                for name, value in kept.items():
                    self.parameters[name].copy_(value)

    def inputs_of(self, names: Sequence[str]) -> list[tuple[str, torch.Tensor]]:
        """Run; return the first floating tensor given to each named module, in order of calls."""
        calls: list[tuple[str, torch.Tensor]] = []
        seen: set[str] = set()

        def hook(name: str) -> Callable[..., None]:
            def record(module: nn.Module, args: Any, kwargs: Any) -> None:
                tensor = _first_tensor((args, kwargs))
                if tensor is not None and name not in seen:
                    seen.add(name)
                    calls.append((name, tensor.detach().clone()))
                if len(seen) == len(names):
                    raise _Seen  # the rest of the run shows nothing

            return record

        handles = [
            self.model.get_submodule(name).register_forward_pre_hook(hook(name), with_kwargs=True)
            for name in names
        ]
        try:
            self.run()
        except _Seen:
            pass
        finally:
            for handle in handles:
                handle.remove()
        return calls

    def operands_of(self, blocks: Mapping[str, Sequence[str]]) -> list[tuple[str, torch.Tensor]]:
        """Run; return what meets the parameters of each block first, in order of use."""
        operands = _Operands(self.parameters, blocks)
        with suppress(_Seen), operands:
            self.run()
        return operands.found

    def output_of(self, name: str) -> torch.Tensor:
        """Run; return the first floating tensor that the named module returns."""
        found: list[torch.Tensor] = []

        def record(module: nn.Module, args: Any, output: Any) -> None:
            tensor = _first_tensor(output)
            if tensor is not None:
                found.append(tensor.detach().clone())

        handle = self.model.get_submodule(name).register_forward_hook(record)
        try:
            self.run()
        finally:
            handle.remove()
        if not found:
            raise ValueError(f"`{name}` must run when the model does; it was not called")
        return found[0]

    def trace(self, attentions: int | None = None) -> Trace:
        """Run, to the end or for some attentions; return which operations used what."""
        trace = Trace(self.parameters, attentions)
        with suppress(_Seen), trace:
            self.run()
        return trace


@dataclass(frozen=True)
class AttentionCall:
    """The operands of one attention, its scale if given, and its place in time."""

    queries: torch.Tensor
    keys: torch.Tensor
    scale: float | None
    when: int


class Trace(TorchDispatchMode):
    """Operations by parameter, and the operands of attention."""

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], attentions: int | None = None
    ) -> None:
        super().__init__()
        self._enough = attentions
        self._names = {p.untyped_storage()._cdata: name for name, p in parameters.items()}
        self._strides = {name: (p.shape, p.stride()) for name, p in parameters.items()}
        self._count = 0
        self._copies: list[torch.Tensor] = []
        self._altered: set[int] = set()
        self._products: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self.last_use: dict[str, int] = {}
        self.axes: dict[str, tuple[tuple[int, ...], tuple[int, ...]] | str] = {}
        self.operations: dict[str, set[str]] = {}
        self.attention: list[AttentionCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self._count += 1
        packet = func.overloadpacket.__name__
        tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
        for tensor in tensors:
            name = self._names.get(tensor.untyped_storage()._cdata)
            if name is not None:
                self.last_use[name] = self._count
                self.operations.setdefault(name, set()).add(packet)
                self._learn_axes(name, packet, tensor, tensors)
        out = func(*args, **kwargs)
        if packet in ("clone", "_to_copy"):
            self._follow(args[0], out)
        if packet in ("bmm", "baddbmm"):
            left, right = args[-2:]
            self._products.append((left, right, out.numel()))
        elif packet in ("_softmax", "_safe_softmax"):
            for left, right, size in reversed(self._products[-1:]):
                if size == args[0].numel():
                    self._attend(left, right, None)
        elif packet.startswith("_scaled_dot_product"):
            scale = kwargs.get("scale")
            self._attend(args[0], args[1], scale)
        return out

    def _attend(self, queries: torch.Tensor, keys: torch.Tensor, scale: float | None) -> None:
        self.attention.append(AttentionCall(queries, keys, scale, self._count))
        if len(self.attention) == self._enough:
            raise _Seen

    def _follow(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """A copy of a whole parameter stands for it; of a part or a view, for no axis of it."""
        name = self._names.get(source.untyped_storage()._cdata)
        if name is not None:
            shape, strides = self._strides[name]
            self._names[copy.untyped_storage()._cdata] = name
            self._copies.append(copy)  # alive, so that its address is not used again
            if (copy.shape, copy.stride()) != (shape, strides):
                self._altered.add(copy.untyped_storage()._cdata)

    def _learn_axes(self, name: str, packet: str, view: torch.Tensor, tensors: list[Any]) -> None:
        if packet in _VIEWS or name in self.axes:
            return
        if packet in ("mm", "addmm", "bmm", "baddbmm"):
            if view.untyped_storage()._cdata in self._altered:
                return
            right = tensors[-1]
            contracted = view.ndim - 2 if view is right else view.ndim - 1
            shape, strides = self._strides[name]
            wanted = view.stride(contracted)
            inputs = tuple(i for i, s in enumerate(strides) if s == wanted and shape[i] > 1)
            batch = tuple(
                i
                for i, s in enumerate(strides)
                if view.ndim == 3 and s == view.stride(0) and view.shape[0] > 1
            )
            if len(inputs) == 1 and shape[inputs[0]] == view.shape[contracted]:
                outputs = tuple(i for i in range(len(shape)) if i not in (*inputs, *batch))
                self.axes[name] = (inputs, outputs)
        elif packet in _ELEMENTWISE:
            self.axes[name] = "vector"


class _Operands(TorchDispatchMode):
    """The first tensor that meets a parameter of each block."""

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], blocks: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__()
        self._all = {p.untyped_storage()._cdata for p in parameters.values()}
        self._blocks = {
            parameters[name].untyped_storage()._cdata: block
            for block, names in blocks.items()
            for name in names
        }
        self.found: list[tuple[str, torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
        owners = [self._blocks.get(t.untyped_storage()._cdata) for t in tensors]
        block = next((owner for owner in owners if owner is not None), None)
        others = [t for t in tensors if t.untyped_storage()._cdata not in self._all]
        others = [t for t in others if t.is_floating_point() and t.ndim > 1]
        if block is not None and others and block not in dict(self.found):
            self.found.append((block, others[0].detach().clone()))
            if len(self.found) == len(set(self._blocks.values())):
                raise _Seen
        return func(*args, **(kwargs or {}))


_VIEWS = {"t", "transpose", "permute", "view", "_unsafe_view", "expand", "unsqueeze", "detach"}
_VIEWS |= {"alias", "squeeze", "slice", "select", "clone", "_to_copy", "lift_fresh", "split"}
_ELEMENTWISE = {"add", "add_", "mul", "mul_", "exp", "sub", "div", "neg", "cat", "softplus"}
_ELEMENTWISE |= {"sigmoid", "tanh", "pow", "where"}


def runner(example: Any) -> Run:
    """Return the call that runs a model on `example`; a callable is that already."""
    if callable(example) and not isinstance(example, (torch.Tensor, nn.Module)):
        return example
    example = tree_map(
        lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v,
        example,
    )
    if isinstance(example, Mapping):
        return lambda model: model(**example)
    if isinstance(example, tuple):
        return lambda model: model(*example)
    return lambda model: model(example)


def guess_example(model: nn.Module) -> Any:
    """Return inputs on which the model runs, guessed from its first layer; None if none does."""
    for example in _candidates(model):
        try:
            with torch.enable_grad():
                runner(example)(model)
        except Exception:  # any failure at all means that the guess is wrong
            continue
        return example
    return None


def _candidates(model: nn.Module) -> Iterator[Any]:
    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(
            *shape, dtype=torch.float64, generator=substream(0, "example", str(shape))
        )

    for module in model.modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            high = min(module.num_embeddings, 1000)
            tokens = torch.randint(0, high, (2, 8), generator=substream(0, "example", "tokens"))
            yield tokens
            yield {"input_ids": tokens}
            yield (tokens, tokens)
        elif isinstance(module, nn.Linear):
            yield normal(8, module.in_features)
            yield normal(2, 8, module.in_features)
        elif isinstance(module, nn.Conv2d):
            sides = [getattr(getattr(model, "config", None), "image_size", None), *_IMAGE_SIDES]
            for side in sides:
                if isinstance(side, int):
                    yield normal(2, module.in_channels, side, side)
        elif isinstance(module, nn.Conv1d):
            yield normal(2, module.in_channels, 16)
        elif isinstance(module, nn.RNNBase):
            yield normal(2, 8, module.input_size)
        elif isinstance(module, nn.MultiheadAttention):
            yield normal(2, 8, module.embed_dim)
        elif isinstance(module, nn.LayerNorm):
            yield normal(2, 8, *module.normalized_shape)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            yield normal(8, parameter.shape[1])
            yield normal(8, parameter.shape[0])
        break


def _first_tensor(values: Any) -> torch.Tensor | None:
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1:
            return value
    for value in tree_leaves(_fields(values)):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1:
            return value
    return None


def _fields(value: Any) -> Any:
    """The items of a mapping-like output that is no pytree."""
    return list(value.values()) if isinstance(value, Mapping) else value


def _noise(name: str, parameter: torch.Tensor) -> torch.Tensor:
    generator = substream(0, "bench", name)
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    rows = max(parameter.shape[0], 1) if parameter.ndim else 1
    fan = max(parameter.numel() // rows, 1)
    return noise.to(parameter.dtype) * (0.1 if parameter.ndim < 2 else 0.5 * fan**-0.5)
