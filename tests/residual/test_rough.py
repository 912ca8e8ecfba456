"""Young equations of fractional weights."""

import math

import numpy as np
import pytest
import torch

from scalinglimits.laws import FractionalIncrements
from scalinglimits.laws.streams import substream
from scalinglimits.residual.convergence import depth_convergence
from scalinglimits.residual.rough import FractionalPath, young_limit

DOUBLE = torch.float64


def test_path_coarsens_and_has_the_right_variance():
    path = FractionalPath((2000,), steps=64, hurst=0.8, seed=0)
    fine, coarse = path.increments(), path.increments(16)
    torch.testing.assert_close(fine.reshape(16, 4, 2000).sum(1), coarse)
    # variance of B(1) is 1; 2000 places: 6 standard errors of a variance are 0.19
    assert float(fine.sum(0).var()) == pytest.approx(1.0, abs=0.19)
    assert float((coarse**2).mean()) == pytest.approx(16**-1.6, rel=0.1)


def test_res1_network_is_the_scheme():
    # V of the network and the path draw the same noise, scaled
    d, depth, hurst = 3, 32, 0.7
    limit = young_limit(hurst, width=d, activation="tanh")
    path = FractionalPath(limit.noise_shape(), depth, hurst, seed=5)
    V = path.increments().mT * (depth**hurst / math.sqrt(d))
    law = FractionalIncrements(hurst)
    noise = law.sample(depth, (d, d), substream(5, "fractional"), dtype=DOUBLE)
    torch.testing.assert_close(V, noise.mT / math.sqrt(d))
    h = start = torch.ones(2, d, dtype=DOUBLE)
    for layer in V:
        h = h + depth**-hurst * torch.tanh(h) @ layer.T
    torch.testing.assert_close(limit.scheme(start, path.increments())[-1], h)


def test_linear_equation_of_width_one_is_the_exponential():
    # Young calculus has the ordinary chain rule: dX = X dB gives X = e^B, no correction
    limit = young_limit(0.8, width=1, activation="identity")
    path = FractionalPath((50, 1, 1), steps=8192, hurst=0.8, seed=1)
    start = torch.ones(50, 1, 1, dtype=DOUBLE)
    exact = torch.exp(path.increments().sum(0)).flatten()
    plain = limit.scheme(start, path.increments())[-1].flatten()
    better = limit.scheme(start, path.increments(), modified=True)[-1].flatten()
    plain_error, better_error = (float(((x - exact) / exact).abs().mean()) for x in (plain, better))
    # the missing second-order term is ½ n^(1−2H) = 2.2e-3
    assert plain_error == pytest.approx(0.5 * 8192**-0.6, rel=0.1)
    assert better_error < 0.1 * plain_error


@pytest.mark.parametrize("hurst", [0.7, 0.9])
def test_order_in_width_one_is_that_of_the_literature(hurst):
    record = depth_convergence("young", [16, 32, 64, 128, 256], width=1, activation="tanh",
                               hurst=hurst, replicates=60, seed=3)  # fmt: skip
    assert record.states.theory == pytest.approx(2 * hurst - 1)
    assert record.states.order == pytest.approx(2 * hurst - 1, abs=0.1)
    assert record.gradient.order == pytest.approx(2 * hurst - 1, abs=0.15)


@pytest.mark.parametrize("hurst", [0.6, 0.8])
def test_wide_networks_show_the_order_of_the_fluctuations_first(hurst):
    # the term of order 2H − 1 has weight 1/d, so depths below d² show min(2H − ½, 1)
    limit = young_limit(hurst, width=16, activation="tanh")
    record = depth_convergence("young", [16, 32, 64, 128], width=16, activation="tanh",
                               hurst=hurst, replicates=12, seed=4)  # fmt: skip
    assert record.states.order == pytest.approx(limit.modified_order, abs=0.12)
    assert record.states.order > limit.euler_order + 0.2


def relu_errors(hurst, depths, d=6, count=40):
    """Mean error of dense res-3 networks against their limit, driven by the same V."""
    limit = young_limit(hurst, width=d, branch="res-3")
    fine = max(depths) * 8
    path = FractionalPath((count, d, d), fine, hurst, seed=2)
    start = torch.randn(count, 1, d, generator=substream(0, "h"), dtype=DOUBLE)
    truth = limit.scheme(start, path.increments(), modified=True)[-1]
    errors = []
    for depth in depths:
        W = FractionalIncrements(hurst).sample(depth, (count, d, d), substream(depth, "W"),
                                               dtype=DOUBLE)  # fmt: skip
        h = start
        for dB, W_k in zip(path.increments(depth), W / math.sqrt(d), strict=True):
            h = h + d**-0.5 * torch.relu(h @ W_k.mT) @ dB
        errors.append(float(((h - truth).norm(dim=-1) / start.norm(dim=-1)).mean()))
    return np.array(errors)


def test_res3_tends_to_the_equation_of_its_mean_branch():
    depths = [64, 256, 1024]
    errors = relu_errors(0.7, depths)
    order = -np.polyfit(np.log(depths), np.log(errors), 1)[0]
    # the averaging of W is the slow part: H − ½ for H < 3/4
    assert order == pytest.approx(0.2, abs=0.12)
    assert errors[-1] < 0.8 * errors[0]


def test_a_centred_branch_has_no_limit_at_this_scale():
    limit = young_limit(0.8, width=4, branch="res-2", activation="identity")
    path = FractionalPath((4, 4), 64, 0.8)
    states = limit.scheme(torch.ones(1, 4, dtype=DOUBLE), path.increments())
    assert torch.equal(states[-1], states[0])


def test_errors():
    for hurst in (0.5, 1.0, 0.3):
        with pytest.raises(ValueError, match="`hurst` must be strictly between 1/2 and 1; got"):
            young_limit(hurst, width=4)
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'q'"):
        young_limit(0.7, width=4, branch="q")
    with pytest.raises(ValueError, match="`activation` must be Lipschitz continuous"):
        young_limit(0.7, width=4, activation=lambda x: x**2)
    with pytest.raises(ValueError, match="`activation` must be positively homogeneous for res-2"):
        young_limit(0.7, width=4, branch="res-2", activation="tanh")
    with pytest.raises(ValueError, match="`width` must be a positive integer; got 0"):
        young_limit(0.7, width=0)
    with pytest.raises(ValueError, match="`steps` must divide the finest grid 8; got 3"):
        FractionalPath((1,), 8, 0.7).increments(3)
    with pytest.raises(ValueError, match="`hurst` must be strictly between 0 and 1; got 1"):
        FractionalPath((1,), 8, 1.0)
