"""Laws of initial weights, read from the operations that a model's constructor performs.

A dispatch mode follows each tensor's storage through in-place draws and affine maps. It works on
the meta device too, where nothing is drawn: so the law of a large model is known without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from scalinglimits.scaling.entry import InitLaw

__all__ = ["LawRecorder", "truncated_deviation"]

_KEPT = InitLaw("kept")


class LawRecorder(TorchDispatchMode):
    """Record the law of every tensor that is created while the mode is on."""

    def __init__(self) -> None:
        super().__init__()
        # Storages are kept alive here, so that no address is used twice.
        self._known: dict[int, tuple[Any, InitLaw]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record within the block, PyTorch's truncated and orthogonal initialisers included.

        On the meta device these two perform no operation at all; so their calls are recorded.
        """
        names = ("_no_grad_trunc_normal_", "orthogonal_")
        originals = {name: getattr(nn.init, name) for name in names if hasattr(nn.init, name)}
        laws: dict[str, Callable[..., InitLaw]] = {
            "_no_grad_trunc_normal_": _truncated_call,
            "orthogonal_": _orthogonal_call,
        }

        def wrap(name: str) -> Callable[..., Any]:
            def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                # Rejection sampling asks for values, which a fake tensor has not.
                out = tensor if _is_fake(tensor) else originals[name](tensor, *args, **kwargs)
                self._write(tensor, laws[name](tensor, *args, **kwargs))
                return out

            return call

        try:
            for name in originals:
                setattr(nn.init, name, wrap(name))
            with self:
                yield
        finally:
            for name, original in originals.items():
                setattr(nn.init, name, original)

    def law(self, tensor: torch.Tensor) -> InitLaw | None:
        """Return the law of a tensor's values, None if it was never seen."""
        found = self._known.get(_key(tensor))
        return found[1] if found else None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket.__name__
        before = None
        if packet in _AFFINE or packet in _COPIES:
            before = [self._read(arg) for arg in args]
        out = func(*args, **kwargs)
        rule = _RULES.get(packet)
        if packet.endswith("_") and not packet.endswith("__") and args and _is_float(args[0]):
            self._write(args[0], rule(before, args, kwargs) if rule else _KEPT)
        elif _is_float(out) and _key(out) not in self._known:
            self._write(out, rule(before, args, kwargs) if rule else _KEPT)
        return out

    def _read(self, value: Any) -> Any:
        return (self.law(value) or _KEPT) if isinstance(value, torch.Tensor) else value

    def _write(self, tensor: torch.Tensor, law: InitLaw) -> None:
        storage = tensor.untyped_storage()
        whole = storage.nbytes() == tensor.numel() * tensor.element_size()
        if not whole and (old := self.law(tensor)) is not None and old != law:
            law = _KEPT  # part of the tensor follows another law
        self._known[_key(tensor)] = (storage, law)


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor) or isinstance(tensor.data, FakeTensor)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _number(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str, default: float):  # type: ignore[no-untyped-def]
    value = args[index] if len(args) > index else kwargs.get(name, default)
    return float(value) if isinstance(value, (int, float)) else math.nan


def _constant(value: float) -> Callable[..., InitLaw]:
    return lambda before, args, kwargs: InitLaw("constant", mean=value)


def _fill(before: Any, args: Any, kwargs: Any) -> InitLaw:
    return _finite(InitLaw("constant", mean=_number(args, kwargs, 1, "value", math.nan)))


def _full(before: Any, args: Any, kwargs: Any) -> InitLaw:
    return _finite(InitLaw("constant", mean=_number(args, kwargs, 1, "fill_value", math.nan)))


def _normal(before: Any, args: Any, kwargs: Any) -> InitLaw:
    mean, std = _number(args, kwargs, 1, "mean", 0.0), _number(args, kwargs, 2, "std", 1.0)
    return _finite(InitLaw("normal", mean, std))


def _uniform(before: Any, args: Any, kwargs: Any) -> InitLaw:
    low, high = _number(args, kwargs, 1, "from", 0.0), _number(args, kwargs, 2, "to", 1.0)
    return _finite(InitLaw("uniform", (low + high) / 2, (high - low) / math.sqrt(12)))


def _scaled(law: Any, factor: float) -> InitLaw:
    if not isinstance(law, InitLaw) or law.kind == "kept":
        return _KEPT
    return _finite(InitLaw(law.kind, law.mean * factor, law.std * abs(factor), law.cut))


def _mul(before: Any, args: Any, kwargs: Any) -> InitLaw:
    tensor, other = before[0], before[1]
    if isinstance(tensor, (int, float)):
        tensor, other = other, tensor
    return _scaled(tensor, other) if isinstance(other, (int, float)) else _KEPT


def _div(before: Any, args: Any, kwargs: Any) -> InitLaw:
    tensor, other = before[0], before[1]
    return _scaled(tensor, 1 / other) if isinstance(other, (int, float)) and other else _KEPT


def _add(before: Any, args: Any, kwargs: Any) -> InitLaw:
    law, other = before[0], before[1]
    if not isinstance(law, InitLaw) or law.kind == "kept" or not isinstance(other, (int, float)):
        return _KEPT
    return InitLaw(law.kind, law.mean + other, law.std, law.cut)


def _erfinv(before: Any, args: Any, kwargs: Any) -> InitLaw:
    """A uniform law on (−u, u) becomes a normal of deviation √½ cut at √2·erfinv(u) of it."""
    law = before[0]
    if not isinstance(law, InitLaw) or law.kind != "uniform" or abs(law.mean) > 1e-12:
        return _KEPT
    bound = min(law.std * math.sqrt(3), 1 - 1e-15)
    cut = math.sqrt(2) * float(torch.erfinv(torch.tensor(bound, dtype=torch.float64)))
    return InitLaw("truncated", 0.0, truncated_deviation(cut) * math.sqrt(0.5), cut)


def _same(before: Any, args: Any, kwargs: Any) -> InitLaw:
    law = before[0]
    return law if isinstance(law, InitLaw) else _KEPT


def _copied(before: Any, args: Any, kwargs: Any) -> InitLaw:
    law = before[1]
    return law if isinstance(law, InitLaw) else _KEPT


def _orthogonal_call(tensor: torch.Tensor, gain: float = 1.0, **kwargs: Any) -> InitLaw:
    rows = tensor.shape[0]
    return InitLaw("orthogonal", 0.0, abs(gain) / math.sqrt(max(rows, tensor.numel() // rows)))


def _truncated_call(
    tensor: torch.Tensor, mean: float, std: float, a: float, b: float, generator: Any = None
) -> InitLaw:
    low, high = (a - mean) / std, (b - mean) / std
    if abs(low + high) > 1e-9 * abs(high) or high <= 0:
        return _KEPT
    return InitLaw("truncated", mean, std * truncated_deviation(high), high)


def truncated_deviation(cut: float) -> float:
    """Return the standard deviation of a standard normal cut at ±`cut`."""
    density = math.exp(-cut * cut / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(max(0.0, 1 - 2 * cut * density / math.erf(cut / math.sqrt(2))))


def _finite(law: InitLaw) -> InitLaw:
    return law if math.isfinite(law.mean) and math.isfinite(law.std) else _KEPT


_AFFINE = {"mul_", "mul", "div_", "div", "add_", "add", "erfinv_", "clamp_"}
_COPIES = {"clone", "detach", "copy_", "_to_copy"}
_RULES: dict[str, Callable[..., InitLaw]] = {
    "zero_": _constant(0.0),
    "zeros": _constant(0.0),
    "zeros_like": _constant(0.0),
    "new_zeros": _constant(0.0),
    "ones": _constant(1.0),
    "ones_like": _constant(1.0),
    "new_ones": _constant(1.0),
    "full": _full,
    "full_like": _full,
    "fill_": _fill,
    "normal_": _normal,
    "randn": lambda before, args, kwargs: InitLaw("normal", 0.0, 1.0),
    "randn_like": lambda before, args, kwargs: InitLaw("normal", 0.0, 1.0),
    "uniform_": _uniform,
    "rand": lambda before, args, kwargs: InitLaw("uniform", 0.5, 1 / math.sqrt(12)),
    "mul_": _mul,
    "mul": _mul,
    "div_": _div,
    "div": _div,
    "add_": _add,
    "add": _add,
    "erfinv_": _erfinv,
    "clamp_": _same,
    "clone": _same,
    "_to_copy": _same,
    "detach": _same,
    "copy_": _copied,
}
