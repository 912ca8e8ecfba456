"""What a figure is: a computation that returns tables, and a drawing of them.

The tables are computed and saved first; a drawing only reads them, so each picture has its
numbers beside it.
"""

from __future__ import annotations

__all__ = ["FigureRecord", "FigureSpec", "Request", "save_drawing", "save_record"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Request:
    """How a figure is to be computed.

    Attributes:
        quick: a small version in seconds instead of the document's size.
        setting: "text" for the document's settings, "code" for those of its public code where
            the two differ.
        seed: root of all seeds.
        store: SQLite file that keeps finished cells, so that an interrupted run resumes.
        n_jobs: worker processes; None is one a core.
        progress: show a bar on the standard error stream.
    """

    quick: bool = False
    setting: str = "text"
    seed: int = 0
    store: Path | None = None
    n_jobs: int | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.setting not in ("text", "code"):
            raise ValueError(f"`setting` must be 'text' or 'code'; got {self.setting!r}")

    def sweep_options(self) -> dict[str, Any]:
        """Return the arguments of this request that :func:`scalinglimits.sweeps.sweep` takes."""
        return {
            "seed": self.seed,
            "store": self.store,
            "executor": "joblib",
            "n_jobs": self.n_jobs,
            "progress": self.progress,
        }


@dataclass(frozen=True, eq=False)
class FigureRecord:
    """The numbers of a figure.

    Attributes:
        name: such as "R1".
        title: one line.
        caption: what is seen, with the settings and the findings in numbers.
        tables: name to table; the table "" is the main one.
        settings: the settings of the computation.
    """

    name: str
    title: str
    caption: str
    tables: Mapping[str, pd.DataFrame]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FigureSpec:
    """A figure that can be asked for by name.

    Attributes:
        name: such as "R1".
        title: one line.
        compute: from a request to a record.
        drawing: from a record to a matplotlib figure, called by :meth:`draw`.
    """

    name: str
    title: str
    compute: Callable[[Request], FigureRecord]
    drawing: Callable[[FigureRecord], Figure]

    def draw(self, record: FigureRecord) -> Figure:
        """Draw a record in the project's style.

        Args:
            record: what :attr:`compute` returned.

        Returns:
            The drawing; nothing of the process's own plotting state is touched.
        """
        from scalinglimits.figures.style import styled

        with styled():
            return self.drawing(record)


def save_record(record: FigureRecord, folder: Path) -> list[Path]:
    """Write the tables of a record as CSV files, and its caption as text.

    Args:
        record: the record.
        folder: where to; made if missing.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in record.tables.items():
        path = folder / f"{record.name}{'_' + name if name else ''}.csv"
        table.to_csv(path, index=False, float_format="%.10g")
        paths.append(path)
    path = folder / f"{record.name}.txt"
    settings = ", ".join(f"{key}={value}" for key, value in record.settings.items())
    path.write_text(f"{record.title}\n\n{record.caption}\n\nSettings: {settings}\n", "utf-8")
    return [*paths, path]


def save_drawing(figure: Figure, name: str, folder: Path) -> list[Path]:
    """Write a drawing as PNG and SVG.

    Args:
        figure: the drawing.
        name: of the files, without ending.
        folder: where to; made if missing.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=150)
    # Without a date the same record gives the same file.
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
