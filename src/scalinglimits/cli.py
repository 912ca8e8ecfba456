"""The command line: parse, call, print.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

__all__ = ["app", "main"]

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalinglimits._version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalinglimits.figures import FigureRecord, Request

app = typer.Typer(
    help="Scaling limits of neural networks: keep them alive as they grow in depth and width.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Out = Annotated[Path, typer.Option(help="Folder that the results are written to.")]
Seed = Annotated[int, typer.Option(help="Root of all seeds.", min=0)]
Jobs = Annotated[int | None, typer.Option(help="Worker processes; one a core by default.", min=1)]
Width = Annotated[int, typer.Option(help="Size of the hidden states.", min=1)]
Branch = Annotated[str, typer.Option(help="res-1, res-2 or res-3.")]
Activation = Annotated[
    str | None, typer.Option(help="Activation of res-1 and res-2, such as parametric_relu.")
]


def main() -> None:
    """Run the command line; a fault of the input ends with one clear line and status 2."""
    try:
        app()
    except (ValueError, TypeError, FileNotFoundError, ModuleNotFoundError) as error:
        print(f"scalinglimits: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except KeyboardInterrupt:
        print(  # noqa: T201
            "scalinglimits: interrupted; run the same command again to go on where it stopped",
            file=sys.stderr,
        )
        sys.exit(130)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"scalinglimits {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
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
    record = profile_record(wanted, _request(out, seed, n_jobs))
    _show_verdicts(record)
    _write_profiles(record, out)


@app.command()
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
        _grid("hurst", hurst),
        _grid("beta", beta),
        width=width,
        depth=depth,
        draws=draws,
        inputs=inputs,
        branch=branch,
        activation=activation,
        **_request(out, seed, n_jobs).sweep_options(),
    )
    record = phase_record(diagram)
    _print(
        _rich_table(
            f"Critical exponent at depth {depth}",
            record.tables["critical"].round(3),
            ["hurst", "quantity", "beta_c", "lower", "upper", "theory_depth", "theory_limit"],
        )
    )
    _write(record, draw_phase_diagram, out)


@app.command()
def figure(
    names: Annotated[list[str], typer.Argument(help="Names such as R1 R7, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in seconds.")] = False,
    setting: Annotated[
        str, typer.Option(help="text: the document's settings; code: those of its public code.")
    ] = "text",
    seed: Seed = 0,
    n_jobs: Jobs = None,
    out: Out = Path("results/figures"),
) -> None:
    """Reproduce figures of the documents: numbers as CSV, drawing as PNG and SVG."""
    from scalinglimits.figures import FIGURES

    chosen = list(FIGURES) if names == ["all"] else names
    for name in chosen:
        if name not in FIGURES:
            raise ValueError(f"`names` must be among {', '.join(FIGURES)} or all; got {name!r}")
    for name in chosen:
        request = _request(out, seed, n_jobs, quick=quick, setting=setting)
        record = FIGURES[name].compute(request)
        typer.echo(f"{record.title}\n{record.caption}")
        _write(record, FIGURES[name].draw, out)


@app.command()
def demo(seed: Seed = 0, n_jobs: Jobs = None, out: Out = Path("results/demo")) -> None:
    """Send digits through residual networks of up to 1000 layers, four ways: who stays alive?"""
    from scalinglimits.figures.demo import DEMO, demo_phase
    from scalinglimits.figures.phase import draw_phase_diagram
    from scalinglimits.figures.profile import profile_record

    request = _request(out, seed, n_jobs)
    record = profile_record(DEMO, request, "signal")
    _show_verdicts(record)
    typer.echo(
        "The exponent must fit the law of the weights: β = ½ keeps independent weights alive and\n"
        "lets smooth ones explode; β = 1 keeps smooth weights alive and makes independent ones\n"
        "an identity. The phase diagram shows the line between: β = max(H, ½) for weights that\n"
        "are increments of fractional Brownian motion of Hurst index H.\n"
    )
    _write_profiles(record, out)
    _write(demo_phase(request), draw_phase_diagram, out)
    typer.echo(
        "Next: `scalinglimits propagate --data YOUR.csv --weights fractional:0.7 --beta 0.7`, or\n"
        "`scalinglimits figure R7 --quick`."
    )


def _request(
    out: Path, seed: int, n_jobs: int | None, *, quick: bool = False, setting: str = "text"
) -> Request:
    from scalinglimits.figures import Request

    out.mkdir(parents=True, exist_ok=True)
    return Request(
        quick=quick,
        setting=setting,
        seed=seed,
        # Another version may compute otherwise, and another seed draws otherwise.
        store=out / f"cells-{__version__}-seed{seed}.sqlite",
        n_jobs=n_jobs,
        progress=True,
    )


def _grid(name: str, text: str) -> list[float]:
    """Read START:STOP:COUNT or a comma-separated list of numbers."""
    import numpy as np

    try:
        if ":" in text:
            start, stop, count = text.split(":")
            return np.linspace(float(start), float(stop), int(count)).tolist()
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"`{name}` must be START:STOP:COUNT or numbers with commas; got {text!r}"
        ) from None


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
    _print(_rich_table(title, pd.DataFrame(rows)))


def _power(log10: float) -> str:
    """Write a number given by its logarithm, however large."""
    return f"{10**log10:.3g}" if abs(log10) < 4 else f"10^{log10:.1f}"


def _rich_table(title: str, frame: pd.DataFrame, columns: list[str] | None = None) -> Table:
    from rich.table import Table

    colors = {"identity": "blue", "non-trivial": "green", "explosion": "red"}
    table = Table(title=title, title_justify="left")
    names = columns or list(frame)
    for name in names:
        table.add_column(str(name), overflow="fold")
    for row in frame[names].itertuples(index=False):
        cells = [str(cell) for cell in row]
        table.add_row(*(f"[{colors[c]}]{c}[/]" if c in colors else c for c in cells))
    return table


def _print(table: Table) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _write_profiles(record: FigureRecord, out: Path) -> None:
    from scalinglimits.figures.profile import draw_profiles

    _write(record, draw_profiles, out)


def _write(record: FigureRecord, draw: Any, out: Path) -> None:
    from scalinglimits.figures import save_drawing, save_record
    from scalinglimits.figures.style import styled

    with styled():
        drawing = draw(record)
    paths = [*save_record(record, out), *save_drawing(drawing, record.name, out)]
    typer.echo("Written: " + ", ".join(str(path) for path in paths) + "\n")
