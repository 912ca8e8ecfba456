r"""What each average of the fans does to the signal: gains predicted and measured.

A layer multiplies the second moment of the signal by its forward gain :math:`m t`, and that of
the gradient by its backward gain :math:`n t`, with :math:`t` the variance of a weight; an
activation :math:`\sigma` by :math:`E\,\sigma(z)^2/E z^2` and :math:`E\,\sigma'(z)^2`. Along a
chain of layers the gains multiply.

Reference:
    Su, "Rethinking the dimension-averaging strategy for non-square matrices in initialization".
"""

from __future__ import annotations

import copy
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from scalinglimits.init._activations import weightless_gains
from scalinglimits.init._borders import counted_fans
from scalinglimits.init._checks import check_integer, check_mode
from scalinglimits.init._plan import bare_name
from scalinglimits.init._probe import Visit, probe
from scalinglimits.init.axes import Axes
from scalinglimits.init.layers import parameter_role
from scalinglimits.init.models import initialize_
from scalinglimits.laws import EntryLaw
from scalinglimits.laws.fans import MODES
from scalinglimits.laws.streams import derive_seed, substream

__all__ = ["END_TO_END", "signal_table"]

END_TO_END = "end to end"
"""The layer's name in the rows of the whole model."""

_PARTS = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def signal_table(
    model_or_shapes: nn.Module | Sequence[tuple[int, int]],
    inputs: Any = None,
    *,
    modes: str | Sequence[str] = MODES,
    distribution: str | EntryLaw = "normal",
    gains: float | Mapping[str, float] = 1.0,
    exclude: str | Sequence[str] = (),
    axes: Mapping[str, Axes] | None = None,
    activation: nn.Module | None = None,
    batch: int = 256,
    draws: int = 8,
    seed: int = 0,
) -> pd.DataFrame:
    r"""Tabulate forward and backward gains of each layer in each mode, and from end to end.

    Copies of the model are initialised by `initialize_`, and run forward on the inputs and
    backward on a Gaussian gradient; the model itself is not touched. Predictions hold for wide
    layers, and count the borders of convolutions, which fans ignore. They are missing (NaN) for
    normalisation, pooling, attention and recurrent layers, and from end to end where layers do
    not form a chain.

    Args:
        model_or_shapes: A model; or the (inputs, outputs) of dense layers in a chain, run
            without biases on Gaussian inputs.
        inputs: The model's input, or a tuple of its arguments; None for shapes.
        modes: The averages to compare.
        distribution: As in `initialize_`.
        gains: As in `initialize_`.
        exclude: As in `initialize_`.
        axes: As in `initialize_`.
        activation: For shapes, a module between one layer and the next.
        batch: For shapes, the number of inputs.
        draws: The number of initialisations to average.
        seed: The seed of everything random.

    Returns:
        A table with one row for each mode and call of a leaf layer, and a last one for the
        whole: ``mode``, ``layer``, ``call`` (from 0), ``type``, ``fan_in``, ``fan_out``,
        ``forward_predicted``, ``forward``, ``forward_se``, ``backward_predicted``,
        ``backward``, ``backward_se`` and ``draws``. Standard errors are over draws, NaN for
        one.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If shapes do not form a chain, inputs are missing, a mode is unknown, or
            `initialize_` cannot initialise the model.

    Example:
        >>> table = signal_table([(128, 512), (512, 128)], modes=["fan_avg", "fan_geo_avg"])
        >>> ends = table[table.layer == END_TO_END]
        >>> ends[["mode", "forward_predicted"]].round(4)
                  mode  forward_predicted
        2      fan_avg               0.64
        5  fan_geo_avg               1.00
    """
    names = [modes] if isinstance(modes, str) else list(modes)
    names = [check_mode(mode) for mode in names]
    draws, batch = _check_count("draws", draws), _check_count("batch", batch)
    if isinstance(model_or_shapes, nn.Module):
        if activation is not None:
            raise ValueError(f"`activation` must be None for a model; got {activation}")
        if inputs is None:
            raise ValueError("`inputs` must be the input of the model; got None")
        model = model_or_shapes
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    else:
        if inputs is not None:
            raise ValueError("`inputs` must be None for shapes, whose inputs are Gaussian")
        model = _chain(model_or_shapes, activation)
        width = int(model_or_shapes[0][0])
        arguments = (torch.randn(batch, width, generator=substream(seed, "inputs")),)

    rows = []
    for mode in names:
        totals: dict[tuple[str, int], _Total] = {}
        for draw in range(draws):
            twin = copy.deepcopy(model)
            done = initialize_(
                twin,
                mode,
                distribution,
                gains=gains,
                exclude=exclude,
                axes=axes,
                seed=derive_seed(seed, "draw", draw),
            )
            _add_pass(totals, twin, done, arguments, substream(seed, "gradient", draw))
        rows += [total.row(mode, *key) for key, total in totals.items()]
    return pd.DataFrame(rows)


@dataclass
class _Total:
    """Gains of one call of one layer, over the draws."""

    type: str
    fan_in: float = math.nan
    fan_out: float = math.nan
    predicted: list[tuple[float, float]] = field(default_factory=list)
    measured: list[tuple[float, float]] = field(default_factory=list)

    def row(self, mode: str, layer: str, call: int) -> dict[str, Any]:
        predicted = np.array(self.predicted).mean(axis=0)
        values = np.array(self.measured)
        count = len(values)
        error = values.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else [math.nan] * 2
        return {
            "mode": mode,
            "layer": layer,
            "call": call,
            "type": self.type,
            "fan_in": self.fan_in,
            "fan_out": self.fan_out,
            "forward_predicted": predicted[0],
            "forward": values[:, 0].mean(),
            "forward_se": error[0],
            "backward_predicted": predicted[1],
            "backward": values[:, 1].mean(),
            "backward_se": error[1],
            "draws": count,
        }


def _add_pass(
    totals: dict[tuple[str, int], _Total],
    model: nn.Module,
    done: pd.DataFrame,
    arguments: tuple[Any, ...],
    generator: torch.Generator,
) -> None:
    """Add one pass through an initialised model to the totals."""
    seen = probe(model, arguments, generator)
    weights = _weights_by_layer(done)
    second_moment = seen.second_moment
    product = np.ones(2)
    for visit in seen.visits:
        name, row = weights.get(bare_name(visit.name), ("", None))
        if not seen.chain:
            second_moment = visit.second_moment
        predicted = _predict(visit, name, row, second_moment)
        product *= predicted
        second_moment *= predicted[0]
        total = totals.setdefault((visit.name, visit.call), _Total(type(visit.module).__name__))
        if row is not None:
            total.fan_in, total.fan_out = row["fan_in"], row["fan_out"]
        total.predicted.append(predicted)
        total.measured.append((visit.forward, visit.backward))
    end = totals.setdefault((END_TO_END, 0), _Total(""))
    end.predicted.append((product[0], product[1]) if seen.chain else (math.nan, math.nan))
    end.measured.append((seen.forward, seen.backward))


def _predict(
    visit: Visit, name: str, row: dict[str, Any] | None, second_moment: float
) -> tuple[float, float]:
    """Return m t and n t of a layer with one weight, and the integrals of one without."""
    if isinstance(visit.module, _PARTS):
        return math.nan, math.nan
    if row is None:
        return weightless_gains(visit.module, second_moment) or (math.nan, math.nan)
    fan_in, fan_out = row["fan_in"], row["fan_out"]
    variance = row["std"] ** 2
    known = parameter_role(visit.module, name)
    weight = getattr(visit.module, name)
    if isinstance(known, Axes):
        # The layer as it acts: packed maps read the same input, which so feeds them all.
        fan_in, fan_out = known.fans(weight.shape)
        if row["action"] == "kept":
            variance = float(weight.detach().double().square().mean())
    fan_in, fan_out = counted_fans(visit.module, visit.shape) or (fan_in, fan_out)
    return fan_in * variance, fan_out * variance


def _weights_by_layer(done: pd.DataFrame) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the weight of each layer that has one, and its name there; constants do not count."""
    table: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for row in done.to_dict("records"):
        if row["action"] in ("drawn", "kept") and len(row["shape"]) > 1:
            for full in [row["name"], *filter(None, row["tied"].split(", "))]:
                layer, _, name = full.rpartition(".")
                table.setdefault(layer, []).append((name, row))
    return {layer: found[0] for layer, found in table.items() if len(found) == 1}


def _chain(shapes: Sequence[tuple[int, int]], activation: nn.Module | None) -> nn.Sequential:
    if activation is not None and not isinstance(activation, nn.Module):
        raise TypeError(f"`activation` must be a torch.nn.Module; got {activation!r}")
    try:
        pairs = [(operator.index(m), operator.index(n)) for m, n in shapes]
    except (TypeError, ValueError):
        raise TypeError(
            "`model_or_shapes` must be a torch.nn.Module or a sequence of (inputs, outputs); got "
            f"{shapes!r}"
        ) from None
    if not pairs:
        raise ValueError("`model_or_shapes` must have at least one layer; got none")
    for m, n in pairs:
        if m < 1 or n < 1:
            raise ValueError(f"`model_or_shapes` must have positive sizes; got {(m, n)}")
    for (_, n), (m, _) in itertools.pairwise(pairs):
        if n != m:
            raise ValueError(
                f"`model_or_shapes` must form a chain; got {n} outputs into {m} inputs"
            )
    layers: list[nn.Module] = []
    for m, n in pairs:
        if layers and activation is not None:
            layers.append(copy.deepcopy(activation))
        layers.append(nn.utils.skip_init(nn.Linear, m, n, bias=False))
    return nn.Sequential(*layers)


def _check_count(name: str, value: object) -> int:
    count = check_integer(name, value)
    if count < 1:
        raise ValueError(f"`{name}` must be at least 1; got {count}")
    return count
