"""The verdict before a network is built."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scalinglimits.laws import DepthLaw, FractionalIncrements, Independent, Normal, SmoothProcess
from scalinglimits.residual import regime, response_moments

INDEPENDENT = Independent(Normal())


class Unknown(DepthLaw):
    """A law that states no critical exponent: equal layers, whose sum grows as L."""

    def __repr__(self):
        return "Unknown()"

    def sample(self, depth, shape, generator=None, *, dtype=None, device=None):
        raise AssertionError("a verdict needs no draw")

    def autocovariance(self, depth):
        return np.ones(depth)


@pytest.mark.parametrize(
    ("law", "beta", "verdict", "limit"),
    [
        (INDEPENDENT, 0.25, "explosion", "explosion"),
        (INDEPENDENT, 0.5, "non-trivial", "non-trivial"),
        (INDEPENDENT, 0.6, "non-trivial", "identity"),
        (INDEPENDENT, 1.0, "identity", "identity"),
        (FractionalIncrements(0.2), 0.5, "non-trivial", "non-trivial"),
        (FractionalIncrements(0.9), 0.5, "explosion", "explosion"),
        (FractionalIncrements(0.9), 0.9, "non-trivial", "non-trivial"),
        (FractionalIncrements(0.9), 1.5, "identity", "identity"),
        (SmoothProcess(0.1), 0.5, "explosion", "explosion"),
        (SmoothProcess(0.1), 1.0, "non-trivial", "non-trivial"),
        (SmoothProcess(0.1), 2.0, "identity", "identity"),
        (Unknown(), 0.5, "explosion", "explosion"),
        (Unknown(), 2.0, "identity", "identity"),
    ],
    ids=str,
)
def test_verdicts_at_depth_1000(law, beta, verdict, limit):
    result = regime(40, 1000, beta, law)
    assert (result.verdict, result.limit) == (verdict, limit)
    assert str(result).startswith(f"{verdict}: ")
    assert f"{limit} as the depth grows" in result.reason
    assert repr(law) in result.reason


def test_numbers_are_those_of_the_response():
    law = FractionalIncrements(0.8)
    result = regime(40, 500, 0.7, law)
    moments = response_moments(law, 500, width=40)
    assert result.change == pytest.approx(500**-0.7 * math.sqrt(moments.hidden[0]))
    assert result.gradient_change == pytest.approx(500**-0.7 * math.sqrt(moments.gradient[0]))
    assert result.critical_beta == 0.8


@pytest.mark.parametrize("depth", [2, 10, 1000, 100_000])
def test_suggestion_for_independent_layers_is_one_half(depth):
    assert regime(40, depth, 1.0).suggested_beta == pytest.approx(0.5)


@pytest.mark.parametrize("law", [FractionalIncrements(0.8), SmoothProcess(0.1)], ids=repr)
@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
def test_suggestion_gives_the_target_and_tends_to_the_critical_exponent(law, branch):
    suggestions, options = [], {"branch": branch, "activation": "relu"}
    for depth in (100, 10_000):
        suggested = regime(40, depth, 0.0, law, **options).suggested_beta
        at_it = regime(40, depth, suggested, law, **options)
        assert at_it.change == pytest.approx(math.sqrt(0.5))
        assert at_it.verdict == "non-trivial"
        suggestions.append(suggested - law.critical_beta)
    # the distance is log(C)/log(L), but for a remainder: halved from 10² to 10⁴
    assert abs(suggestions[1]) < max(0.7 * abs(suggestions[0]), 0.02)


def test_verdict_follows_the_change():
    betas = np.linspace(-0.5, 2.0, 26)
    results = [regime(40, 1000, float(b), FractionalIncrements(0.7)) for b in betas]
    assert (np.diff([r.change for r in results]) < 0).all()
    order = {"explosion": 0, "non-trivial": 1, "identity": 2}
    assert (np.diff([order[r.verdict] for r in results]) >= 0).all()
    assert {r.verdict for r in results} == set(order)


def test_unknown_critical_exponent_is_that_of_the_next_octave():
    assert regime(40, 100, 0.5, Unknown()).critical_beta == pytest.approx(1.0)


@pytest.mark.parametrize(("hurst", "critical"), [(0.3, 0.5), (0.7, 0.5), (0.9, 0.8)])
def test_linear_branches_have_a_smaller_critical_exponent(hurst, critical):
    law = FractionalIncrements(hurst)
    result = regime(40, 1000, critical + 0.05, law, branch="res-2", activation="identity")
    assert result.critical_beta == pytest.approx(critical)
    assert result.limit == "identity"
    other = regime(40, 1000, critical + 0.05, law, branch="res-1", activation="identity")
    assert other.critical_beta == max(hurst, 0.5)


def test_depth_one():
    result = regime(40, 1, 0.5)
    assert result.verdict == "non-trivial"
    assert result.suggested_beta == 0.5


@pytest.mark.parametrize("name", ["width", "depth"])
@pytest.mark.parametrize("value", [0, True, 2.5])
def test_sizes_must_be_positive_integers(name, value):
    sizes = {"width": 4, "depth": 4} | {name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; got"):
        regime(**sizes, beta=0.5)


@pytest.mark.parametrize("beta", [math.nan, math.inf])
def test_beta_must_be_finite(beta):
    with pytest.raises(ValueError, match="`beta` must be a finite number; got"):
        regime(4, 4, beta)


def test_weights_must_be_a_law():
    with pytest.raises(TypeError, match="`weights` must be a law across depth, such as"):
        regime(4, 4, 0.5, 0.7)


def test_branch_and_activation():
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'x'"):
        regime(4, 4, 0.5, branch="x")
    with pytest.raises(ValueError, match="`activation` must be positively homogeneous; got 'erf'"):
        regime(4, 4, 0.5, branch="res-2", activation="erf")
