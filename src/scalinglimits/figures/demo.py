"""The demonstration: digits through deep residual networks, four ways, and a phase diagram."""

from __future__ import annotations

__all__ = ["DEMO", "demo_phase"]

import numpy as np

from scalinglimits.figures.phase import phase_record
from scalinglimits.figures.profile import ProfileRequest
from scalinglimits.figures.record import FigureRecord, Request
from scalinglimits.residual import phase_diagram

DEMO = ProfileRequest(
    data="digits", weights=("independent", "smooth"), betas=(0.5, 1.0), networks=4, inputs=12
)
"""Two laws of the weights by two exponents: each exponent suits one law and fails the other."""


def demo_phase(request: Request) -> FigureRecord:
    """Compute the demonstration's small phase diagram.

    Args:
        request: seed, store, workers and progress.

    Returns:
        The record.
    """
    diagram = phase_diagram(
        np.linspace(0.1, 0.95, 10),
        np.linspace(0.1, 1.3, 25),
        depth=200,
        draws=3,
        **request.sweep_options(),
    )
    return phase_record(diagram, "phase")
