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
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, resolve_name

from scalinglimits.checks.heads import head_size
from scalinglimits.checks.tensors import find_tensors, rms

_MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm}
_RIGHT_MATMUL = {Tensor.__rmatmul__}
_ADDMM = {torch.addmm, Tensor.addmm}
_CONV = {F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d}
_CONV_TRANSPOSE = {F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d}
_EMBEDDING = {F.embedding, torch.embedding}
# Weight at position 1, bias at position 2, linear in the weight.
_LINEAR = {F.linear, *_CONV, *_CONV_TRANSPOSE}
# Linear in each tensor argument.
_MULTILINEAR = {*_MATMUL, *_RIGHT_MATMUL, *_EMBEDDING, torch.einsum}
# Functions whose weights have the shape (out, in), gates or projections stacked along out.
_STACKED = ("lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward")
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
_MASKED = -1e4
_GRAPH_STEPS = 40
_ROWS = 8


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
        if func is F.scaled_dot_product_attention or func in _SOFTMAX:
            with torch.no_grad():
                self._record_logits(func, args, kwargs)
        found = [t for t in (*_direct(args), *_direct(kwargs.values())) if id(t) in self._shadows]
        if not found:
            return result
        others = any(
            t.is_floating_point() and id(t) not in self._shadows and id(t) not in self._constants
            for t in (*_direct(args), *_direct(kwargs.values()))
        )
        with torch.no_grad():
            if others or func in _EMBEDDING:
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
                use = Use(name, self._where(), _short_name(func))
                if any(u.parameter == name and u != use for u in self.contributions):
                    for other in _direct(args):
                        if other is not tensor and other.grad_fn is not None:
                            self.gains |= _nearest(other, self._names, self._names)
                self.contributions.setdefault(use, []).append(value)
                source, axis = _source(func, args, tensor), _in_axis(func, args, tensor)
                if source is not None:
                    self.inputs.setdefault(use, []).append(rms(source))
                if axis is not None:
                    self.in_axes[use] = axis
                if source is not None and shadow.references[name] is not None:
                    length = _row_length(func, shadow.delta(name), axis)
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
            bias = args[2] if len(args) > 2 else kwargs.get("bias")
            return rms(result if bias is None else result.detach() - bias.detach())
        return _contribution(func, args, kwargs, shadow, name, tensor)

    def _follow(self, func: Any, args: Any, kwargs: Any, found: list[Tensor], result: Any) -> None:
        """Remember a result that depends on parameters only, such as a view or a cast."""
        names = {name for t in found for name in self._shadows[id(t)].references}
        results = [t for t in _direct([result]) if t.is_floating_point()]
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

            value = func(*_mapped(args, replaced), **_mapped(kwargs, replaced))
            values = [t for t in _direct([value]) if t.is_floating_point()]
            for known, t, original in zip(references, values, results, strict=False):
                if t.shape == original.shape and bool(torch.isfinite(t).all()):
                    known[name] = t
        for t, known in zip(results, references, strict=True):
            if known:
                self._shadows[id(t)] = _Shadow(t.detach(), known)
                self._alive.append(t)

    def _record_logits(self, func: Any, args: Any, kwargs: Any) -> None:
        inputs: tuple[Tensor, ...] = ()
        if func in _SOFTMAX:
            logits = args[0].float() if args else kwargs["input"].float()
            axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            size = head_size(logits)
            if size is not None:
                self.heads[self._where()] = size
            logits = logits.movedim(-1 if axis is None else axis, -1)
        else:
            names = ("query", "key")
            inputs = (*args[:2], *(kwargs[n] for n in names[len(args) :]))
            q, k = (tensor.float() for tensor in inputs)
            self.heads[self._where()] = q.shape[-1]
            if q.ndim > 2 and k.shape[-3] != q.shape[-3]:
                k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
            scale = kwargs.get("scale") or q.shape[-1] ** -0.5
            logits = (q @ k.transpose(-1, -2)) * scale
        if logits.ndim < 2 or logits.shape[-1] < 2:
            return
        source = inputs[0] if inputs else args[0] if args else kwargs["input"]
        self.queries.setdefault(self._where(), set()).update(
            _nearest(source, self._names, self._matrices)
        )
        # A softmax does not see a constant, and masked entries are no signal.
        seen = (logits > _MASKED).float()
        logits = torch.where(seen > 0, logits, 0.0)
        mean = logits.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
        self.logits.setdefault(self._where(), []).append((logits - mean) * seen)


def _contribution(
    func: Any, args: Any, kwargs: Any, shadow: _Shadow, name: str, tensor: Tensor
) -> Tensor | None:
    """Root mean square of the change of the result, or None if it has none or one entry."""
    delta = shadow.delta(name)
    if func in _LINEAR and len(args) >= 2:
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        if tensor is bias and tensor is not args[1]:
            return rms(delta)
        if tensor is args[1]:
            rest = args[3:]
            options = {key: value for key, value in kwargs.items() if key != "bias"}
            x = _thinned(args[0].detach()) if func is F.linear else args[0].detach()
            x, w = _same_precision(x, delta)
            return rms(func(x, w, None, *rest, **options))
    if func in _MULTILINEAR:
        return _sizeable(
            func(
                *_mapped(args, lambda t: delta if t is tensor else t.detach()),
                **_mapped(kwargs, lambda t: delta if t is tensor else t.detach()),
            )
        )
    return _difference(func, args, kwargs, tensor, tensor.detach() - delta)


def _difference(
    func: Any, args: Any, kwargs: Any, tensor: Tensor, reference: Tensor
) -> Tensor | None:
    """The change by evaluating twice in float64, with the same random numbers."""
    values = []
    devices = [tensor.device] if tensor.device.type == "cuda" else []
    for value in (tensor.detach(), reference):

        def double(t: Tensor, value: Tensor = value) -> Tensor:
            chosen = value if t is tensor else t.detach()
            # A copy: the function may write into its arguments.
            return chosen.to(torch.float64 if t.is_floating_point() else t.dtype, copy=True)

        with torch.random.fork_rng(devices):
            out = func(*_mapped(args, double), **_mapped(kwargs, double))
        values.append(next(find_tensors(out), None))
    now, before = values
    if now is None or before is None or now.shape != before.shape:
        return None
    return _sizeable(now - before)


def _sizeable(change: Tensor) -> Tensor | None:
    value = rms(change).float()
    return value if change.numel() > 1 and bool(torch.isfinite(value)) else None


def _thinned(x: Tensor) -> Tensor:
    """At most eight evenly spread rows: enough for a root mean square over rows and features."""
    rows = x.reshape(-1, x.shape[-1])
    return rows[:: -(-len(rows) // _ROWS)] if len(rows) > _ROWS else rows


def _same_precision(x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Half precision would round a small change away."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, delta.dtype), torch.float32)
    return x.to(dtype), delta.to(dtype)


def _in_axis(func: Any, args: Any, tensor: Tensor) -> int | None:
    """The axis of a weight that the function sums over."""
    if func is F.linear or func in _CONV:
        return 1 if len(args) > 1 and tensor is args[1] else None
    if func in _CONV_TRANSPOSE:
        return 0 if len(args) > 1 and tensor is args[1] else None
    if func in _EMBEDDING:
        return 0
    if func in _MATMUL and tensor.ndim >= 2:
        return tensor.ndim - 2 if tensor is args[1] else tensor.ndim - 1
    if _short_name(func) in _STACKED and tensor.ndim == 2:
        return 1
    if func in _ADDMM and len(args) > 2 and tensor is args[2]:
        return 0
    return None


def _source(func: Any, args: Any, tensor: Tensor) -> Tensor | None:
    """What a weight is applied to; None if the function is no such product."""
    if func in (F.linear, *_CONV, *_CONV_TRANSPOSE) and len(args) > 1 and tensor is args[1]:
        return _thinned(args[0].detach()) if func is F.linear else args[0].detach()
    if func in _MATMUL:
        return (args[0] if tensor is args[1] else args[1]).detach()
    if func in _ADDMM and len(args) > 2 and tensor is args[2]:
        return args[1].detach()
    return None


def _row_length(func: Any, delta: Tensor, axis: int | None) -> Tensor | None:
    """Root mean square length of what is summed over for one output: the change's rows."""
    if axis is None or delta.ndim < 2 or func in _CONV_TRANSPOSE:
        return None
    if delta.ndim > 2 and func not in _CONV:
        return None
    return rms(delta) * (delta.numel() / delta.shape[1 - axis]) ** 0.5


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


@lru_cache(maxsize=1000)
def _short_name(func: Any) -> str:
    name = resolve_name(func) or getattr(func, "__name__", "function")
    return name.rsplit(".", 1)[-1].strip("_")


def _direct(values: Any) -> list[Tensor]:
    """Tensors among the arguments, and in lists among them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += _direct(value)
    return found


def _mapped(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, dict):
        return {key: _mapped(value, change) for key, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_mapped(value, change) for value in values)
    return values
