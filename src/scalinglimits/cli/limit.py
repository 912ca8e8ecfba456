"""The command on limits: of continuous depth, and of the norm's law."""

from __future__ import annotations

__all__ = ["limit"]

from pathlib import Path
from typing import Annotated, Any

import typer

from scalinglimits.cli.options import (
    Activation,
    Out,
    Seed,
    Width,
    print_table,
    rich_table,
    write_results,
)


def limit(
    kind: Annotated[
        str,
        typer.Argument(
            help="sde, ode or young: how fast networks reach it; norm: the law of ‖h_L‖/‖h_0‖."
        ),
    ],
    depth: Annotated[
        list[int] | None, typer.Option(help="Number of layers. Repeat for several.")
    ] = None,
    width: Width = 16,
    branch: Annotated[
        str | None, typer.Option(help="res-1, res-2 or res-3; sde and young: res-1.")
    ] = None,
    activation: Activation = None,
    replicates: Annotated[int, typer.Option(help="Independent paths.", min=1)] = 20,
    hurst: Annotated[float, typer.Option(help="Hurst index, for young.")] = 0.75,
    length_scale: Annotated[float, typer.Option(help="Of the smooth weights, for ode.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Failure of each bound, for norm.")] = 0.25,
    seed: Seed = 0,
    out: Out = Path("results/limit"),
) -> None:
    """Compare finite networks with their limits: order of convergence, or the norm's law."""
    from scalinglimits.figures import continuous_limits as limits

    if kind == "norm":
        if branch not in (None, "res-3") or activation is not None:
            raise ValueError("`branch` must be res-3 for norm; got another branch or activation")
        record = limits.norm_record(width, sorted(set(depth or [10, 32, 100, 316, 1000])), delta)
        table = record.tables[""].round(5)
        print_table(rich_table(record.title, table))
        typer.echo(record.caption)
        write_results(record, limits.draw_norm, out)
        return
    if kind not in limits.LIMIT_KINDS:
        raise ValueError(f"`kind` must be sde, ode, young or norm; got {kind!r}")
    options: dict[str, Any] = {
        "width": width,
        "branch": branch or ("res-3" if kind == "ode" else "res-1"),
        "activation": activation,
        "replicates": replicates,
        "seed": seed,
    }
    if kind == "ode":
        options["length_scale"] = length_scale
    if kind == "young":
        options["hurst"] = hurst
    depths = sorted(set(depth or [32, 64, 128, 256]))
    record = limits.convergence_record(kind, depths, **options)
    table = record.tables[""].drop(columns="kind").round(5)
    print_table(rich_table(record.title, table))
    typer.echo(record.caption)
    write_results(record, limits.draw_convergence, out)
