"""A small copy of the user's model that runs: what its parameters do, seen by trying."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from scalinglimits.laws.streams import substream
from scalinglimits.scaling._trace import Altered, Operands, Seen, Trace

__all__ = ["Bench", "guess_example", "runner"]

Run = Callable[[nn.Module], Any]
_IMAGE_SIDES = (8, 16, 28, 32, 64, 96, 224)


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
                    raise Seen  # the rest of the run shows nothing

            return record

        handles = [
            self.model.get_submodule(name).register_forward_pre_hook(hook(name), with_kwargs=True)
            for name in names
        ]
        try:
            self.run()
        except Seen:
            pass
        finally:
            for handle in handles:
                handle.remove()
        return calls

    def operands_of(self, blocks: Mapping[str, Sequence[str]]) -> list[tuple[str, torch.Tensor]]:
        """Run; return what meets the parameters of each block first, in order of use."""
        operands = Operands(self.parameters, blocks)
        with suppress(Seen), operands:
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

    def results(
        self,
        factors: Mapping[str, float],
        operands: Mapping[int, float] | None = None,
        results: Mapping[int, float] | None = None,
    ) -> list[torch.Tensor]:
        """Run with parameters multiplied, and what some operations take first and what they give.

        Args:
            factors: By parameter.
            operands: By the number of an operation in a trace: of an attention, or of a product.
            results: By the number of an operation in a trace.

        Returns:
            All floating tensors that the run and the model return.
        """
        returned: list[Any] = []
        handle = self.model.register_forward_hook(lambda _, args, output: returned.append(output))
        try:
            with self.scaled(factors), Altered(operands or {}, results or {}):
                returned.append(self.run())
        finally:
            handle.remove()
        leaves = tree_leaves([_fields(value) for value in returned])
        floating = [v for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point()]
        return [value.detach().clone() for value in floating]

    def trace(self, attentions: int | None = None) -> Trace:
        """Run, to the end or for some attentions; return which operations used what."""
        trace = Trace(self.parameters, attentions)
        with suppress(Seen), trace:
            self.run()
        return trace


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
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a wrong guess brings about says nothing
            try:
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
