r"""Where a forward pass uses each parameter, and what the parameter contributes there.

Let a function of the pass take a parameter: $y = F(W, h)$. With a reference $W_\text{ref}$ in its
place, on the same $h$,

$$\text{contribution of } W = \operatorname{rms}\,[F(W, h) - F(W_\text{ref}, h)],$$

which for a linear map is $\lVert \Delta W h\rVert$. The reference is zero for a parameter's own
share of the signal, and the initial value for the contribution of its update. An activation can
stay flat while the contribution dies (a readout that is scaled twice), so the two are measured
apart.

A torch-function mode sees every function, so that tied heads, parameters used outside their
module, and parameters seen through views, casts or reparametrisations are found too.
"""

from __future__ import annotations

__all__ = ["ParameterUses", "Use"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from scalinglimits.checks._operations import (
    EMBEDDING,
    SOFTMAX,
    by_position,
    contribution,
    in_axis,
    mapped,
    operand,
    row_length,
    short_name,
    tensors_among,
)
from scalinglimits.checks.heads import head_size
from scalinglimits.checks.tensors import full_precision, rms

_MASKED = -1e4
_GRAPH_STEPS = 40


class Use(NamedTuple):
    """A place at which a parameter is used.

    Attributes:
        parameter: its name.
        module: name of the module in whose forward it happens.
        function: such as `linear`.
    """

    parameter: str
    module: str
    function: str


@dataclass(frozen=True)
class _Shadow:
    """A tensor that depends on parameters only, and its value with one of them replaced."""

    tensor: Tensor
    references: Mapping[str, Tensor | None]  # None stands for zero
    deltas: dict[str, Tensor] = field(default_factory=dict)

    def delta(self, name: str) -> Tensor:
        """The change, computed once for all uses of the pass."""
        reference = self.references[name]
        if reference is None:
            return self.tensor
        if name not in self.deltas:
            self.deltas[name] = self.tensor - reference
        return self.deltas[name]


class ParameterUses(TorchFunctionMode):
    """Measures contributions during a forward pass that runs inside this context.

    Args:
        parameters: name to parameter; a tied parameter once.
        references: name to the value that it is compared with; None compares with zero.
        constants: tensors that count as neither parameter nor signal, such as buffers.
        where: called without arguments, returns the name of the module that is running.

    Attributes:
        contributions: each use's root mean square contribution, one tensor a call.
        inputs: root mean squares of what a weight is applied to, where it is applied to something.
        scatters: root mean squares of what each use would contribute if its input knew nothing of
            the update, where that is known.
        in_axes: each use's axis of the weight that is summed over, where that is known.
        logits: for each module, the centred logits of its attention or softmax, one a call.
        heads: for each module, the size of a head of its attention, where that is known.
        queries: for each module, the parameters that make the queries of these logits (and the
            keys, where the two cannot be told apart).
        gains: parameters right ahead of the second use of a tied parameter.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        references: Mapping[str, Tensor] | None,
        constants: Mapping[str, Tensor],
        where: Callable[[], str],
    ) -> None:
        super().__init__()
        self.contributions: dict[Use, list[Tensor]] = {}
        self.inputs: dict[Use, list[Tensor]] = {}
        self.scatters: dict[Use, list[Tensor]] = {}
        self.in_axes: dict[Use, int] = {}
        self.logits: dict[str, list[Tensor]] = {}
        self.heads: dict[str, int] = {}
        self.queries: dict[str, set[str]] = {}
        self.gains: set[str] = set()
        self._names = {id(p): name for name, p in parameters.items()}
        self._matrices = {id(p): name for name, p in parameters.items() if p.ndim >= 2}
        self._where = where
        self._constants = {id(tensor) for tensor in constants.values()}
        self._shadows: dict[int, _Shadow] = {}
        for name, parameter in parameters.items():
            reference = None if references is None else references[name]
            self._shadows[id(parameter)] = _Shadow(parameter.detach(), {name: reference})
        # Tensors whose ids are remembered must stay alive.
        self._alive: list[Any] = [parameters, constants]

    def delta(self, parameter: Tensor, name: str) -> Tensor:
        """Return a parameter's change from its reference.

        Args:
            parameter: one of those given.
            name: its name.

        Returns:
            The change; the parameter itself where it is compared with zero.
        """
        return self._shadows[id(parameter)].delta(name)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the function, and measure what its parameters contribute."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        args, kwargs = by_position(func, args, kwargs)
        if func is F.scaled_dot_product_attention or func in SOFTMAX:
            with torch.no_grad(), full_precision(args[0]):
                self._record_logits(func, args, kwargs)
        given = [*tensors_among(args), *tensors_among(kwargs.values())]
        found = [t for t in given if id(t) in self._shadows]
        if not found:
            return result
        others = any(
            t.is_floating_point() and id(t) not in self._shadows and id(t) not in self._constants
            for t in given
        )
        with torch.no_grad():
            if others or func in EMBEDDING:
                self._record_use(func, args, kwargs, found, result)
            elif isinstance(result, (Tensor, tuple, list)):
                self._follow(func, args, kwargs, found, result)
        return result

    def _record_use(
        self, func: Any, args: Any, kwargs: Any, found: list[Tensor], result: Any
    ) -> None:
        for tensor in found:
            shadow = self._shadows[id(tensor)]
            for name in shadow.references:
                value = self._contribution(func, args, kwargs, shadow, name, tensor, result)
                if value is None:
                    continue
                use = Use(name, self._where(), short_name(func))
                if any(u.parameter == name and u != use for u in self.contributions):
                    for other in tensors_among(args):
                        if other is not tensor and other.grad_fn is not None:
                            self.gains |= _nearest(other, self._names, self._names)
                self.contributions.setdefault(use, []).append(value)
                source, axis = operand(func, args, tensor), in_axis(func, args, tensor)
                if source is not None:
                    self.inputs.setdefault(use, []).append(rms(source))
                if axis is not None:
                    self.in_axes[use] = axis
                if source is not None and shadow.references[name] is not None:
                    length = row_length(func, shadow.delta(name), axis)
                    if length is not None:
                        self.scatters.setdefault(use, []).append(length * self.inputs[use][-1])

    def _contribution(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        shadow: _Shadow,
        name: str,
        tensor: Tensor,
        result: Any,
    ) -> Tensor | None:
        if func is F.linear and shadow.references[name] is None and tensor is args[1]:
            # Compared with zero, the product is what the model has just computed.
            bias = args[2] if len(args) > 2 else None
            return rms(result if bias is None else result.detach() - bias.detach())
        return contribution(func, args, kwargs, tensor, shadow.delta(name))

    def _follow(self, func: Any, args: Any, kwargs: Any, found: list[Tensor], result: Any) -> None:
        """Remember a result that depends on parameters only, such as a view or a cast."""
        names = {name for t in found for name in self._shadows[id(t)].references}
        results = [t for t in tensors_among([result]) if t.is_floating_point()]
        if not results or any(id(t) in self._shadows for t in results):
            return
        references: list[dict[str, Tensor | None]] = [{} for _ in results]
        for name in names:

            def replaced(t: Tensor, name: str = name) -> Tensor:
                shadow = self._shadows.get(id(t))
                if shadow is None or name not in shadow.references:
                    return t.detach()
                reference = shadow.references[name]
                return torch.zeros_like(t) if reference is None else reference.to(t.dtype)

            value = func(*mapped(args, replaced), **mapped(kwargs, replaced))
            values = [t for t in tensors_among([value]) if t.is_floating_point()]
            for known, t, original in zip(references, values, results, strict=False):
                if t.shape == original.shape and bool(torch.isfinite(t).all()):
                    known[name] = t
        for t, known in zip(results, references, strict=True):
            if known:
                self._shadows[id(t)] = _Shadow(t.detach(), known)
                self._alive.append(t)

    def _record_logits(self, func: Any, args: Any, kwargs: Any) -> None:
        if func in SOFTMAX:
            logits = args[0].float()
            axis = args[1] if len(args) > 1 else None
            size = head_size(logits)
            if size is not None:
                self.heads[self._where()] = size
            logits = logits.movedim(-1 if axis is None else axis, -1)
        else:
            q, k = (tensor.float() for tensor in args[:2])
            self.heads[self._where()] = q.shape[-1]
            if q.ndim > 2 and k.shape[-3] != q.shape[-3]:
                k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
            scale = kwargs.get("scale") or q.shape[-1] ** -0.5
            logits = (q @ k.transpose(-1, -2)) * scale
        if logits.ndim < 2 or logits.shape[-1] < 2:
            return
        self.queries.setdefault(self._where(), set()).update(
            _nearest(args[0], self._names, self._matrices)
        )
        # A softmax does not see a constant, and masked entries are no signal.
        seen = (logits > _MASKED).float()
        logits = torch.where(seen > 0, logits, 0.0)
        mean = logits.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
        self.logits.setdefault(self._where(), []).append((logits - mean) * seen)


def _nearest(tensor: Tensor, names: Mapping[int, str], wanted: Mapping[int, str]) -> set[str]:
    """Names of parameters met on the way back to the nearest wanted one, itself included."""
    layer: list[Any] = [tensor.grad_fn]
    seen: set[Any] = set()
    met: set[str] = set()
    for _ in range(_GRAPH_STEPS):
        here = [id(node.variable) for node in layer if hasattr(node, "variable")]
        met |= {names[i] for i in here if i in names}
        if any(i in wanted for i in here):
            return met
        following = [n for node in layer if node is not None for n, _ in node.next_functions]
        layer = [node for node in following if node is not None and node not in seen]
        seen.update(layer)
    return set()
