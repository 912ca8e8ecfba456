"""The documents' figures and the project's studies: each a computation and a drawing of it.

>>> from scalinglimits.figures import FIGURES, Request
>>> record = FIGURES["R6"].compute(Request(quick=True))
>>> list(record.tables)
['', 'estimates']
"""

from scalinglimits.figures import depth_scaling, norm_law, paths, phase
from scalinglimits.figures.record import (
    FigureRecord,
    FigureSpec,
    Request,
    save_drawing,
    save_record,
)

__all__ = ["FIGURES", "FigureRecord", "FigureSpec", "Request", "save_drawing", "save_record"]

FIGURES: dict[str, FigureSpec] = {
    spec.name: spec
    for spec in sorted(
        (*depth_scaling.FIGURES, *norm_law.FIGURES, *paths.FIGURES, *phase.FIGURES),
        key=lambda spec: spec.name,
    )
}
"""All figures by name."""
