"""The one place where the laws draw random numbers: NumPy and PyTorch generators alike.

The generator decides the framework of what comes back. A :class:`numpy.random.Generator` gives
NumPy arrays; a :class:`torch.Generator` gives tensors, drawn on the generator's own device and
then moved to ``device``, so that a CPU generator gives the same values on every device. ``None``
is PyTorch's default generator of ``device``, as in :mod:`torch.nn.init`.

Half-precision numbers are drawn in float32 and rounded once, at delivery.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import numpy as np
from scipy import special

if TYPE_CHECKING:
    import torch

__all__ = ["Array", "Device", "DType", "Generator", "Source", "open_source"]

Array: TypeAlias = Any
"""A NumPy array or a PyTorch tensor, whichever the generator calls for."""
DType: TypeAlias = Any
"""A NumPy or PyTorch floating-point type, or None for the framework's default."""
Device: TypeAlias = Union[str, "torch.device", None]
Generator: TypeAlias = Union[np.random.Generator, "torch.Generator", None]


class Source(Protocol):
    """A stream of random numbers in a working precision, on the device it draws on."""

    chunk: int
    """Draws of ``normal`` join up bitwise when each takes a multiple of this many numbers."""

    @property
    def on_host(self) -> bool:
        """Whether numbers are drawn in the memory that NumPy sees."""
        ...

    @property
    def host_dtype(self) -> np.dtype[Any]:
        """The working precision as a NumPy type: float32 or float64."""
        ...

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Draw standard normal numbers."""
        ...

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Draw uniform numbers in [0, 1)."""
        ...

    def signs(self, shape: tuple[int, ...]) -> Array:
        """Draw -1 and 1 with probability one half each."""
        ...

    def erfinv(self, values: Array) -> Array:
        """Return the inverse error function of ``values``."""
        ...

    def working(self, constants: np.ndarray) -> Array:
        """Return constants in the working precision, where numbers are drawn."""
        ...

    def fill_normal(self, buffer: np.ndarray) -> None:
        """Fill a contiguous NumPy buffer with standard normal numbers (host sources only)."""
        ...

    def deliver(self, values: Array) -> Array:
        """Return working values as the caller's type, on the caller's device."""
        ...


def open_source(generator: Generator, dtype: DType = None, device: Device = None) -> Source:
    """Return the stream of random numbers behind a generator.

    Args:
        generator: A NumPy or PyTorch generator; None for PyTorch's default one.
        dtype: The type to deliver; None for float64 (NumPy) or the default type (PyTorch).
        device: Where a tensor is delivered; None for the generator's device.

    Returns:
        The stream.

    Raises:
        TypeError: If ``generator`` is of neither kind or ``dtype`` is of the other framework.
        ValueError: If ``dtype`` is not a supported floating-point type, or a NumPy generator
            is asked to deliver elsewhere than in main memory.
    """
    if isinstance(generator, np.random.Generator):
        return _NumPySource(generator, dtype, device)
    torch = sys.modules.get("torch")  # a torch generator exists only once torch is imported
    if generator is None or (torch is not None and isinstance(generator, torch.Generator)):
        return _TorchSource(generator, dtype, device)
    raise TypeError(
        "`generator` must be a numpy.random.Generator, a torch.Generator or None; "
        f"got {generator!r}"
    )


class _NumPySource:
    chunk = 1
    on_host = True

    def __init__(self, generator: np.random.Generator, dtype: DType, device: Device) -> None:
        try:
            self._dtype = np.dtype(np.float64 if dtype is None else dtype)
        except TypeError:
            raise TypeError(
                f"`dtype` must be a NumPy type with a NumPy generator; got {dtype!r}"
            ) from None
        if self._dtype not in (np.float16, np.float32, np.float64):
            raise ValueError(f"`dtype` must be float16, float32 or float64; got {self._dtype}")
        if device is not None and str(device) != "cpu":
            raise ValueError(f"`device` must be None or 'cpu' with a NumPy generator; got {device}")
        self._generator = generator
        self.host_dtype = np.dtype(np.float64 if self._dtype == np.float64 else np.float32)

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._generator.standard_normal(shape, dtype=self.host_dtype)  # type: ignore[arg-type]

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._generator.random(shape, dtype=self.host_dtype)  # type: ignore[arg-type]

    def signs(self, shape: tuple[int, ...]) -> np.ndarray:
        bits = self._generator.integers(0, 2, size=shape, dtype=np.int8)
        return (2 * bits - 1).astype(self.host_dtype)

    def erfinv(self, values: np.ndarray) -> np.ndarray:
        result: np.ndarray = special.erfinv(values)
        return result

    def working(self, constants: np.ndarray) -> np.ndarray:
        return constants.astype(self.host_dtype, copy=False)

    def fill_normal(self, buffer: np.ndarray) -> None:
        self._generator.standard_normal(out=buffer, dtype=buffer.dtype.type)

    def deliver(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values).astype(self._dtype, copy=False)


class _TorchSource:
    # On the CPU, PyTorch fills a tensor of 16 or more normal numbers in groups of 16 and draws a
    # last, incomplete group again: only whole groups leave the stream where the next call starts.
    chunk = 16

    def __init__(self, generator: torch.Generator | None, dtype: DType, device: Device) -> None:
        import torch

        if dtype is None:
            dtype = torch.get_default_dtype()
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"`dtype` must be a torch.dtype with a torch generator; got {dtype!r}")
        if dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"`dtype` must be float16, bfloat16, float32 or float64; got {dtype}")
        self._torch = torch
        self._generator = generator
        self._dtype = dtype
        self._working = torch.float64 if dtype == torch.float64 else torch.float32
        if device is None:
            device = torch.get_default_device() if generator is None else generator.device
        self._device = torch.device(device)
        self._draws_on = self._device if generator is None else generator.device

    @property
    def on_host(self) -> bool:
        return self._draws_on.type == "cpu"

    @property
    def host_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self._working == self._torch.float64 else np.float32)

    def normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        return self._torch.randn(shape, **self._options())

    def uniform(self, shape: tuple[int, ...]) -> torch.Tensor:
        return self._torch.rand(shape, **self._options())

    def signs(self, shape: tuple[int, ...]) -> torch.Tensor:
        bits = self._torch.randint(0, 2, shape, **self._options())
        return bits.mul_(2).sub_(1)

    def erfinv(self, values: torch.Tensor) -> torch.Tensor:
        return self._torch.erfinv(values)

    def working(self, constants: np.ndarray) -> torch.Tensor:
        return self._torch.tensor(constants, dtype=self._working, device=self._draws_on)

    def fill_normal(self, buffer: np.ndarray) -> None:
        self._torch.from_numpy(buffer).normal_(generator=self._generator)

    def deliver(self, values: Array) -> torch.Tensor:
        tensor = self._torch.as_tensor(values)
        return tensor.to(device=self._device, dtype=self._dtype)

    def _options(self) -> dict[str, Any]:
        return {
            "generator": self._generator,
            "dtype": self._working,
            "device": self._draws_on,
        }
