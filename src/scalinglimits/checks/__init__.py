"""Checks of a user's own model: how its quantities grow with its sizes, with a verdict.

- :mod:`~scalinglimits.checks.check`: :func:`scaling_check`, measurements at several sizes;
- :mod:`~scalinglimits.checks.quantities`: what is measured, and what is expected of it;
- :mod:`~scalinglimits.checks.heads`: the size of a head where attention is written out;
- :mod:`~scalinglimits.checks.verdict`: from exponents to findings and a verdict;
- :mod:`~scalinglimits.checks.result`: the record of a check;
- :mod:`~scalinglimits.checks.transfer`: :func:`learning_rate_transfer`;
- :mod:`~scalinglimits.checks.optimum`: the best learning rate on a grid, with its interval;
- :mod:`~scalinglimits.checks.model_file`: a file that defines `build`, `step` and `batches`.
"""

from __future__ import annotations

__all__ = [
    "LEARNING_RATES",
    "Finding",
    "ModelFile",
    "ScalingCheck",
    "TransferResult",
    "learning_rate_transfer",
    "load_model_file",
    "scaling_check",
]

from scalinglimits.checks.check import scaling_check
from scalinglimits.checks.model_file import ModelFile, load_model_file
from scalinglimits.checks.result import ScalingCheck
from scalinglimits.checks.transfer import LEARNING_RATES, TransferResult, learning_rate_transfer
from scalinglimits.checks.verdict import Finding
