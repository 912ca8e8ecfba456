r"""Figure A-study: which average of the fans to use, and when it makes no difference.

A leaves the question open. Here networks whose widths alternate are trained on real data, in every
mode, with and without normalisation and residual connections, at every useful learning rate of
SGD and Adam; modes share their draws and their batches, and are compared at their own best rates.

What is known beforehand. In a stack that alternates between two widths, all hidden matrices have
the same two fans up to their order, so ``fan_avg``, ``fan_geo_avg`` and ``fan_quad_avg`` give all
of them one variance: they differ by a factor of the gain and by nothing else. And ``fan_in``,
``fan_out`` and ``fan_geo_avg`` have the same product of variances over a pair: with a positively
homogeneous activation they are the same function, whose layers only learn at other speeds.

Reference:
    Su, "Rethinking the dimension-averaging strategy for non-square matrices in initialization".
"""

from __future__ import annotations

__all__ = ["FIGURES", "stored_record", "study", "study_grid"]

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scalinglimits.figures.init_study_analysis import (
    SETTING,
    compare,
    encode_outcomes,
    pool,
    summarize,
)
from scalinglimits.figures.init_study_cells import Protocol, measure_cell
from scalinglimits.figures.init_study_drawing import draw_study
from scalinglimits.figures.init_study_networks import ARCHITECTURES
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws.fans import MODES
from scalinglimits.sweeps import sweep

_NAME = "A-study"
_TITLE = "A, the open question: which average of the fans, and when"
_HE = math.sqrt(2.0)
_TRIALS = f"{_NAME}_trials.csv"
_SETTINGS = f"{_NAME}_settings.csv"
_QUICK = Protocol(replicates=2, steps=80, target=1.5)


def study_grid(quick: bool = False) -> list[dict[str, Any]]:
    """List the settings and modes of the study.

    Plain stacks have depth 4, 8 and 16; residual stacks 4, 16 and 64. The gain is √2 and, without
    normalisation, 1 as well (a normalisation undoes the gain). At depth 64, residual stacks also
    run with branches scaled down by the root of the number of blocks, 31; of the plain ones, which
    hardly train, two are tried with SGD alone.

    Args:
        quick: two architectures at depth 4.

    Returns:
        The configurations, without the protocol.
    """
    plain, normalised, low_gain = ("none", _HE), ("layer", _HE), ("none", 1.0)
    if quick:
        return _product([("expand-4", 4), ("residual-4", 4)], [plain, normalised], ["sgd"])
    networks = [
        (name, depth)
        for name, family in ARCHITECTURES.items()
        for depth in ((4, 16) if family.kind == "residual" else (4, 8, 16))
    ]
    networks.append(("residual-4", 64))
    return [
        *_product(networks, [plain, normalised, low_gain], ["sgd", "adam"]),
        *_product([("residual-4", 64)], [("none", _HE / math.sqrt(31))], ["sgd", "adam"]),
        *_product([("ffn-4", 64), ("expand-4", 64)], [plain, normalised], ["sgd"]),
    ]


def study(
    request: Request,
    protocol: Protocol | None = None,
    grid: Sequence[Mapping[str, Any]] | None = None,
) -> FigureRecord:
    """Run the study, or a part of it, on any data.

    Args:
        request: size, seed, store and workers.
        protocol: data, target and number of replicates; its root seed is that of the request.
        grid: configurations as of :func:`study_grid`.

    Returns:
        The record: cells; ``groups``, ``families`` and ``norms`` of settings; ``trials`` and
        ``settings``.
    """
    if protocol is None:
        protocol = _QUICK if request.quick else Protocol()
    protocol = dataclasses.replace(protocol, root=request.seed)
    fixed = dataclasses.asdict(protocol)
    result = sweep(
        measure_cell,
        [{**config, **fixed} for config in grid or study_grid(request.quick)],
        name="init_study",
        on_error="raise",
        **request.sweep_options(),
    )
    rows = []
    for cell in result.cells:
        assert cell.values is not None
        values = cell.values
        ten = math.log(10)
        rows.append(
            {
                **{name: cell.config[name] for name in [*SETTING, "mode"]},
                "log10_forward": values["forward"].mean() / ten,
                "log10_forward_predicted": values["forward_predicted"] / ten,
                "log10_forward_typical": values["forward_typical"] / ten,
                "log10_backward": values["backward"].mean() / ten,
                "log10_backward_predicted": values["backward_predicted"] / ten,
                "first_log2_rate": int(values["log2_rates"][0]),
                "outcomes": encode_outcomes(values["steps_to_target"], values["diverged"]),
            }
        )
    # The name, not the place, of the user's file: a record may be published.
    return _record(pd.DataFrame(rows), {**fixed, "data": Path(protocol.data).name})


def stored_record(folder: Path) -> FigureRecord:
    """Read the trials of a study that ran before, and derive everything else from them anew.

    Args:
        folder: that holds ``A-study_trials.csv`` and ``A-study_settings.csv``.

    Returns:
        The record that :func:`study` returned.

    Raises:
        FileNotFoundError: if one of the files is missing.
    """
    for name in (_TRIALS, _SETTINGS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"`folder` must hold {name}; got {folder}")
    (settings,) = pd.read_csv(folder / _SETTINGS).to_dict("records")
    return _record(pd.read_csv(folder / _TRIALS), settings)


def _record(trials: pd.DataFrame, settings: dict[str, Any]) -> FigureRecord:
    summary = summarize(trials)
    summary["group"] = [_group(cell) for cell in summary.to_dict("records")]
    cells = compare(summary)
    groups = pool(summary, ["group", "depth"])
    families = pool(summary, ["group", "architecture"])
    norms = pool(summary, ["norm"])
    tables = {
        "": cells,
        "groups": groups,
        "families": families,
        "norms": norms,
        "trials": trials,
        "settings": pd.DataFrame([settings]),
    }
    return FigureRecord(_NAME, _TITLE, _caption(cells, settings), tables, settings)


def _group(cell: Mapping[str, Any]) -> str:
    kind = "residual" if ARCHITECTURES[cell["architecture"]].kind == "residual" else "plain"
    if cell["norm"] != "none":
        return f"{kind}, normalised"
    gain = "1" if cell["gain"] == 1 else "√2" if cell["gain"] > 1 else "√(2/blocks)"
    return f"{kind}, gain {gain}"


def _caption(cells: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    normalised = cells[(cells.norm != "none") & (cells["mode"] != "fan_geo_avg")].steps_ratio
    normalised = normalised.dropna()
    return (
        f"{len(cells)} cells on {settings['data']}: all modes at every useful learning rate "
        f"(powers of 2), {settings['replicates']} replicates, at most {settings['steps']} steps of "
        f"{settings['batch_size']} samples, loss {settings['target']:g} as target. Upper row: "
        "signal at initialisation, measured (markers) and predicted (dashed: mean; solid: "
        "typical, exact); steps against the learning rate. Lower row: settings in which every "
        "replicate reaches the target, steps at each mode's own best rate and usable range of "
        "rates against fan_geo_avg, with 95 % intervals over replicates. Settings with "
        f"normalisation: the ratio of steps has median {normalised.median():.2f} and lies in "
        f"[{normalised.min():.2f}, {normalised.max():.2f}]. Cells whose range of rates ends at an "
        f"edge: {int(cells.at_edge.sum())}."
    )


def _product(
    networks: Sequence[tuple[str, int]],
    cases: Sequence[tuple[str, float]],
    optimizers: Sequence[str],
) -> list[dict[str, Any]]:
    return [
        {
            "architecture": name,
            "norm": norm,
            "gain": gain,
            "depth": depth,
            "optimizer": optimizer,
            "mode": mode,
        }
        for name, depth in networks
        for norm, gain in cases
        for optimizer in optimizers
        for mode in MODES
    ]


def _compute(request: Request) -> FigureRecord:
    return study(request)


FIGURES = (FigureSpec(_NAME, _TITLE, _compute, draw_study),)
"""The study."""
