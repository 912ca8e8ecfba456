"""The change of signal and gradient in the limits."""

import math

import numpy as np
import pytest
import torch

from scalinglimits.laws import SmoothProcess, Uniform
from scalinglimits.laws.streams import derive_seed, substream
from scalinglimits.residual import limit_changes, limit_ode
from scalinglimits.residual.bounds import Setting, bound_curves, hidden_norm_lower_bound


def test_mean_square_in_the_sde_limit():
    # E‖H_1−H_0‖²/‖H_0‖² = e^{1/2} − 1 for res-3; 2000 paths, 4.5 standard errors
    squares = limit_changes("sde", width=20, replicates=2000, steps=128).hidden ** 2
    error = 4.5 * squares.std() / math.sqrt(len(squares))
    assert squares.mean() == pytest.approx(math.expm1(0.5), abs=error + 0.004)
    assert limit_changes("sde", width=5, branch="res-1", replicates=3).gradient.size == 0


def test_ode_limit_is_near_deep_networks_of_the_same_weights():
    options = {"branch": "res-2", "activation": "tanh"}
    limit = limit_changes("ode", width=6, replicates=3, length_scale=0.3, **options)
    generator = substream(0, "start")
    start, last = (
        torch.randn((3, 1, 6), generator=generator, dtype=torch.float64) for _ in range(2)
    )
    for i in range(3):
        ode = limit_ode(width=6, weights=SmoothProcess(0.3), seed=derive_seed(0, i), **options)
        leaf = start[i].clone().requires_grad_(True)
        end = ode.network(1000).hidden_states(leaf)[-1]
        (p_0,) = torch.autograd.grad((end * last[i]).sum(), leaf)
        change = (end - leaf).detach().norm() / start[i].norm()
        assert float(change) == pytest.approx(limit.hidden[i], rel=0.01)
        gradient = (p_0 - last[i]).norm() / last[i].norm()
        assert float(gradient) == pytest.approx(limit.gradient[i], rel=0.02)


def test_curves_are_the_bounds_and_nan_where_not_guaranteed():
    frame = bound_curves([100, 2000], width=100, beta=0.5, delta=0.25, entries=Uniform())
    assert math.isnan(frame.loc[0, "norm_lower"])
    bound = hidden_norm_lower_bound(Setting(100, 2000, 0.5, entries=Uniform()), 0.25)
    assert frame.loc[1, "norm_lower"] == bound.norm_lower
    assert frame.loc[1, "change_rms_lower"] == pytest.approx(math.sqrt(1.00025**2000 - 1))
    assert np.isfinite(frame.loc[1].to_numpy(dtype=float)).all()
    several = bound_curves([10], width=10, beta=0.25, delta=0.1)
    assert several[["change_upper", "gradient_upper"]].isna().all(axis=None)


def test_errors():
    with pytest.raises(ValueError, match="`kind` must be 'sde' or 'ode'; got 'young'"):
        limit_changes("young", width=4)
    with pytest.raises(ValueError, match="`replicates` must be a positive integer; got 0"):
        limit_changes("sde", width=4, replicates=0)
