r"""Signal and gradient across the layers of residual networks fed with data, with verdicts.

For each law of the weights and each exponent β: the profile of ‖h_k−h_0‖/‖h_0‖ and
‖p_k−p_L‖/‖p_L‖ across the layers of the deepest network, the change end to end at every depth, and
what to make of it. Theory beside it, as root mean squares over the weights: exact,
:math:`\sqrt{(1+c\alpha^2)^k-1}` with :math:`c = (a_+^2+a_-^2)/2`, for independent weights; of
first order, :math:`\alpha\sqrt{S_k}`, for the others.
"""

from __future__ import annotations

__all__ = ["ProfileRequest", "draw_profiles", "profile_record", "verdict_table"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.data import load_digits, load_features
from scalinglimits.figures.record import FigureRecord, Request
from scalinglimits.laws import Independent
from scalinglimits.laws.names import depth_law
from scalinglimits.laws.streams import substream
from scalinglimits.residual import (
    ResidualNetwork,
    classify_change,
    propagate,
    regime,
    response_moments,
)
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.model import branch_activation
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 60
"""Layers of a profile that are recorded, at most."""


@dataclass(frozen=True)
class ProfileRequest:
    """What :func:`profile_record` measures.

    Attributes:
        data: "digits", "gaussian:D" (standard normal in D dimensions) or a CSV, NPY or NPZ file.
        weights: laws across depth by name, see :func:`scalinglimits.laws.names.depth_law`.
        betas: exponents of the branch scale.
        depths: numbers of layers, increasing; profiles are of the last.
        width: size of the hidden states.
        branch: "res-1", "res-2" or "res-3".
        activation: name of the activation of res-1 and res-2, or None for the default.
        inputs: samples of the data fed to each network.
        networks: independent networks of each kind.
        out_features: size of the output.
    """

    data: str = "digits"
    weights: Sequence[str] = ("independent",)
    betas: Sequence[float] = (0.5,)
    depths: Sequence[int] = (10, 32, 100, 316, 1000)
    width: int = 40
    branch: str = "res-3"
    activation: str | None = None
    inputs: int = 16
    networks: int = 5
    out_features: int = 10

    def __post_init__(self) -> None:
        for name in ("weights", "betas", "depths"):
            if not len(getattr(self, name)):
                raise ValueError(f"`{name}` must hold at least one value; got none")
        if min(self.depths) < 1:
            raise ValueError(f"`depths` must be positive integers; got {tuple(self.depths)}")
        for beta in self.betas:
            if not math.isfinite(beta):
                raise ValueError(f"`betas` must be finite numbers; got {beta!r}")
        for name in ("width", "inputs", "networks", "out_features"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be a positive integer; got {getattr(self, name)}")


@lru_cache(maxsize=4)
def load_inputs(data: str) -> np.ndarray:
    """Return the data that a network is fed with.

    Args:
        data: see :class:`ProfileRequest`.

    Returns:
        Samples of shape (n, d), float64.

    Raises:
        ValueError: if the text or the file does not fit.
    """
    if data == "digits":
        return load_digits()[0].astype(np.float64)
    kind, _, size = data.partition(":")
    if kind == "gaussian":
        if not size.isdigit() or int(size) < 1:
            raise ValueError(f"`data` must give the dimension, as in gaussian:64; got {data!r}")
        return np.random.default_rng(0).standard_normal((4096, int(size)))
    return load_features(data)[0]


def _profile_layers(depth: int) -> list[int]:
    return np.unique(np.rint(np.linspace(0, depth, min(depth, _POINTS) + 1)).astype(int)).tolist()


def _measure_network(
    weights: str,
    depth: int,
    betas: tuple[float, ...],
    data: str,
    width: int,
    branch: str,
    activation: str | None,
    inputs: int,
    out_features: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Propagate a sample of the data through one network, for all exponents.

    Returns natural logarithms of the ratios at the profile's layers, shape (n_beta, n_layers) (mean
    squares over the inputs), and the changes end to end, shape (n_beta, inputs).
    """
    import torch

    X = load_inputs(data)
    network = ResidualNetwork(
        X.shape[1],
        width,
        depth,
        out_features,
        branch=branch,
        activation=activation,
        weights=depth_law(weights),
        beta=betas[0],
        generator=substream(seed, "weights"),
    )
    chosen = torch.randperm(len(X), generator=substream(seed, "inputs"))[:inputs].numpy()
    record = propagate(
        network,
        torch.as_tensor(X[chosen], dtype=torch.float32),
        beta=betas,
        layers=_profile_layers(depth),
        generator=substream(seed, "output gradient"),
    )
    means = {
        "hidden": record.log_hidden_change,
        "backward": record.log_backward_change,
    }
    results = {
        name: (np.logaddexp.reduce(2 * log, axis=1) - math.log(log.shape[1])) / 2
        for name, log in means.items()
    }
    ratios = record.log_ratios
    return results | {name: ratios[name] for name in ("hidden_change", "gradient_change")}


def profile_record(
    wanted: ProfileRequest, request: Request, name: str = "propagate"
) -> FigureRecord:
    """Measure networks of every depth, law and exponent on real data.

    Args:
        wanted: the networks and the data.
        request: seed, store, workers and progress.
        name: of the record.

    Returns:
        Tables "" (one row per law, exponent and depth), "profile" (one row per layer of the
        deepest networks) and "verdict" (one row per law and exponent).

    Raises:
        ValueError: if the data, a law, the branch or the activation does not fit.
    """
    load_inputs(wanted.data)
    for text in wanted.weights:
        depth_law(text)
    for depth in wanted.depths:  # sizes, branch and activation, before any work
        ResidualNetwork(
            1,
            wanted.width,
            depth,
            1,
            branch=wanted.branch,
            activation=wanted.activation,
            beta=0.5,
            device="meta",
        )
    depths, betas = sorted(set(wanted.depths)), tuple(wanted.betas)
    result = sweep(
        _measure_network,
        {
            "weights": list(dict.fromkeys(wanted.weights)),
            "depth": depths,
            "betas": [betas],
            "data": [wanted.data],
            "width": [wanted.width],
            "branch": [wanted.branch],
            "activation": [wanted.activation],
            "inputs": [wanted.inputs],
            "out_features": [wanted.out_features],
        },
        seeds=wanted.networks,
        seed_by=["weights", "depth", "width"],  # one more exponent changes no draw
        name="propagate",
        on_error="raise",
        **request.sweep_options(),
    )
    cells = pd.DataFrame(
        [
            {"weights": cell.config["weights"], "depth": cell.config["depth"], **cell.values}
            for cell in result.cells
        ]
    )
    changes, profiles = [], []
    for (weights, depth), group in cells.groupby(["weights", "depth"], sort=False):
        for j, beta in enumerate(betas):
            row = {"weights": weights, "beta": beta, "depth": depth}
            for quantity in ("hidden_change", "gradient_change"):
                logs = np.concatenate([values[j] for values in group[quantity]])
                lower, median, upper = np.quantile(logs, [0.25, 0.5, 0.75], method="nearest")
                row[f"log10_{quantity}"] = median / math.log(10)
                row[f"log10_{quantity}_lower_quartile"] = lower / math.log(10)
                row[f"log10_{quantity}_upper_quartile"] = upper / math.log(10)
            changes.append(row)
            if depth == depths[-1]:
                sides = {
                    side: np.stack([values[j] for values in group[side]])
                    for side in ("hidden", "backward")
                }
                profiles.append(_profile_table(wanted, weights, beta, depth, sides))
    table, profile = pd.DataFrame(changes), pd.concat(profiles)
    verdicts = verdict_table(table, wanted)
    caption = (
        f"Change of the signal since the first layer and of the gradient since the last one. "
        f"{wanted.branch}, width {wanted.width}, depth {depths[-1]}, fed with {wanted.inputs} "
        f"samples of {wanted.data}; {wanted.networks} networks of each kind: median and range over "
        "networks of the root mean square over samples. Dashed: theory, exact for independent "
        "weights, of first order for the others."
    )
    settings = {
        "data": wanted.data,
        "width": wanted.width,
        "depths": tuple(depths),
        "branch": wanted.branch,
        "networks": wanted.networks,
        "inputs": wanted.inputs,
        "seed": request.seed,
    }
    tables = {"": table, "profile": profile, "verdict": verdicts}
    title = "Signal and gradient across depth"
    return FigureRecord(name, title, caption, tables, settings)


def _profile_table(
    wanted: ProfileRequest, weights: str, beta: float, depth: int, logs: dict[str, np.ndarray]
) -> pd.DataFrame:
    """Return one row per recorded layer: measurement in powers of ten, and theory."""
    layers = np.array(_profile_layers(depth))
    theory_hidden, theory_backward = _profile_theory(wanted, weights, beta, depth, layers)
    columns: dict[str, object] = {"weights": weights, "beta": beta, "layer": layers}
    for side, theory in (("hidden", theory_hidden), ("backward", theory_backward)):
        log10 = logs[side] / math.log(10)
        columns[f"log10_{side}"] = np.median(log10, axis=0)
        columns[f"log10_{side}_min"] = log10.min(axis=0)
        columns[f"log10_{side}_max"] = log10.max(axis=0)
        columns[f"log10_{side}_theory"] = theory / math.log(10)
    return pd.DataFrame(columns)


def _profile_theory(
    wanted: ProfileRequest, weights: str, beta: float, depth: int, layers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return natural logarithms of the root mean squares of signal and gradient, NaN if unknown."""
    activation = branch_activation(wanted.branch, wanted.activation)
    slopes = resolve_activation(activation).slopes
    if slopes is None:
        return np.full(len(layers), np.nan), np.full(len(layers), np.nan)
    law, alpha_square = depth_law(weights), float(depth) ** (-2 * beta)
    if isinstance(law, Independent):
        rate = math.log1p(alpha_square * (slopes[0] ** 2 + slopes[1] ** 2) / 2)
        growth = np.array([_log_expm1(k * rate) / 2 for k in range(depth + 1)])
        return growth[layers], growth[depth - layers]
    sizes = np.unique(np.concatenate([layers, depth - layers]))[1:]
    moments = response_moments(
        law,
        sizes,
        width=wanted.width,
        branch=wanted.branch,
        activation=activation,
        total_depth=depth,
    )
    hidden = dict(zip(sizes.tolist(), moments.hidden.tolist(), strict=True)) | {0: 0.0}
    gradient = dict(zip(sizes.tolist(), moments.gradient.tolist(), strict=True)) | {0: 0.0}
    return (
        np.array([_log(alpha_square * hidden[int(k)]) / 2 for k in layers]),
        np.array([_log(alpha_square * gradient[int(depth - k)]) / 2 for k in layers]),
    )


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _log_expm1(x: float) -> float:
    """Return log(exp(x) − 1) for x ≥ 0, which neither cancels nor overflows."""
    return _log(math.expm1(x)) if x < 1 else x + math.log1p(-math.exp(-x))


def verdict_table(changes: pd.DataFrame, wanted: ProfileRequest) -> pd.DataFrame:
    """Say of each law and exponent what the networks are at the largest depth.

    Args:
        changes: the main table of :func:`profile_record`.
        wanted: the networks.

    Returns:
        One row per law and exponent: the measured ``verdict``, the medians in powers of ten, the
        ``growth`` exponent of the signal's change in the depth, the ``predicted`` regime and the
        exponent to choose (NaN where the activation has no theory).
    """
    rows = []
    activation = branch_activation(wanted.branch, wanted.activation)
    homogeneous = resolve_activation(activation).slopes is not None
    for (weights, beta), group in changes.groupby(["weights", "beta"], sort=False):
        last = group.iloc[-1]
        log_change = last.log10_hidden_change
        growth = math.nan
        if len(group) > 1:
            growth = float(np.polyfit(np.log10(group.depth), group.log10_hidden_change, 1)[0])
        row = {
            "weights": weights,
            "beta": beta,
            "depth": int(last.depth),
            "verdict": classify_change(10.0 ** min(log_change, 300.0)),
            "log10_hidden_change": log_change,
            "log10_gradient_change": last.log10_gradient_change,
            "growth": growth,
            "predicted": "",
            "suggested_beta": math.nan,
        }
        if homogeneous:
            theory = regime(
                wanted.width,
                int(last.depth),
                beta,
                depth_law(weights),
                branch=wanted.branch,
                activation=activation,
            )
            row |= {"predicted": theory.verdict, "suggested_beta": theory.suggested_beta}
        rows.append(row)
    return pd.DataFrame(rows)


def draw_profiles(record: FigureRecord) -> Figure:
    """Draw the profiles of signal and gradient, theory beside measurement.

    Args:
        record: of :func:`profile_record`.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    profile = record.tables["profile"]
    groups = list(profile.groupby(["weights", "beta"], sort=False))
    figure, axes = panels(1, 2, size=(4.6, 3.8))
    for ax, side, label, title in (
        (axes[0, 0], "hidden", r"$\|h_k - h_0\|\,/\,\|h_0\|$", "signal"),
        (axes[0, 1], "backward", r"$\|p_k - p_L\|\,/\,\|p_L\|$", "gradient"),
    ):
        for i, ((weights, beta), part) in enumerate(groups):
            color = COLORS[i % len(COLORS)]
            part = part[np.isfinite(part[f"log10_{side}"])]
            ax.plot(
                part.layer,
                part[f"log10_{side}"],
                color=color,
                label=f"{weights} weights, β = {beta:g}",
            )
            ax.fill_between(
                part.layer,
                part[f"log10_{side}_min"],
                part[f"log10_{side}_max"],
                color=color,
                alpha=0.2,
                linewidth=0,
            )
            ax.plot(part.layer, part[f"log10_{side}_theory"], "--", color=color, linewidth=1)
        ax.axhline(0, color="black", linewidth=0.5)
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, -6), high)
        label_axes(ax, title, "layer k", f"log10 of {label}")
    axes[0, 0].plot([], [], "--", color="0.4", label="theory")
    axes[0, 0].legend()
    write_caption(figure, record.title, record.caption)
    return figure
