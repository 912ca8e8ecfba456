"""Progress of a sweep: nothing, a bar on the standard error stream, or the caller's function."""

from __future__ import annotations

__all__ = ["Report", "progress_report"]

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int, int], None]
_LONGEST_TITLE = 24


@contextmanager
def progress_report(progress: bool | Report, title: str) -> Iterator[Report]:
    """Provide the function to call as `report(done, total, failed)` after each cell."""
    if callable(progress):
        yield progress
    elif progress:
        yield from _bar(title)
    else:
        yield lambda done, total, failed: None


def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    # A long name tells what differs from other sweeps; the line has room for its first word.
    short = title if len(title) <= _LONGEST_TITLE else title.split(maxsplit=1)[0]
    with bar:
        task = bar.add_task(escape(short), total=None, failed=0)

        def report(done: int, total: int, failed: int) -> None:
            bar.update(task, completed=done, total=total, failed=failed)

        yield report
