"""The command that reproduces figures."""

from __future__ import annotations

__all__ = ["figure"]

from pathlib import Path
from typing import Annotated

import typer

from scalinglimits.cli.options import Jobs, Out, Seed, new_request, write_results


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
        request = new_request(out, seed, n_jobs, quick=quick, setting=setting)
        record = FIGURES[name].compute(request)
        typer.echo(f"{record.title}\n{record.caption}")
        write_results(record, FIGURES[name].draw, out)
