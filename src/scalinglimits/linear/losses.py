r"""Losses, known by their derivative with respect to the prediction.

Training a linear network needs no more of a loss `L(prediction, y)` than `L'`, its derivative with
respect to the first argument. The value is only recorded.

Reference: "Infinite-width limit of deep linear neural networks" (L), section 2.
"""

from __future__ import annotations

__all__ = ["Loss", "huber", "logistic", "resolve_loss", "square"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from ._validate import check_real

Pointwise = Callable[[np.ndarray, np.ndarray], Any]


@dataclass(frozen=True)
class Loss:
    """A loss of predictions and targets.

    Both functions take two arrays of the same shape, `(n,)` for one output and `(n, outputs)` for
    several.

    Attributes:
        derivative: `L'(prediction, y)`, of the same shape.
        value: `L(prediction, y)`, of shape `(n,)` or `(n, outputs)` (then summed over the
            outputs); `None` if it is not known, and then no loss is recorded.
        name: how it is printed.
        separable: whether the loss of several outputs is a sum over the outputs, so that
            `derivative` acts on each number by itself.

    Example:
        >>> quartic = Loss(lambda p, y: (p - y) ** 3, lambda p, y: (p - y) ** 4 / 4)
        >>> quartic.derivative(np.array([2.0]), np.array([0.0]))
        array([8.])
    """

    derivative: Pointwise
    value: Pointwise | None = None
    name: str = "custom"
    separable: bool = False

    @property
    def is_square(self) -> bool:
        """Whether it is the square loss, whose means are known in closed form."""
        return self.derivative is _difference

    def slope(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The derivative, checked.

        Args:
            prediction: predictions.
            y: targets, of the same shape.

        Returns:
            Array of the same shape.

        Raises:
            ValueError: if the derivative has another shape.
        """
        out = np.asarray(self.derivative(prediction, y), dtype=np.float64)
        if out.shape != prediction.shape:
            raise ValueError(
                f"`loss` must return an array of the predictions' shape {prediction.shape}; "
                f"got {out.shape}"
            )
        return out

    def values(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """The loss of each sample, checked.

        Args:
            prediction: predictions, shape `(n,)` or `(n, outputs)`.
            y: targets, of the same shape.

        Returns:
            Array of shape `(n,)`, or `None` if the value is not known.

        Raises:
            ValueError: if the value has another shape.
        """
        if self.value is None:
            return None
        out = np.asarray(self.value(prediction, y), dtype=np.float64)
        if out.shape == prediction.shape and out.ndim == 2:
            out = out.sum(axis=1)
        if out.shape != prediction.shape[:1]:
            raise ValueError(
                f"`loss` must have values of shape {prediction.shape[:1]} or {prediction.shape}; "
                f"got {out.shape}"
            )
        return out


def square() -> Loss:
    """The square loss `(p - y)^2 / 2`."""
    return _SQUARE


def logistic() -> Loss:
    """The logistic loss `log(1 + exp(-y p))`, for targets -1 and 1.

    Example:
        >>> logistic().derivative(np.zeros(2), np.array([1.0, -1.0]))
        array([-0.5,  0.5])
    """
    return _LOGISTIC


def huber(delta: float = 1.0) -> Loss:
    """Huber's loss: the square loss up to an error of `delta`, then linear.

    Args:
        delta: where it becomes linear.

    Returns:
        The loss.

    Example:
        >>> huber(2.0).derivative(np.array([1.0, 5.0]), np.zeros(2))
        array([1., 2.])
    """
    delta = check_real("delta", delta, above=0.0)

    def value(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        inside = np.minimum(np.abs(p - y), delta)
        return inside * (np.abs(p - y) - 0.5 * inside)

    return Loss(lambda p, y: np.clip(p - y, -delta, delta), value, f"huber({delta:g})", True)


def resolve_loss(loss: str | Loss | Pointwise) -> Loss:
    """The loss of a name, of a derivative, or the loss itself.

    Args:
        loss: `"square"`, `"logistic"`, `"huber"`, a `Loss`, or a function `L'(prediction, y)`.

    Returns:
        The loss.

    Raises:
        ValueError: if the name is unknown.
        TypeError: if it is none of these.
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss not in _NAMED:
            raise ValueError(f"`loss` must be one of {sorted(_NAMED)} or a function; got {loss!r}")
        return _NAMED[loss]
    if not callable(loss):
        raise TypeError(f"`loss` must be a name, a Loss or a function; got {loss!r}")
    return Loss(loss)


def _difference(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return p - y


def _half_square(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 0.5 * (p - y) ** 2


def _logistic_slope(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(-y * special.expit(-y * p))


def _logistic_value(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, -y * p)


_SQUARE = Loss(_difference, _half_square, "square", True)
_LOGISTIC = Loss(_logistic_slope, _logistic_value, "logistic", True)
_NAMED = {"square": _SQUARE, "logistic": _LOGISTIC, "huber": huber()}
