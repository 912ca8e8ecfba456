"""The documents' figures and the project's studies: each a computation and a drawing of it.

>>> from scalinglimits.figures import FIGURES, Request
>>> record = FIGURES["R6"].compute(Request(quick=True))
>>> list(record.tables)
['', 'estimates']
"""

from scalinglimits.figures import (
    depth_scaling,
    init_study,
    linear_depth,
    linear_endpoint,
    linear_entries,
    linear_laws,
    linear_residual,
    linear_rules,
    linear_scales,
    linear_widths,
    norm_law,
    paths,
    phase,
)
from scalinglimits.figures.record import (
    FigureRecord,
    FigureSpec,
    Request,
    save_drawing,
    save_record,
)

__all__ = ["FIGURES", "FigureRecord", "FigureSpec", "Request", "save_drawing", "save_record"]

_MODULES = (
    depth_scaling,
    norm_law,
    paths,
    phase,
    linear_widths,
    linear_scales,
    linear_entries,
    linear_endpoint,
    linear_laws,
    linear_depth,
    linear_rules,
    linear_residual,
    init_study,
)

FIGURES: dict[str, FigureSpec] = {
    spec.name: spec
    for spec in sorted(
        (spec for module in _MODULES for spec in module.FIGURES), key=lambda spec: spec.name
    )
}
"""All figures and studies by name."""
