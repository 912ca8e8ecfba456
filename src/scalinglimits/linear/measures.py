r"""Data as measures: samples, or a Gaussian population.

A linear network sees its data `rho` only through

    xi = int x L'(lambda^T x, y) d rho(x, y),

of shape `(d,)`, or `(d, o)` with `o` outputs: the gradient of the mean loss with respect to the
predictor `lambda`.

Reference: "Infinite-width limit of deep linear neural networks" (L), (2.2) and (2.5).
"""

from __future__ import annotations

__all__ = ["EmpiricalData", "GaussianData", "Measure"]

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ._validate import check_array, check_count, check_real
from .losses import Loss

_SYMMETRY = 1e-10


class Measure(ABC):
    """A law of inputs `x` and targets `y`.

    Attributes:
        in_features: dimension `d` of the inputs.
        out_features: number `o` of targets.
    """

    in_features: int
    out_features: int

    @abstractmethod
    def evaluate(self, predictor: np.ndarray, loss: Loss) -> tuple[float, np.ndarray]:
        """The mean loss of a linear predictor and its gradient `xi`.

        Args:
            predictor: shape `(d,)`, or `(d, o)` with several outputs.
            loss: the loss.

        Returns:
            The mean loss (NaN if the loss has no value) and the gradient, of the predictor's shape.
        """

    def evaluate_many(self, predictors: np.ndarray, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
        """The same for many predictors, each treated by itself.

        Args:
            predictors: shape `(r, d)` or `(r, d, o)`.
            loss: the loss.

        Returns:
            Arrays of shape `(r,)` and of the predictors' shape.
        """
        values = np.empty(len(predictors))
        gradients = np.empty_like(predictors)
        for i, predictor in enumerate(predictors):
            values[i], gradients[i] = self.evaluate(predictor, loss)
        return values, gradients


class EmpiricalData(Measure):
    """Samples; losses and gradients are means over them.

    Args:
        X: inputs, shape `(n, d)`, one sample a row.
        y: targets, shape `(n,)` or `(n, o)`.
        weights: non-negative weights of the samples, shape `(n,)`; they are used as they are, so
            `np.ones(n)` makes the loss a sum. `None` is `1/n` each.

    Raises:
        ValueError: if shapes do not agree, or an entry is not finite.
        TypeError: if an argument is no array of numbers.

    Example:
        >>> from scalinglimits.linear.losses import resolve_loss
        >>> data = EmpiricalData([[1.0, 0.0], [0.0, 2.0]], [1.0, 0.0])
        >>> loss, xi = data.evaluate(np.zeros(2), resolve_loss("square"))
        >>> round(loss, 12), xi.round(12) + 0.0
        (0.25, array([-0.5,  0. ]))
    """

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        self.X = check_array("X", X, (2,))
        self.y = _targets(y)
        n, self.in_features = self.X.shape
        if n == 0 or self.in_features == 0:
            raise ValueError(f"`X` must have at least one row and column; got {self.X.shape}")
        if len(self.y) != n:
            raise ValueError(
                f"`y` must have one row for each of the {n} samples; got {len(self.y)}"
            )
        self.out_features = 1 if self.y.ndim == 1 else self.y.shape[1]
        self.weights = np.full(n, 1.0 / n) if weights is None else _weights(weights, n)
        self._reduced: tuple[np.ndarray, np.ndarray, float] | None = None

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"EmpiricalData(X: {self.X.shape}, y: {self.y.shape})"

    def evaluate(self, predictor: np.ndarray, loss: Loss) -> tuple[float, np.ndarray]:
        """The mean loss of a linear predictor and its gradient; see `Measure.evaluate`."""
        if loss.is_square:
            rows, targets, rest = self._square_form()
            residual = rows @ predictor
            residual -= targets
            flat = residual.ravel()
            return 0.5 * float(flat @ flat) + rest, rows.T @ residual
        prediction = self.X @ predictor
        slope = loss.slope(prediction, self.y)
        values = loss.values(prediction, self.y)
        weighted = (slope.T * self.weights).T
        return math.nan if values is None else float(self.weights @ values), self.X.T @ weighted

    def evaluate_many(self, predictors: np.ndarray, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
        """The same for many predictors; see `Measure.evaluate_many`."""
        if not loss.is_square:
            return super().evaluate_many(predictors, loss)
        rows, targets, rest = self._square_form()
        columns = predictors.reshape(len(predictors), self.in_features, -1)
        residual = np.matmul(rows, columns)
        residual -= targets.reshape(len(targets), -1)
        flat = residual.reshape(len(predictors), 1, -1)
        values = 0.5 * np.matmul(flat, flat.transpose(0, 2, 1))[:, 0, 0] + rest
        return values, np.matmul(rows.T, residual).reshape(predictors.shape)

    def minimum_norm(self) -> np.ndarray:
        """The shortest minimiser of the mean square loss: where training from zero ends.

        Returns:
            Array of shape `(d,)` or `(d, o)`.
        """
        root = np.sqrt(self.weights)
        X, y = (self.X.T * root).T, (self.y.T * root).T
        return np.asarray(np.linalg.lstsq(X, y, rcond=None)[0])

    def _square_form(self) -> tuple[np.ndarray, np.ndarray, float]:
        """`R, z, c` with at most `d` rows such that the mean square loss is `|R p - z|^2/2 + c`."""
        if self._reduced is None:
            root = np.sqrt(self.weights)
            rows, targets, rest = (self.X.T * root).T, (self.y.T * root).T, 0.0
            if len(rows) > self.in_features:
                q, r = np.linalg.qr(rows)
                outside = targets - q @ (q.T @ targets)
                rows, targets, rest = r, q.T @ targets, 0.5 * float(np.sum(outside**2))
            self._reduced = np.ascontiguousarray(rows), np.ascontiguousarray(targets), rest
        return self._reduced


class GaussianData(Measure):
    r"""A Gaussian population with linear targets: `x ~ N(0, S)`, `y = target^T x + noise e`.

    The square loss is integrated in closed form, `xi = S (lambda - target)`. For other losses the
    prediction and the target are jointly Gaussian, and `xi` is a two-dimensional integral by
    Gauss--Hermite quadrature, exponentially accurate for smooth losses. (Huber's derivative has
    corners: expect three to four digits.)

    Args:
        covariance: `S`, shape `(d, d)`, symmetric, positive semidefinite.
        target: `lambda*`, shape `(d,)` or `(d, o)`.
        noise: standard deviation of the noise of each target.
        nodes: quadrature nodes in each of the two dimensions.

    Raises:
        ValueError: if shapes do not agree, an entry is not finite, or the covariance is not one.
        TypeError: if an argument is no array of numbers.

    Example:
        >>> from scalinglimits.linear.losses import resolve_loss
        >>> data = GaussianData(np.eye(2), [1.0, -1.0], noise=2.0)
        >>> data.evaluate(np.zeros(2), resolve_loss("square"))
        (3.0, array([-1.,  1.]))
    """

    def __init__(self, covariance: Any, target: Any, noise: float = 0.0, nodes: int = 60) -> None:
        self.covariance = check_array("covariance", covariance, (2,))
        self.target = check_array("target", target, (1, 2))
        d = len(self.covariance)
        if self.covariance.shape != (d, d) or d == 0:
            raise ValueError(f"`covariance` must be square; got {self.covariance.shape}")
        if len(self.target) != d:
            raise ValueError(
                f"`target` must have {d} rows, as `covariance`; got {self.target.shape}"
            )
        size = float(np.max(np.abs(self.covariance)))
        symmetric = np.allclose(self.covariance, self.covariance.T, rtol=0.0, atol=_SYMMETRY * size)
        if not symmetric or np.linalg.eigvalsh(self.covariance)[0] < -_SYMMETRY * size * d:
            raise ValueError(
                "`covariance` must be symmetric and positive semidefinite; got another"
            )
        if self.target.ndim == 2 and self.target.shape[1] == 1:
            self.target = self.target[:, 0]
        self.noise = check_real("noise", noise, minimum=0.0)
        self.in_features = d
        self.out_features = 1 if self.target.ndim == 1 else self.target.shape[1]
        points, weights = np.polynomial.hermite_e.hermegauss(check_count("nodes", nodes, 2))
        weights = weights / weights.sum()
        first, second = np.meshgrid(points, points, indexing="ij")
        self._first, self._second = first.ravel(), second.ravel()
        self._weights = np.outer(weights, weights).ravel()

    def __repr__(self) -> str:
        return f"GaussianData(d={self.in_features}, o={self.out_features}, noise={self.noise:g})"

    def evaluate(self, predictor: np.ndarray, loss: Loss) -> tuple[float, np.ndarray]:
        """The mean loss of a linear predictor and its gradient; see `Measure.evaluate`."""
        if loss.is_square:
            error = predictor - self.target
            gradient = self.covariance @ error
            value = 0.5 * float(error.ravel() @ gradient.ravel())
            return value + 0.5 * self.noise**2 * self.out_features, gradient
        if self.out_features == 1:
            return self._quadrature(predictor, self.target, loss)
        if not loss.separable:
            raise ValueError(
                "`loss` must be separable with Gaussian data and several outputs; got "
                f"{loss.name!r}"
            )
        parts = [
            self._quadrature(predictor[:, j], self.target[:, j], loss)
            for j in range(self.out_features)
        ]
        return sum(p[0] for p in parts), np.stack([p[1] for p in parts], axis=1)

    def evaluate_many(self, predictors: np.ndarray, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
        """The same for many predictors; see `Measure.evaluate_many`."""
        if not loss.is_square:
            return super().evaluate_many(predictors, loss)
        errors = (predictors - self.target).reshape(len(predictors), self.in_features, -1)
        gradients = np.matmul(self.covariance, errors)
        flat = errors.reshape(len(errors), 1, -1)
        values = 0.5 * np.matmul(flat, gradients.reshape(len(errors), -1, 1))[:, 0, 0]
        values += 0.5 * self.noise**2 * self.out_features
        return values, gradients.reshape(predictors.shape)

    def minimum_norm(self) -> np.ndarray:
        """The shortest minimiser of the mean square loss: where training from zero ends.

        Returns:
            Array of shape `(d,)` or `(d, o)`.
        """
        pseudo = np.linalg.pinv(self.covariance, hermitian=True)
        return np.asarray(pseudo @ (self.covariance @ self.target))

    def _quadrature(
        self, predictor: np.ndarray, target: np.ndarray, loss: Loss
    ) -> tuple[float, np.ndarray]:
        """`y = s z1`, `p = a z1 + b z2` and `E[x | z] = u z1 + v z2`, with z1, z2 independent."""
        toward_p, toward_y = self.covariance @ predictor, self.covariance @ target
        s = math.sqrt(max(target @ toward_y, 0.0) + self.noise**2)
        along = toward_y / s if s > 0.0 else np.zeros_like(toward_y)
        a = float(predictor @ along)
        b = math.sqrt(max(float(predictor @ toward_p) - a * a, 0.0))
        # As b tends to zero, so does the contribution of z2, whatever its direction.
        across = (toward_p - a * along) / b if b > 0.0 else np.zeros_like(along)
        p, y = a * self._first + b * self._second, s * self._first
        slope = self._weights * loss.slope(p, y)
        values = loss.values(p, y)
        value = math.nan if values is None else float(self._weights @ values)
        return value, along * (self._first @ slope) + across * (self._second @ slope)


def _targets(y: Any) -> np.ndarray:
    targets = check_array("y", y, (1, 2))
    return targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets


def _weights(weights: Any, n: int) -> np.ndarray:
    array = check_array("weights", weights, (1,))
    if array.shape != (n,) or np.any(array < 0.0):
        raise ValueError(f"`weights` must be {n} non-negative numbers; got shape {array.shape}")
    return array
