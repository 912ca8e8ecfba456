"""The command line: parse, call, print.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

__all__ = ["app", "main"]

import sys
from typing import Annotated

import typer

from scalinglimits._version import __version__
from scalinglimits.cli import figures, init, limit, linear, residual, scaling
from scalinglimits.cli.faults import describe, interrupted

_INTERRUPTED = 130
"""The exit status after Ctrl-C."""

app = typer.Typer(
    help="Scaling limits of neural networks: keep them alive as they grow in depth and width.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _command in (
    residual.demo,
    residual.propagate,
    residual.phase,
    limit.limit,
    linear.linear,
    init.init,
    scaling.plan,
    scaling.check,
    scaling.transfer,
    figures.figure,
):
    app.command()(_command)


def main() -> None:
    """Run the command line; a fault of the input ends with one clear line and status 2."""
    try:
        app()
    except Exception as error:
        described = describe(error)
        if described is None:
            raise
        lines, message = described
        print(f"{lines}scalinglimits: {message}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            print(f"scalinglimits: {interrupted(sys.argv[1:])}", file=sys.stderr)  # noqa: T201
        raise


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
