"""Filling a 4096×4096 weight costs no more than with torch.nn.init."""

import time

import pytest
import torch
from torch import nn

from scalinglimits.init import variance_scaling_


def seconds(*runs, repeats=9):
    """Return the least processor time of each, taken in turn: others' load counts little."""
    spent = [[] for _ in runs]
    for _ in range(repeats):
        for run, times in zip(runs, spent, strict=True):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
    return [min(times) for times in spent]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("distribution", "theirs", "ratio"),
    [
        ("normal", nn.init.xavier_normal_, 1.1),
        ("uniform", nn.init.xavier_uniform_, 1.1),
        ("truncated_normal", lambda weight: nn.init.trunc_normal_(weight, std=0.02), 1.0),
    ],
)
def test_as_fast_as_torch(distribution, theirs, ratio):
    weight = torch.empty(4096, 4096)
    mine, reference = seconds(
        lambda: variance_scaling_(weight, 1.0, "fan_avg", distribution, seed=0),
        lambda: theirs(weight),
    )
    assert mine <= ratio * reference
