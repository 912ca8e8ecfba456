"""The command that trains linear networks of any width on the user's data."""

from __future__ import annotations

__all__ = ["linear"]

import math
from pathlib import Path
from typing import Annotated

import typer

from scalinglimits.cli.options import (
    Out,
    Seed,
    new_request,
    print_table,
    rich_table,
    write_results,
)


def linear(
    data: Annotated[str, typer.Argument(help="CSV or NPZ file of features and a target.")],
    target: Annotated[
        str | None, typer.Option(help="Column or array to predict; y of an NPZ file by default.")
    ] = None,
    width: Annotated[
        list[str] | None, typer.Option(help="Neurons of a layer: a number or inf. Repeat.")
    ] = None,
    hidden: Annotated[int, typer.Option(help="Number of hidden matrices.", min=0)] = 1,
    matrices: Annotated[
        str, typer.Option(help="gaussian, haar (orthogonal), rademacher or uniform.")
    ] = "gaussian",
    parametrization: Annotated[str, typer.Option(help="mup, ntk, standard or integrable.")] = "mup",
    scale: Annotated[float, typer.Option(help="Factor of the output.")] = 1.0,
    step_size: Annotated[
        float | None, typer.Option(help="Step size; chosen from the data by default.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=1)] = 1000,
    loss: Annotated[str, typer.Option(help="square, logistic or huber.")] = "square",
    replicates: Annotated[int, typer.Option(help="Networks of each finite width.", min=1)] = 3,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Bring features to mean 0 and deviation 1.")
    ] = False,
    seed: Seed = 0,
    out: Out = Path("results/linear"),
) -> None:
    """Train deep linear networks of width 10, 10^12 or infinity on your data, exactly."""
    from scalinglimits.figures.linear_run import LinearRequest, draw_linear, linear_record

    wanted = LinearRequest(
        data=data,
        target=target,
        widths=[_width(text) for text in width or ["inf"]],
        hidden=hidden,
        matrices=matrices,
        parametrization=parametrization,
        scale=scale,
        step_size=step_size,
        steps=steps,
        loss=loss,
        replicates=replicates,
        standardize=standardize,
    )
    record = linear_record(wanted, new_request(out, seed, None))
    table = record.tables[""]
    columns = [
        "width",
        "replicate",
        "status",
        "final_loss",
        "distance_to_minimum_norm",
        "relative_distance",
        "basis_vectors",
    ]
    shown = table.assign(
        **{name: table[name].map("{:.4g}".format) for name in ("width", *columns[3:6])}
    )
    print_table(rich_table(record.title, shown, columns))
    typer.echo(record.caption)
    write_results(record, draw_linear, out)


def _width(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < 1 or (math.isfinite(number) and number != int(number)):
        raise ValueError(f"`width` must be a positive integer, such as 1e12, or inf; got {text!r}")
    return number
