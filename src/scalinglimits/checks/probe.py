"""Hooks that measure a forward and backward pass of any model.

A probe lives as long as the model is measured, and remembers the outputs of the first pass, so that
later passes on the same batch tell the change. Statistics are tensors until they are read, so that
a GPU is not waited for at each of them.
"""

from __future__ import annotations

__all__ = ["Probe", "Reading"]

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scalinglimits.checks.blocks import block_contributions, is_residual, stream_tensors
from scalinglimits.checks.names import Stacks
from scalinglimits.checks.spectral import spectral_norms
from scalinglimits.checks.tensors import find_tensors, move, rms
from scalinglimits.checks.uses import ParameterUses


class Reading(NamedTuple):
    """One statistic of one pass.

    Attributes:
        kind: such as `activation`; see :mod:`scalinglimits.checks.quantities`.
        name: of the module or parameter.
        use: the module and function in which a parameter is used, or "".
        value: the number.
    """

    kind: str
    name: str
    use: str
    value: Tensor


class Probe:
    """Measures passes of a model.

    Args:
        model: any module; it is left as it was when :meth:`remove` has been called.
        stacks: its repeated blocks.
        blockwise: whether to measure what parameters contribute to the output of their block.

    Attributes:
        in_axes: for each parameter and use, the axis of the weight that is summed over.
        residual: for each stack, whether its blocks pass the stream on.
        heads: for each module with attention, the size of a head.
        queries: for each module with attention or a softmax, the parameters behind its queries.
        gains: parameters right ahead of the second use of a tied parameter.
    """

    def __init__(self, model: nn.Module, stacks: Stacks, *, blockwise: bool = False) -> None:
        self.in_axes: dict[tuple[str, str], int] = {}
        self.residual: dict[str, bool] = {}
        self.heads: dict[str, int] = {}
        self.queries: dict[str, set[str]] = {}
        self.gains: set[str] = set()
        self._model, self._stacks, self._blockwise = model, stacks, blockwise
        self._parameters = dict(model.named_parameters())
        self._initial: dict[str, list[Tensor]] = {}
        self._initial_logits: dict[str, list[Tensor]] = {}
        self._running: list[str] = []
        self._uses: ParameterUses | None = None
        self._references: Mapping[str, Tensor] | None = None
        self._contributing = False
        self._paused = True
        self._inputs: dict[str, list[Any]] = {}
        self._clear()
        self._handles: list[Any] = []
        for name, module in model.named_modules():
            self._handles += [
                module.register_forward_pre_hook(self._enter(name), with_kwargs=True),
                module.register_forward_hook(
                    self._leave(name, module), with_kwargs=True, always_call=True
                ),
            ]

    def remove(self) -> None:
        """Take all hooks off the model."""
        for handle in self._handles:
            handle.remove()

    @contextmanager
    def measuring(
        self, references: Mapping[str, Tensor] | None, *, contributions: bool = True
    ) -> Iterator[None]:
        """Measure the pass that runs inside this context.

        Args:
            references: the parameters' initial values; None on the first pass, at initialisation.
            contributions: whether to measure what each parameter contributes.

        Yields:
            Nothing.
        """
        self._clear()
        self._references = references
        self._contributing = contributions
        uses = ParameterUses(
            self._parameters if contributions else {},
            references,
            dict(self._model.named_buffers()),
            lambda: self._running[-1] if self._running else "",
        )
        self._uses = uses
        self._first = not self._initial
        self._paused = False
        try:
            with uses:
                yield
        finally:
            # Passes outside this context are the caller's own business.
            self._paused = True

    def spectral(self) -> list[Reading]:
        """Return spectral norms over √(fan_out/fan_in), of weights or of their changes.

        Returns:
            One reading for each weight that a use sums over, of the last pass.
        """
        assert self._uses is not None
        kind = "spectral" if self._references is None else "spectral_change"
        axes = {name: axis for (name, _), axis in self.in_axes.items()}
        matrices = {n: p for n in axes if (p := self._parameters[n]).ndim >= 2}
        if not matrices:
            return []
        ratios = [p.shape[axes[n]] / p.shape[0 if axes[n] else 1] for n, p in matrices.items()]
        norms = spectral_norms([self._uses.delta(p, n) for n, p in matrices.items()])
        return [
            Reading(kind, name, "", norm * ratio**0.5)
            for name, norm, ratio in zip(matrices, norms, ratios, strict=True)
        ]

    def readings(self) -> list[Reading]:
        """Return the statistics of the last pass.

        Returns:
            One reading for each module, parameter and use; calls are averaged as mean squares.
        """
        assert self._uses is not None
        rows = [
            Reading(kind, name, "", _mean_square(values))
            for (kind, name), values in self._values.items()
        ]
        rows += self._streams()
        kind = "share" if self._references is None else "contribution"
        for use, values in self._uses.contributions.items():
            place = f"{use.module}:{use.function}"
            value = _mean_square(values)
            rows.append(Reading(kind, use.parameter, place, value))
            if use in self._uses.inputs:
                source = _mean_square(self._uses.inputs[use])
                ratio = torch.where(source > 0, value / source, 0.0)
                rows.append(Reading(f"relative_{kind}", use.parameter, place, ratio))
            if use in self._uses.scatters:
                random = _mean_square(self._uses.scatters[use])
                part = torch.where(value > 0, random / value, 0.0).square().clamp(max=1.0)
                rows.append(Reading("scatter", use.parameter, place, part))
        for use, axis in self._uses.in_axes.items():
            self.in_axes[use.parameter, f"{use.module}:{use.function}"] = axis
        self.heads |= self._uses.heads
        self.gains |= self._uses.gains
        for module, names in self._uses.queries.items():
            self.queries.setdefault(module, set()).update(names)
        for module, logits in self._uses.logits.items():
            rows.append(Reading("logits", module, "", _mean_square([rms(x) for x in logits])))
            if self._first:
                self._initial_logits[module] = logits
            else:
                change = _changes(logits, self._initial_logits.get(module, []))
                if change:
                    rows.append(Reading("logits_change", module, "", _mean_square(change)))
        return rows

    def _clear(self) -> None:
        self._values: dict[tuple[str, str], list[Tensor]] = {}
        self._calls: dict[str, int] = {}
        self._stream: dict[str, list[tuple[str, Tensor, Tensor]]] = {}
        self._gradients: dict[tuple[str, str], Tensor] = {}
        self._running = []

    def _enter(self, name: str) -> Any:
        watched = self._blockwise and self._is_block(name)

        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            if self._paused:
                return
            self._running.append(name)
            if watched and self._contributing:
                # The block may write into its arguments.
                kept = (_copied(args), _copied(kwargs), torch.get_rng_state())
                self._inputs.setdefault(name, []).append(kept)

        return hook

    def _leave(self, name: str, module: nn.Module) -> Any:
        block = self._is_block(name)

        def hook(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if self._paused:
                return
            if self._running and self._running[-1] == name:
                self._running.pop()
            if output is None:
                return
            self._paused = True
            try:
                with torch._C.DisableTorchFunction():  # what a probe computes is no use
                    with torch.no_grad():
                        self._record(name, output)
                    if block:
                        self._record_stream(name, args, kwargs, output)
                    if block and self._inputs.get(name):
                        self._record_block(name, module, output)
            finally:
                self._paused = False

        return hook

    def _is_block(self, name: str) -> bool:
        return bool(name) and self._stacks.pattern(name) in self._stacks.places

    def _record(self, name: str, output: Any) -> None:
        call = self._calls.get(name, 0)
        self._calls[name] = call + 1
        for position, tensor in enumerate(find_tensors(output)):
            if position:  # caches and weights that come along are not the signal
                break
            self._values.setdefault(("activation", name), []).append(rms(tensor))
            if self._first:
                self._initial.setdefault(name, []).append(tensor.detach().clone())
                continue
            known = self._initial.get(name, [])
            if call < len(known) and known[call].shape == tensor.shape:
                change = rms(tensor.detach().float() - known[call].float())
                self._values.setdefault(("activation_change", name), []).append(change)

    def _record_stream(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        pair = stream_tensors(args, kwargs, output)
        if pair is None:
            return
        before, after = pair
        place = self._place(name)
        self._stream.setdefault(place, []).append((name, rms(before), rms(after)))
        for end, tensor in (("in", before), ("out", after)):
            if tensor.requires_grad:
                tensor.register_hook(self._keep_gradient(name, end))

    def _place(self, name: str) -> str:
        """The stack that a block lies in: the indices of outer stacks stay."""
        last = self._stacks.pattern(name).rpartition(".")[2]
        outer = name.rpartition(".")[0]
        return f"{outer}.{last}" if outer else last

    def _keep_gradient(self, name: str, end: str) -> Any:
        def keep(gradient: Tensor) -> None:
            self._gradients[name, end] = rms(gradient)

        return keep

    def _record_block(self, name: str, module: nn.Module, output: Any) -> None:
        args, kwargs, rng = self._inputs[name].pop()
        if stream_tensors(args, kwargs, output) is None:
            return
        place = self._place(name)
        if place not in self.residual:
            self.residual[place] = is_residual(module, args, kwargs)
        references: dict[str, Tensor | None] = {}
        for inner, _ in module.named_parameters():
            full = f"{name}.{inner}"
            if full in self._parameters:
                references[inner] = None if self._references is None else self._references[full]
        kind = "block_share" if self._references is None else "block_contribution"
        for inner, value in block_contributions(module, args, kwargs, references, rng).items():
            self._values.setdefault((kind, f"{name}.{inner}"), []).append(value)

    def _streams(self) -> list[Reading]:
        rows = []
        for place, blocks in self._stream.items():
            (first, before, _), (last, _, after) = blocks[0], blocks[-1]
            rows.append(Reading("stream_ratio", place, "", after / before))
            rows.append(Reading("stream", place, "", after))
            p_0, p_L = self._gradients.get((first, "in")), self._gradients.get((last, "out"))
            if p_0 is not None and p_L is not None:
                rows.append(Reading("gradient_ratio", place, "", p_0 / p_L))
        return rows


def _copied(value: Any) -> Any:
    """The nest with copies of its floating-point tensors, off the graph."""
    copies = {id(t): t.detach().clone() for t in find_tensors(value)}

    def replace(part: Any) -> Any:
        if isinstance(part, Tensor):
            return copies.get(id(part), part)
        if isinstance(part, dict):
            return {key: replace(inner) for key, inner in part.items()}
        if type(part) in (tuple, list):
            return type(part)(replace(inner) for inner in part)
        return part

    return replace(move(value, None, None))


def _changes(now: list[Tensor], before: list[Tensor]) -> list[Tensor]:
    return [rms(a - b) for a, b in zip(now, before, strict=False) if a.shape == b.shape]


def _mean_square(values: list[Tensor]) -> Tensor:
    if len(values) == 1:
        return values[0].float()
    return torch.stack([value.float() for value in values]).square().mean().sqrt()
