"""Options and outputs that several commands share."""

from __future__ import annotations

__all__ = [
    "Activation",
    "Branch",
    "Jobs",
    "Out",
    "Seed",
    "Width",
    "new_request",
    "number_list",
    "print_table",
    "progress_bar",
    "rich_table",
    "write_results",
]

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalinglimits._version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalinglimits.figures import FigureRecord, Request

Out = Annotated[Path, typer.Option(help="Folder that the results are written to.")]
Seed = Annotated[int, typer.Option(help="Root of all seeds.", min=0)]
Jobs = Annotated[int | None, typer.Option(help="Worker processes; one a core by default.", min=1)]
Width = Annotated[int, typer.Option(help="Size of the hidden states.", min=1)]
Branch = Annotated[str, typer.Option(help="res-1, res-2 or res-3.")]
Activation = Annotated[
    str | None, typer.Option(help="Activation of res-1 and res-2, such as parametric_relu.")
]


def new_request(
    out: Path, seed: int, n_jobs: int | None, *, quick: bool = False, setting: str = "text"
) -> Request:
    """Return the request of a command: its cells are kept beside its results."""
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


def number_list(name: str, text: str, *, geometric: bool = False) -> list[float]:
    """Read START:STOP:COUNT, of constant distance or ratio, or numbers with commas."""
    import numpy as np

    try:
        if ":" in text:
            start, stop, count = text.split(":")
            between = np.geomspace if geometric else np.linspace
            return between(float(start), float(stop), int(count)).tolist()
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"`{name}` must be START:STOP:COUNT or numbers with commas; got {text!r}"
        ) from None


def rich_table(title: str, frame: pd.DataFrame, columns: list[str] | None = None) -> Table:
    """Return a table for the terminal, regimes in colour."""
    from rich.table import Table

    colors = {"identity": "blue", "non-trivial": "green", "explosion": "red"}
    table = Table(title=title, title_justify="left")
    names = columns or list(frame)
    for name in names:
        table.add_column(str(name), overflow="fold")
    for row in frame[names].itertuples(index=False):
        cells = ["" if cell != cell else str(cell) for cell in row]  # NaN is not equal to itself
        table.add_row(*(f"[{colors[c]}]{c}[/]" if c in colors else c for c in cells))
    return table


def print_table(table: Table) -> None:
    """Print a table, in full width where the output is no terminal."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 140).print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Provide a function of the numbers done and to do that draws a bar, if one can be seen.

    The bar is on the standard error stream, which must be a terminal, and goes when all is done.
    Where more turns out to be needed, the count begins again.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task, before = bar.add_task(title, total=None), 0

        def report(done: int, total: int) -> None:
            nonlocal before
            if done < before:
                bar.reset(task, description=f"{title}, more seeds")
            before = done
            bar.update(task, completed=done, total=total)

        yield report


def write_results(record: FigureRecord, draw: Any, out: Path) -> None:
    """Write a record's tables and its drawing, and say where."""
    from scalinglimits.figures import save_drawing, save_record
    from scalinglimits.figures.style import styled

    with styled():
        drawing = draw(record)
    paths = [*save_record(record, out), *save_drawing(drawing, record.name, out)]
    typer.echo("Written: " + ", ".join(str(path) for path in paths) + "\n")
