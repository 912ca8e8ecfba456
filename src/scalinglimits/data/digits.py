"""scikit-learn's digits: 1,797 real handwritten digits of 8 × 8 pixels."""

from __future__ import annotations

__all__ = ["load_digits"]

import numpy as np


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Load the digits that scikit-learn ships.

    Returns:
        Pixels in [0, 1], float32 of shape (1797, 64), and classes 0 … 9, int64 of shape (1797,).

    Raises:
        ModuleNotFoundError: if scikit-learn is not installed.

    Example:
        >>> X, y = load_digits()
        >>> X.shape, sorted(set(y.tolist()))
        ((1797, 64), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    try:
        from sklearn import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "the digits need scikit-learn: pip install 'scalinglimits[digits]'"
        ) from None
    digits = datasets.load_digits()
    return (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
