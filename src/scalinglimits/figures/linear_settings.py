r"""The data on which linear networks are studied, and small tools of their figures.

Three settings:

- ``"text"``: L, section 2: d = 10, :math:`x\sim N(0, I)`, :math:`y = x^\top\lambda^*`, population
  loss, step size 0.2. For :math:`\|\lambda^*\| > 2.4375` that step is too long and the limit
  oscillates for ever, so λ* is the first draw with :math:`\|\lambda^*\|\le 2.2`; a χ law with 10
  degrees of freedom is below 2.4375 with probability 0.18.
- ``"code"``: L's public notebook: d = 20, n = 15 samples, :math:`X/\sqrt d`, the loss a sum over
  the samples, step size 0.02.
- ``"study"``: n < d samples whose second moments have eigenvalues from 1 to 4, and a minimum-norm
  solution of length 2: an interpolation problem without slow directions.
"""

from __future__ import annotations

__all__ = [
    "STABLE_NORM",
    "PowerFit",
    "Setting",
    "draw_distances",
    "error_bars",
    "errors_from_limit",
    "finite_networks",
    "linear_setting",
    "longest_step_size",
    "mean_squares",
    "power_fit",
    "square_errors",
    "width_label",
]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalinglimits.laws.streams import derive_seed
from scalinglimits.linear import (
    EmpiricalData,
    GaussianData,
    LinearNetwork,
    MiniBatches,
    Replicates,
    train,
    train_replicates,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STABLE_NORM = 2.4375
"""Largest ‖λ*‖ for which the limit converges at the step size 0.2 (text's data; to 1e-3)."""
_DRAWN_NORM = 2.2
_NORMAL_QUANTILE = 1.96


@dataclass(frozen=True, eq=False)
class Setting:
    """Data with the step size at which they are learnt.

    Attributes:
        name: "text", "code" or "study".
        data: the measure.
        step_size: of gradient descent.
        steps: until the loss is small.
        label: the data in words.
    """

    name: str
    data: EmpiricalData | GaussianData
    step_size: float
    steps: int
    label: str

    @property
    def in_features(self) -> int:
        """Dimension of the inputs."""
        return self.data.in_features

    @property
    def solution(self) -> np.ndarray:
        """The minimum-norm least-squares solution, shape (d,)."""
        return self.data.minimum_norm()

    @property
    def second_moments(self) -> np.ndarray:
        """The matrix Σ = ∫ x xᵀ dρ, shape (d, d)."""
        if isinstance(self.data, GaussianData):
            return self.data.covariance
        return (self.data.X.T * self.data.weights) @ self.data.X

    def distance(self, predictor: np.ndarray) -> np.ndarray:
        """Distances from the minimum-norm solution, relative to its norm.

        Args:
            predictor: shape (..., d).

        Returns:
            Array of shape (...).
        """
        solution = self.solution
        return np.asarray(np.linalg.norm(predictor - solution, axis=-1) / np.linalg.norm(solution))


def linear_setting(name: str, seed: int) -> Setting:
    """Draw the data of a setting.

    Args:
        name: "text", "code" or "study".
        seed: of the data.

    Returns:
        The setting.

    Raises:
        ValueError: if the name is another.
    """
    rng = np.random.default_rng(derive_seed(seed, "linear data", name))
    if name == "text":
        target = rng.standard_normal(10)
        while np.linalg.norm(target) > _DRAWN_NORM:
            target = rng.standard_normal(10)
        data = GaussianData(np.eye(10), target)
        label = f"d = 10, x ~ N(0, I), population loss, ‖λ*‖ = {np.linalg.norm(target):.2f}"
        return Setting(name, data, 0.2, 60, label)
    if name == "code":
        X = rng.standard_normal((15, 20)) / math.sqrt(20)
        y = X @ rng.standard_normal(20)
        label = "d = 20, n = 15, X/√d, loss summed over the samples"
        return Setting(name, EmpiricalData(X, y, weights=np.ones(15)), 0.02, 1000, label)
    if name == "study":
        n, d = 8, 12
        frame, _ = np.linalg.qr(rng.standard_normal((d, n)))
        X = np.sqrt(np.linspace(1.0, 4.0, n))[:, None] * frame.T
        direction = rng.standard_normal(n)
        y = X @ (frame @ (2.0 * direction / np.linalg.norm(direction)))
        label = f"d = {d}, n = {n} samples, second moments with eigenvalues 1 to 4, ‖λ*‖ = 2"
        return Setting(name, EmpiricalData(X, y, weights=np.ones(n)), 0.02, 300, label)
    raise ValueError(f"`name` must be 'text', 'code' or 'study'; got {name!r}")


@dataclass(frozen=True)
class PowerFit:
    """The exponent of a power law fitted to measured means.

    Attributes:
        exponent: the slope in logarithms.
        half_width: of its 95 % confidence interval.
        constant: the factor of the power.
    """

    exponent: float
    half_width: float
    constant: float

    def __str__(self) -> str:
        """The exponent with its interval."""
        return f"{self.exponent:+.3f} ± {self.half_width:.3f}"


def power_fit(x: np.ndarray, mean: np.ndarray, error: np.ndarray) -> PowerFit:
    """Fit ``mean = c x^e`` by weighted least squares in logarithms.

    Args:
        x: where it was measured, shape (k,).
        mean: positive means, shape (k,).
        error: their standard errors, shape (k,); known, so that they alone make the interval.

    Returns:
        The fit.
    """
    weights = np.square(np.asarray(mean) / np.asarray(error))
    log_x, log_y = np.log(np.asarray(x, dtype=np.float64)), np.log(mean)
    centre = np.average(log_x, weights=weights)
    spread = float(weights @ (log_x - centre) ** 2)
    slope = float(weights @ ((log_x - centre) * log_y)) / spread
    level = np.average(log_y, weights=weights) - slope * centre
    return PowerFit(slope, _NORMAL_QUANTILE / math.sqrt(spread), math.exp(level))


def longest_step_size(curvature: float, hidden: int, norm: float, scale: float = 1.0) -> float:
    r"""Longest stable step of balanced layers at the solution, 2 / (speed · curvature).

    Args:
        curvature: the largest eigenvalue of Σ.
        hidden: number n of hidden matrices.
        norm: of the solution.
        scale: s, factor of the output.

    Returns:
        The step size, with the speed :math:`(n+2)s^2\max(1,(\|\lambda^*\|/s)^{2(n+1)/(n+2)})`.
    """
    speed = (hidden + 2) * scale**2 * max(1.0, (norm / scale) ** (2 * (hidden + 1) / (hidden + 2)))
    return 2.0 / (curvature * speed)


def finite_networks(setting: Setting, width: int, runs: int, steps: int, seed: int) -> Replicates:
    """Train networks of one width, with one hidden matrix, by the setting's step size.

    Args:
        setting: the data.
        width: number of neurons a layer.
        runs: number of networks.
        steps: number of steps.
        seed: of the weights.

    Returns:
        The runs, every step recorded.
    """
    return train_replicates(
        LinearNetwork(setting.in_features, width=width),
        setting.data,
        replicates=runs,
        step_size=setting.step_size,
        steps=steps,
        seed=seed,
    )


def errors_from_limit(
    network: LinearNetwork,
    data: EmpiricalData | GaussianData | MiniBatches,
    *,
    runs: int,
    record: Sequence[int],
    step_size: float,
    seed: int,
) -> np.ndarray:
    """Train finite networks and their limit on the same data, and compare the predictors.

    Args:
        network: of finite width.
        data: the measure, or mini-batches, which all of them see alike.
        runs: number of networks.
        record: the steps at which to compare; training ends at the last.
        step_size: of gradient descent.
        seed: of the weights.

    Returns:
        Squared distances, shape (runs, len(record)); infinite after a divergence.
    """
    options: dict[str, Any] = {"step_size": step_size, "steps": record[-1]}
    found = train_replicates(network, data, replicates=runs, record=record, seed=seed, **options)
    limit = train(network.with_width(math.inf), data, **options)
    return square_errors(found, limit.predictor[list(record)])


def square_errors(runs: Replicates, limit: np.ndarray) -> np.ndarray:
    """Squared distances of finite networks from their limit.

    Args:
        runs: of the finite networks.
        limit: predictors of the limit at the same steps, shape (T, d).

    Returns:
        Array of shape (R, T); infinite after a divergence.
    """
    errors = np.sum(np.square(runs.predictor - limit), axis=-1)
    return np.where(np.isnan(errors), math.inf, errors)


def mean_squares(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over replicates, with their standard errors.

    Args:
        errors: shape (R, ...).

    Returns:
        Two arrays of shape (...).
    """
    return errors.mean(axis=0), errors.std(axis=0, ddof=1) / math.sqrt(len(errors))


def error_bars(mean: pd.Series, error: pd.Series) -> list[pd.Series]:
    """Lengths of 95 % intervals below and above positive means, symmetric in logarithms.

    Args:
        mean: the means.
        error: their standard errors.

    Returns:
        The two lengths, as ``Axes.errorbar`` takes them.
    """
    spread = np.exp(_NORMAL_QUANTILE * error / mean)
    return [mean * (1 - 1 / spread), mean * (spread - 1)]


def width_label(width: float) -> str:
    """A width in mathtext: such as ``$m = 10^{4}$``.

    Args:
        width: a number of neurons, or infinity.

    Returns:
        The text.
    """
    if math.isinf(width):
        return r"$m = \infty$"
    power = math.log10(width)
    if width >= 1e4 and power == round(power):
        return rf"$m = 10^{{{round(power)}}}$"
    return rf"$m = {int(width)}$"


def draw_distances(ax: Axes, groups: Sequence[tuple[str, pd.DataFrame, pd.Series]]) -> None:
    """Draw mean square distances from the limit against the width, with slopes −1.

    Args:
        ax: the panel.
        groups: for each curve its name, its table (columns ``width, mean_square,
            standard_error``) and its fit (``exponent, half_width``).
    """
    from scalinglimits.figures.style import COLORS, label_axes

    for i, (name, part, fit) in enumerate(groups):
        ax.errorbar(
            part.width * 1.1 ** (i - (len(groups) - 1) / 2),  # side by side
            part.mean_square,
            error_bars(part.mean_square, part.standard_error),
            fmt="o",
            ms=3.5,
            color=COLORS[i],
            label=f"{name}: exponent {fit.exponent:+.2f} ± {fit.half_width:.2f}",
        )
        last = part.iloc[-1]
        line = last.mean_square * last.width / part.width
        ax.plot(part.width, line, "--", linewidth=0.8, color=COLORS[i])
    ax.plot([], [], "--", color="0.4", linewidth=0.8, label="slope −1")
    ax.set_xscale("log")
    ax.set_yscale("log")
    y = r"$E\,\|\lambda^m - \lambda^\infty\|^2$"
    label_axes(ax, "(b) distance from the limit", "width m", y)
