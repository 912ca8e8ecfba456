"""Checks of a user's own model: how its quantities grow with width and depth, with a verdict.

- :mod:`~scalinglimits.checks.check`: :func:`scaling_check`;
- :mod:`~scalinglimits.checks.quantities`: what is measured, and what is expected of it;
- :mod:`~scalinglimits.checks.verdict`: from exponents to a verdict.
"""

from __future__ import annotations

__all__ = ["Finding", "ScalingCheck", "scaling_check"]

from scalinglimits.checks.check import scaling_check
from scalinglimits.checks.result import ScalingCheck
from scalinglimits.checks.verdict import Finding
