r"""Train linear networks of several widths on the user's own data, and say where they end.

The record holds, for each width and replicate, the trajectory of the predictor and a summary: the
loss at the end, the distance to the minimum-norm least-squares solution, and the norms of the
layers in the scaled variables of L, (2.3).
"""

from __future__ import annotations

__all__ = ["LinearRequest", "draw_linear", "linear_record"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalinglimits.data import load_features
from scalinglimits.figures.linear_settings import longest_step_size, width_label
from scalinglimits.figures.record import FigureRecord, Request
from scalinglimits.laws import Rademacher, Uniform
from scalinglimits.laws.streams import derive_seed
from scalinglimits.linear import EmpiricalData, LinearNetwork, square, train
from scalinglimits.linear.network import PARAMETRIZATIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MATRICES = ("gaussian", "haar", "rademacher", "uniform")
"""Names of the hidden matrices' laws; the last two are held in full at finite width."""
LOSSES = ("square", "logistic", "huber")
"""Names of the losses."""
_MAX_DENSE_WIDTH = 4096
_TITLE = "Linear networks on the given data"
_SHOWN = 8


@dataclass(frozen=True)
class LinearRequest:
    """What :func:`linear_record` trains.

    Attributes:
        data: CSV or NPZ file with features and a target.
        target: column or array to take as the target; None is ``y`` of an NPZ file.
        widths: numbers of neurons a layer, infinity included.
        hidden: number of hidden matrices.
        matrices: "gaussian", "haar", "rademacher" or "uniform".
        parametrization: "mup", "ntk", "standard" or "integrable".
        scale: factor of the output.
        step_size: τ; None is a tenth of the longest step that balanced layers at the solution
            allow, or 0.1 for losses other than the square one.
        steps: number of steps.
        loss: "square", "logistic" (targets −1 and 1) or "huber".
        replicates: networks of each finite width; infinite width is deterministic ("ntk" and
            "standard" aside) and trained once.
        standardize: whether features are brought to mean 0 and deviation 1, and the target to mean
            0 (deviation 1 too, except for the logistic loss, whose target is left as it is).
    """

    data: str
    target: str | None = None
    widths: Sequence[float] = (math.inf,)
    hidden: int = 1
    matrices: str = "gaussian"
    parametrization: str = "mup"
    scale: float = 1.0
    step_size: float | None = None
    steps: int = 1000
    loss: str = "square"
    replicates: int = 3
    standardize: bool = False

    def __post_init__(self) -> None:
        if not len(self.widths):
            raise ValueError("`widths` must hold at least one width; got none")
        if len(set(self.widths)) < len(self.widths):
            raise ValueError(f"`widths` must differ from each other; got {tuple(self.widths)}")
        for name, choices in (
            ("matrices", MATRICES),
            ("parametrization", PARAMETRIZATIONS),
            ("loss", LOSSES),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(choices)}; got {getattr(self, name)!r}"
                )
        for name, least in (("hidden", 0), ("steps", 1), ("replicates", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}; got {getattr(self, name)}")
        if self.step_size is not None and not 0.0 < self.step_size < math.inf:
            raise ValueError(f"`step_size` must be positive and finite; got {self.step_size}")
        widest = max((w for w in self.widths if math.isfinite(w)), default=0)
        if self.matrices in ("rademacher", "uniform") and widest > _MAX_DENSE_WIDTH:
            raise ValueError(
                f"`widths` must be at most {_MAX_DENSE_WIDTH}, or inf, with matrices held in full; "
                f"got {widest}"
            )


def linear_record(wanted: LinearRequest, request: Request) -> FigureRecord:
    """Train the networks.

    Args:
        wanted: the data and the networks.
        request: its seed is used.

    Returns:
        The record, features and outputs counted from 0: the table "" is the summary, "trajectory"
        the predictors in long form (each
        output and feature a row), thinned to at most 200 steps a run, and "solution" the
        minimum-norm least-squares solution.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the data or an option do not fit.
    """
    X, y = _load(wanted)
    data = EmpiricalData(X, y)
    laws: dict[str, Any] = {"rademacher": Rademacher(), "uniform": Uniform()}
    solution = data.minimum_norm()
    step_size = _step_size(wanted, data, solution) if wanted.step_size is None else wanted.step_size
    length = float(np.linalg.norm(solution))
    rows, parts = [], []
    for width in wanted.widths:
        network = LinearNetwork(
            data.in_features,
            hidden=wanted.hidden,
            width=width if math.isinf(width) else int(width),
            out_features=data.out_features,
            matrices=laws.get(wanted.matrices, wanted.matrices),
            parametrization=wanted.parametrization,
            scale=wanted.scale,
        )
        random = network.is_finite or network.is_kernel_limit
        for replicate in range(wanted.replicates if random else 1):
            run = train(
                network,
                data,
                step_size=step_size,
                steps=wanted.steps,
                seed=derive_seed(request.seed, "linear", repr(float(width)), replicate),
                loss=wanted.loss,
            )
            if run.predictor.size == 0:
                raise ValueError(f"`step_size` must not diverge at once; got {step_size}")
            predictor = run.predictor.reshape(len(run.predictor), data.in_features, -1)
            end = predictor[-1] - solution.reshape(predictor.shape[1:])
            distance = float(np.linalg.norm(end))
            rows.append(
                {
                    "width": float(width),
                    "replicate": replicate,
                    "status": run.status,
                    "steps": run.stop_step,
                    "first_loss": run.loss[0],
                    "final_loss": run.loss[-1],
                    "distance_to_minimum_norm": distance,
                    "relative_distance": distance / length if length > 0 else math.nan,
                    "predictor_norm": float(np.linalg.norm(predictor[-1])),
                    "u_square": run.u_square[-1],
                    "w_square": float(run.w_square[-1].sum()),
                    "v_square": run.v_square[-1],
                    "basis_vectors": int(run.dimensions.max()),
                }
            )
            parts.append(_trajectory(width, replicate, predictor, run.loss))
    table = pd.DataFrame(rows)
    sentences = []
    for width, part in table.groupby("width", sort=False):
        diverged = int((part.status == "diverged").sum())
        text = (
            f"m = {'∞' if math.isinf(float(width)) else f'{float(width):g}'}: "
            f"loss {part.final_loss.median():.4g}, relative distance to the minimum-norm solution "
            f"{part.relative_distance.median():.3g}"
        )
        sentences.append(text + (f" ({diverged} of {len(part)} diverged)" if diverged else ""))
    least = data.evaluate(solution, square())[0]
    caption = (
        f"{len(X)} samples, {data.in_features} features, {data.out_features} "
        f"output{'s' if data.out_features > 1 else ''}; hidden matrices: {wanted.hidden} "
        f"({wanted.matrices}), {wanted.parametrization}, scale {wanted.scale:g}, {wanted.steps} "
        f"steps of size {step_size:.4g}, {wanted.loss} loss. Medians at the end: "
        + "; ".join(sentences)
        + f". Least mean square loss of a linear predictor: {least:.4g}."
    )
    settings = {
        "data": wanted.data,
        "target": wanted.target,
        "hidden": wanted.hidden,
        "matrices": wanted.matrices,
        "parametrization": wanted.parametrization,
        "scale": wanted.scale,
        "step_size": step_size,
        "steps": wanted.steps,
        "loss": wanted.loss,
        "standardize": wanted.standardize,
        "seed": request.seed,
    }
    columns = solution.reshape(data.in_features, -1)
    answer = pd.DataFrame(
        [
            {"output": j, "feature": i, "value": columns[i, j]}
            for j in range(columns.shape[1])
            for i in range(columns.shape[0])
        ]
    )
    tables = {"": table, "trajectory": pd.concat(parts), "solution": answer}
    return FigureRecord("linear", _TITLE, caption, tables, settings)


def draw_linear(record: FigureRecord) -> Figure:
    """Draw the losses and the predictors' largest coordinates.

    Args:
        record: of :func:`linear_record`.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import COLORS, label_axes, panels, styled, write_caption

    with styled():
        figure, axes = panels(1, 2, size=(4.9, 3.7))
        paths = record.tables["trajectory"]
        answer = record.tables["solution"]
        shown = answer[answer.output == 0].assign(size=lambda t: t.value.abs())
        features = shown.nlargest(4, "size").feature.tolist()
        widths = list(dict.fromkeys(paths.width))[:_SHOWN]
        styles = ("-", "--", ":", "-.")
        for i, width in enumerate(widths):
            color = "black" if math.isinf(width) else COLORS[i % len(COLORS)]
            for replicate, run in paths[paths.width == width].groupby("replicate"):
                first = run[(run.feature == run.feature.iloc[0]) & (run.output == 0)]
                line: dict[str, Any] = {"color": color, "linewidth": 1.8 if color == "black" else 1}
                label = None if replicate else width_label(width)
                axes[0, 0].plot(first.step + 1, first.loss, label=label, **line)
                for j, feature in enumerate(features):
                    part = run[(run.feature == feature) & (run.output == 0)]
                    axes[0, 1].plot(part.step + 1, part.predictor, styles[j], **line)
        for j, feature in enumerate(features):
            value = float(shown[shown.feature == feature].value.iloc[0])
            axes[0, 1].axhline(value, color="#CC0000", linewidth=0.7)
            axes[0, 1].plot([], [], styles[j], color="0.4", label=f"feature {feature}")
        axes[0, 1].plot([], [], color="#CC0000", linewidth=0.7, label="minimum-norm solution")
        for ax in axes[0]:
            ax.set_xscale("log")
        if (paths.loss > 0).all():
            axes[0, 0].set_yscale("log")
        label_axes(
            axes[0, 0], "(a) loss", r"$\kappa + 1$ (steps)", f"{record.settings['loss']} loss"
        )
        label_axes(axes[0, 1], "(b) largest coordinates of the predictor", r"$\kappa + 1$ (steps)",
                   r"$\lambda_i(\kappa)$")  # fmt: skip
        axes[0, 0].legend()
        axes[0, 1].legend(fontsize=7)
        write_caption(figure, record.title, record.caption)
        return figure


def _load(wanted: LinearRequest) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_features(wanted.data, wanted.target)
    if y is None:
        raise ValueError(f"`target` must name the target of {wanted.data}; got None")
    if wanted.loss == "logistic" and not np.isin(y, (-1.0, 1.0)).all():
        raise ValueError("`target` must be -1 or 1 for the logistic loss; got other values")
    if wanted.standardize:
        X = X - X.mean(axis=0)
        X = X / _nonzero(X.std(axis=0))
        if wanted.loss != "logistic":
            y = y - y.mean(axis=0)
            y = y / _nonzero(y.std(axis=0))
    return X, y


def _nonzero(deviation: np.ndarray) -> np.ndarray:
    """Deviations, with one in the place of zero: a constant stays zero."""
    return np.where(deviation > 0.0, deviation, 1.0)


def _step_size(wanted: LinearRequest, data: EmpiricalData, solution: np.ndarray) -> float:
    """A tenth of 2 / (speed · λ_max), the longest stable step of balanced layers."""
    curvature = float(np.linalg.norm(data.X, 2) ** 2 / len(data))
    if wanted.loss != "square":
        return min(0.1, 0.2 / (curvature * (wanted.hidden + 2) * wanted.scale**2))
    if curvature == 0.0:
        return 0.1
    norm = float(np.linalg.norm(solution))
    return 0.1 * longest_step_size(curvature, wanted.hidden, norm, wanted.scale)


def _trajectory(
    width: float, replicate: int, predictor: np.ndarray, loss: np.ndarray
) -> pd.DataFrame:
    """Predictors in long form, thinned on a logarithmic grid of steps."""
    steps = np.unique(np.rint(np.geomspace(1, len(loss), min(len(loss), 200)) - 1).astype(int))
    _, d, o = predictor.shape
    step, output, feature = np.meshgrid(steps, np.arange(o), np.arange(d), indexing="ij")
    return pd.DataFrame(
        {
            "width": float(width),
            "replicate": replicate,
            "step": step.ravel(),
            "output": output.ravel(),
            "feature": feature.ravel(),
            "predictor": predictor[steps].transpose(0, 2, 1).ravel(),
            "loss": np.repeat(loss[steps], d * o),
        }
    )
