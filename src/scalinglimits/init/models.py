r"""Initialisation of a whole model, each parameter from a stream named after it.

So a layer added, removed or moved changes no other layer's draw, and the weights depend neither
on the number of processes nor on how the model is sharded.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from scalinglimits.init._checks import (
    check_distribution,
    check_mode,
    check_scale,
    resolve_seed,
    warn_underflow,
)
from scalinglimits.init._draws import draw_
from scalinglimits.init._plan import Entry, collect, resolve_axes, split_excluded
from scalinglimits.init.axes import Axes
from scalinglimits.laws import EntryLaw
from scalinglimits.laws.fans import average_fan
from scalinglimits.laws.streams import derive_seed

__all__ = ["initialize_"]


def initialize_(
    model: nn.Module,
    mode: str = "fan_in",
    distribution: str | EntryLaw = "normal",
    *,
    gains: float | Mapping[str, float] = 1.0,
    exclude: str | Sequence[str] = (),
    axes: Mapping[str, Axes] | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
) -> pd.DataFrame:
    r"""Initialise every parameter of a model in place, and say what was done.

    A weight gets entries of mean 0 and deviation gain/√N, with N the average of its layer's
    fans. Biases become zero, the scales of normalisation layers one; an embedding's padding row
    zero. A weight under several names (tied) is drawn once, with the smallest deviation that
    one of its layers asks for. A parametrised weight (`weight_norm`) is drawn and assigned; one
    whose parametrisation would not keep the values (`spectral_norm`) is an error.

    Args:
        model: The model; distributed parameters receive their part of the whole draw, those on
            the meta device are left alone.
        mode: Which average of the fans: ``fan_in``, ``fan_out``, ``fan_avg``, ``fan_geo_avg``
            or ``fan_quad_avg``.
        distribution: As in `variance_scaling_`.
        gains: The factor of the deviation, for all weights or by shell pattern of full names;
            the first pattern that matches counts, and 1 where none does. The square root of 2
            is He's gain for ReLU, 0 gives zeros.
        exclude: Shell patterns of parameters to leave as they are.
        axes: Axes by shell pattern of full names, for layers that are not known and for maps
            packed in a way that a layer cannot show.
        seed: A seed that gives the same weights on every device.
        generator: A generator, which moves on by one number. With neither, PyTorch's default
            generator seeds the draws.

    Returns:
        A table with one row for each parameter: ``name``, ``layer``, ``shape``, ``action``
        (drawn, constant, kept, meta), ``value`` of a constant, ``fan_in``, ``fan_out``,
        ``mode``, ``distribution``, ``gain``, ``std`` and ``tied``, its other names.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If a layer is not known, a pattern matches nothing, the mode or the
            distribution is unknown, a gain is negative, or a parametrisation does not keep
            what it is given. Nothing has been changed then.

    Example:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        >>> table = initialize_(model, "fan_geo_avg", gains={"0.*": 2**0.5}, seed=0)
        >>> table[["name", "action", "fan_in", "fan_out", "std"]].round(4)
               name    action  fan_in  fan_out     std
        0  0.weight     drawn    64.0    256.0  0.1250
        1    0.bias  constant     NaN      NaN     NaN
        2  2.weight     drawn   256.0     64.0  0.0884
        3    2.bias  constant     NaN      NaN     NaN
    """
    mode, distribution = check_mode(mode), check_distribution(distribution)
    entries = collect(model)
    chosen, kept = split_excluded(entries, exclude)
    resolve_axes(chosen, axes)
    gain_of = _gains(gains, [entry for entry in chosen if entry.axes])
    deviations = {e.name: _deviation(e, mode, gain_of[e.name]) for e in chosen if e.axes}
    root, device = resolve_seed(seed, generator, [entry.tensor for entry in chosen])
    for entry in chosen:
        if entry.parametrised and entry.axes:
            _check_keeps(entry, deviations[entry.name][0])

    rows = []
    for entry in entries:
        row: dict[str, Any] = {
            "name": entry.name,
            "layer": entry.layer,
            "shape": tuple(entry.tensor.shape),
            "action": "meta" if entry.tensor.is_meta else "kept",
            "value": math.nan,
            "fan_in": math.nan,
            "fan_out": math.nan,
            "mode": "",
            "distribution": "",
            "gain": math.nan,
            "std": math.nan,
            "tied": ", ".join(entry.names[1:]),
        }
        rows.append(row)
        if entry in kept:
            row["action"] = "kept"
        elif entry.axes:
            std, used = deviations[entry.name]
            fan_in, fan_out = used.fans(entry.tensor.shape)
            row |= {"fan_in": fan_in, "fan_out": fan_out, "mode": mode}
            row |= {"distribution": _label(distribution), "gain": gain_of[entry.name], "std": std}
            if not entry.tensor.is_meta:
                warn_underflow(entry.name, std, entry.tensor.dtype)
                _draw(entry, distribution, std, used, derive_seed(root, entry.name), device)
                row["action"] = "drawn"
        elif entry.constant is not None and entry.constant.value is not None:
            row["value"] = entry.constant.value
            if not entry.tensor.is_meta:
                _assign(entry, torch.full_like(entry.tensor, entry.constant.value))
                row["action"] = "constant"
    return pd.DataFrame(rows)


def _gains(gains: float | Mapping[str, float], weights: list[Entry]) -> dict[str, float]:
    if not isinstance(gains, Mapping):
        value = check_scale("gains", gains)
        return {entry.name: value for entry in weights}
    table = {}
    for pattern, value in gains.items():
        if not isinstance(pattern, str):
            raise TypeError(f"`gains` must map patterns of names to numbers; got {pattern!r}")
        table[pattern] = check_scale(f"gains[{pattern!r}]", value)
        if not any(entry.matches(pattern) for entry in weights):
            raise ValueError(f"`gains` must match weights of the model; got {pattern!r}")
    return {
        entry.name: next((v for p, v in table.items() if entry.matches(p)), 1.0)
        for entry in weights
    }


def _deviation(entry: Entry, mode: str, gain: float) -> tuple[float, Axes]:
    """Return the smallest deviation among the owners, and the axes that ask for it."""
    if entry.tensor.numel() == 0:
        return math.nan, entry.axes[0]
    shape = entry.tensor.shape
    try:
        options = [gain / math.sqrt(average_fan(*a.fans(shape), mode)) for a in entry.axes]
    except ValueError as error:
        raise ValueError(f"{entry.name}, shape {tuple(shape)}: {error}") from error
    best = min(range(len(options)), key=lambda i: options[i])
    return options[best], entry.axes[best]


def _draw(
    entry: Entry,
    distribution: str | EntryLaw,
    std: float,
    axes: Axes,
    seed: int,
    device: torch.device | None,
) -> None:
    if not entry.parametrised:
        draw_(entry.tensor, distribution, std, axes, seed, device, entry.padding_row)
        return
    value = torch.empty_like(entry.tensor, memory_format=torch.contiguous_format)
    draw_(value, distribution, std, axes, seed, device, entry.padding_row)
    _assign(entry, value)


def _assign(entry: Entry, value: torch.Tensor) -> None:
    with torch.no_grad():
        if entry.parametrised:
            module, name = entry.owners[0]
            setattr(module, name, value)
        else:
            entry.tensor.copy_(value)


def _check_keeps(entry: Entry, std: float) -> None:
    """Raise unless a parametrised weight comes back as it was assigned, tried on a copy."""
    if entry.tensor.is_meta or entry.tensor.numel() == 0:
        return
    module, name = entry.owners[0]
    twin = copy.deepcopy(module)
    probe = torch.empty_like(entry.tensor, memory_format=torch.contiguous_format)
    draw_(probe, "normal", std, entry.axes[0], 0, torch.device("cpu"))
    try:
        # Two sizes: what divides by a norm may meet one of them by chance.
        kept = all(_comes_back(twin, name, factor * probe, std) for factor in (1.0, 2.0))
    except (RuntimeError, ValueError, AttributeError):
        kept = False
    if not kept:
        chain: Any = getattr(module.parametrizations, name)
        kinds = ", ".join(type(step).__name__ for step in chain)
        raise ValueError(
            f"`model` must have parametrised weights that keep the values they are given; got "
            f"{entry.name} under {kinds}: initialise before parametrising, or exclude it"
        )


@torch.no_grad()
def _comes_back(module: nn.Module, name: str, value: Tensor, std: float) -> bool:
    setattr(module, name, value)
    return torch.allclose(getattr(module, name), value, rtol=1e-2, atol=1e-2 * std)


def _label(distribution: str | EntryLaw) -> str:
    return distribution if isinstance(distribution, str) else repr(distribution)
