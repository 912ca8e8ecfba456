"""Drawings of checks and transfers."""

import pandas as pd
import pytest
import torch
from torch import nn

from scalinglimits.checks import ScalingCheck, learning_rate_transfer, scaling_check
from scalinglimits.figures.check_plots import draw_check, draw_transfer

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def build(width, depth):
    hidden = [nn.Linear(width, width) for _ in range(depth)]
    return nn.Sequential(nn.Linear(4, width), *hidden, nn.Linear(width, 2))


def step(model, x):
    return model(x).square().mean()


def test_check_has_one_panel_for_each_finding():
    check = scaling_check(build, step, [X], widths=(8, 16), depths=(1, 2), plan=None, seeds=2)
    figure = draw_check(check, limit=5)
    drawn = [axes for axes in figure.axes if axes.axison]
    assert len(drawn) == 5
    assert all(len(axes.lines) == 3 for axes in drawn)
    with pytest.raises(ValueError, match="`limit` must be at least 1; got 0"):
        draw_check(check, limit=0)
    with pytest.raises(ValueError, match="`check` must have judged findings; got none"):
        draw_check(ScalingCheck((), pd.DataFrame(), {}))


def test_transfer_has_one_panel_for_each_scaling_and_axis():
    result = learning_rate_transfer(
        build,
        step,
        [X] * 4,
        widths=(4, 8),
        depths=(1, 2),
        learning_rates=[2.0**k for k in range(-8, -3)],
        plans={"a": None, "b": None},
        seeds=2,
        steps=4,
    )
    assert len(draw_transfer(result).axes) == 4
