"""Commands on residual networks: propagate, phase and demo."""

from __future__ import annotations

__all__ = ["demo", "phase", "propagate"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalinglimits.cli.options import (
    Activation,
    Branch,
    Jobs,
    Out,
    Seed,
    Width,
    new_request,
    number_list,
    print_table,
    rich_table,
    write_results,
)

if TYPE_CHECKING:
    from scalinglimits.figures import FigureRecord


def propagate(
    data: Annotated[
        str, typer.Option(help="digits, gaussian:D, or a CSV, NPY or NPZ file of features.")
    ] = "digits",
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="Law across depth: independent[:uniform], fractional:H, smooth[:LENGTH], "
            "smooth-increments[:LENGTH]. Repeat for several."
        ),
    ] = None,
    beta: Annotated[
        list[float] | None,
        typer.Option(help="Exponent of the branch scale L^-beta. Repeat for several."),
    ] = None,
    depth: Annotated[
        list[int] | None, typer.Option(help="Number of layers. Repeat for several.")
    ] = None,
    width: Width = 40,
    branch: Branch = "res-3",
    activation: Activation = None,
    inputs: Annotated[int, typer.Option(help="Samples of the data a network.", min=1)] = 16,
    networks: Annotated[int, typer.Option(help="Networks of each kind.", min=1)] = 5,
    seed: Seed = 0,
    n_jobs: Jobs = None,
    out: Out = Path("results/propagate"),
) -> None:
    """Follow signal and gradient through residual networks fed with your data, with a verdict."""
    from scalinglimits.figures.profile import ProfileRequest, profile_record

    wanted = ProfileRequest(
        data=data,
        weights=weights or ["independent"],
        betas=beta or [0.5],
        depths=depth or [10, 32, 100, 316, 1000],
        width=width,
        branch=branch,
        activation=activation,
        inputs=inputs,
        networks=networks,
    )
    record = profile_record(wanted, new_request(out, seed, n_jobs))
    _show_verdicts(record)
    _write_profiles(record, out)


def phase(
    hurst: Annotated[
        str, typer.Option(help="Hurst indices: START:STOP:COUNT, or a comma-separated list.")
    ] = "0.05:0.95:13",
    beta: Annotated[
        str, typer.Option(help="Exponents: START:STOP:COUNT, or a comma-separated list.")
    ] = "0:1.3:40",
    width: Width = 40,
    depth: Annotated[int, typer.Option(help="Number of layers.", min=1)] = 500,
    draws: Annotated[int, typer.Option(help="Weight draws for each Hurst index.", min=1)] = 5,
    inputs: Annotated[int, typer.Option(help="Inputs for each draw.", min=1)] = 10,
    branch: Branch = "res-3",
    activation: Activation = None,
    seed: Seed = 0,
    n_jobs: Jobs = None,
    out: Out = Path("results/phase"),
) -> None:
    """Map identity and explosion over Hurst index and exponent, with the fitted boundary."""
    from scalinglimits.figures.phase import draw_phase_diagram, phase_record
    from scalinglimits.residual import phase_diagram

    diagram = phase_diagram(
        number_list("hurst", hurst),
        number_list("beta", beta),
        width=width,
        depth=depth,
        draws=draws,
        inputs=inputs,
        branch=branch,
        activation=activation,
        **new_request(out, seed, n_jobs).sweep_options(),
    )
    record = phase_record(diagram)
    print_table(
        rich_table(
            f"Critical exponent at depth {depth}",
            record.tables["critical"].round(3),
            ["hurst", "quantity", "beta_c", "lower", "upper", "theory_depth", "theory_limit"],
        )
    )
    write_results(record, draw_phase_diagram, out)


def demo(seed: Seed = 0, n_jobs: Jobs = None, out: Out = Path("results/demo")) -> None:
    """Send digits through residual networks of up to 1000 layers, four ways: who stays alive?"""
    from scalinglimits.figures.demo import DEMO, demo_phase
    from scalinglimits.figures.phase import draw_phase_diagram
    from scalinglimits.figures.profile import profile_record

    request = new_request(out, seed, n_jobs)
    record = profile_record(DEMO, request, "signal")
    _show_verdicts(record)
    typer.echo(
        "The exponent must fit the law of the weights: β = ½ keeps independent weights alive and\n"
        "lets smooth ones explode; β = 1 keeps smooth weights alive and makes independent ones\n"
        "an identity. The phase diagram shows the line between: β = max(H, ½) for weights that\n"
        "are increments of fractional Brownian motion of Hurst index H.\n"
    )
    _write_profiles(record, out)
    write_results(demo_phase(request), draw_phase_diagram, out)
    typer.echo(
        "Next: `scalinglimits propagate --data YOUR.csv --weights fractional:0.7 --beta 0.7`, or\n"
        "`scalinglimits figure R7 --quick`."
    )


def _show_verdicts(record: FigureRecord) -> None:
    import math

    table = record.tables["verdict"]
    changes = record.tables[""]
    depths = sorted(changes.depth.unique())
    rows: list[dict[str, Any]] = []
    for row in table.itertuples():
        match = (changes.weights == row.weights) & (changes.beta == row.beta)
        at = changes[match].set_index("depth").log10_hidden_change
        rows.append(
            {"weights": row.weights, "β": f"{row.beta:g}"}
            | {f"L = {depth}": _power(at[depth]) for depth in depths}
            | {
                "gradient": _power(row.log10_gradient_change),
                "growth": f"L^{row.growth:+.2f}" if math.isfinite(row.growth) else "",
                "verdict": row.verdict,
                "theory": row.predicted,
                "choose β": f"{row.suggested_beta:.2f}",
            }
        )
    import pandas as pd

    title = "Change of the signal ‖h_L − h_0‖ / ‖h_0‖ against depth L, median"
    print_table(rich_table(title, pd.DataFrame(rows)))


def _power(log10: float) -> str:
    """Write a number given by its logarithm, however large."""
    return f"{10**log10:.3g}" if abs(log10) < 4 else f"10^{log10:.1f}"


def _write_profiles(record: FigureRecord, out: Path) -> None:
    from scalinglimits.figures.profile import draw_profiles

    write_results(record, draw_profiles, out)
