"""Entry laws: one conformance table that each new law joins."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from scalinglimits.laws import EntryLaw, Normal, Rademacher, TruncatedNormal, Uniform

LAWS = [
    Normal(),
    Uniform(),
    Rademacher(),
    TruncatedNormal(),
    TruncatedNormal(cut=0.01),
    TruncatedNormal(cut=1.0),
    TruncatedNormal(cut=6.0),
]


def truncated_log_mgf(cut, t):
    """log E exp(t X), X standard normal cut at +-cut, then scaled to variance 1."""
    inside = special.ndtr(cut) - special.ndtr(-cut)
    variance = 1.0 - 2.0 * cut * stats.norm.pdf(cut) / inside
    t = t / math.sqrt(variance)
    # log(ndtr(b) - ndtr(a)) without cancellation, by symmetry from the far side
    upper, lower = special.log_ndtr(cut - t), special.log_ndtr(-cut - t)
    return 0.5 * t**2 + upper + np.log1p(-np.exp(lower - upper)) - math.log(inside)


LOG_MGF = {
    Normal(): lambda t: 0.5 * t**2,
    Uniform(): lambda t: np.log(np.sinh(3**0.5 * t) / (3**0.5 * t)),
    Rademacher(): lambda t: np.log(np.cosh(t)),
    TruncatedNormal(): lambda t: truncated_log_mgf(2.0, t),
    TruncatedNormal(cut=1.0): lambda t: truncated_log_mgf(1.0, t),
    TruncatedNormal(cut=6.0): lambda t: truncated_log_mgf(6.0, t),
}


def moment(law, order):
    """E |xi|^order by integrating the distribution function: a twin of the closed forms."""
    edge = getattr(law, "bound", 40.0 if law == Normal() else 3**0.5)
    value, _ = integrate.quad(
        lambda x: order * x ** (order - 1) * 2.0 * (1.0 - law.cdf(x)), 0.0, edge, limit=200
    )
    return value


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_variance_is_one_and_fourth_moment_is_as_stated(law):
    assert moment(law, 2) == pytest.approx(1.0, abs=1e-7)
    assert moment(law, 4) == pytest.approx(law.fourth_moment, rel=1e-7)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_law_is_symmetric(law):
    points = np.linspace(-3.0, 3.0, 101) + 1e-3
    np.testing.assert_allclose(law.cdf(points), 1.0 - law.cdf(-points), atol=1e-14)


@pytest.mark.parametrize("law", LOG_MGF, ids=repr)
def test_sub_gaussian_constant_holds_and_is_the_best(law):
    t = np.geomspace(1e-2, 30.0, 400)
    log_mgf = LOG_MGF[law](t)
    assert (log_mgf <= 0.5 * law.sub_gaussian * t**2 + 1e-12).all()
    assert 2.0 * log_mgf[0] / t[0] ** 2 == pytest.approx(law.sub_gaussian, abs=1e-4)


@pytest.mark.parametrize("make", ["numpy", "torch"])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_sample_follows_the_distribution_function(law, make):
    # n = 131,072, alpha = 1e-5, seed 3. The bound of Dvoretzky, Kiefer, Wolfowitz and Massart,
    # P(D_n > e) <= 2 exp(-2 n e^2), holds for laws with atoms too.
    n = 131_072
    generator = np.random.default_rng(3) if make == "numpy" else torch.Generator().manual_seed(3)
    draw = np.sort(np.asarray(law.sample(n, generator), dtype=np.float64))
    values, counts = np.unique(draw, return_counts=True)
    above = np.cumsum(counts) / n
    cdf_at = law.cdf(values)
    cdf_before = law.cdf(np.nextafter(values, -np.inf))
    gap = max(np.abs(above - cdf_at).max(), np.abs(above - counts / n - cdf_before).max())
    assert gap < math.sqrt(math.log(2.0 / 1e-5) / (2 * n))


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("shape", [(), 0, 5, (3, 4), (2, 0), [2, 3]], ids=repr)
def test_shapes_and_types(law, shape):
    expected = (shape,) if isinstance(shape, int) else tuple(shape)
    for dtype in (np.float16, np.float32, np.float64):
        draw = law.sample(shape, np.random.default_rng(0), dtype=dtype)
        assert isinstance(draw, np.ndarray)
        assert (draw.shape, draw.dtype) == (expected, dtype)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        draw = law.sample(shape, torch.Generator().manual_seed(0), dtype=dtype)
        assert (tuple(draw.shape), draw.dtype) == (expected, dtype)
    assert law.sample(shape, np.random.default_rng(0)).dtype == np.float64
    assert law.sample(shape, torch.Generator()).dtype == torch.float32


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_same_seed_same_values(law):
    first, second = (law.sample(100, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    first, second = (law.sample(100, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_half_precision_rounds_the_float32_draw(law):
    exact = law.sample(100, torch.Generator().manual_seed(7), dtype=torch.float32)
    half = law.sample(100, torch.Generator().manual_seed(7), dtype=torch.bfloat16)
    assert torch.equal(half, exact.bfloat16())


def test_no_generator_means_the_default_torch_generator():
    state = torch.get_rng_state()
    try:
        torch.manual_seed(11)
        first = Normal().sample(20)
    finally:
        torch.set_rng_state(state)
    assert torch.equal(first, torch.randn(20, generator=torch.Generator().manual_seed(11)))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_laws_are_values(law):
    assert law == eval(repr(law))
    assert len({law, eval(repr(law))}) == 1
    assert isinstance(law, EntryLaw)


def test_truncated_normal_stays_within_its_bound():
    for cut in (0.5, 2.0, 8.0):
        law = TruncatedNormal(cut=cut)
        draw = law.sample(200_000, torch.Generator().manual_seed(0))
        assert float(draw.abs().max()) <= law.bound * (1 + 1e-6)
    assert 2.0 / TruncatedNormal(cut=2.0).bound == pytest.approx(0.879626, abs=1e-6)


def test_truncated_normal_limits():
    assert TruncatedNormal(cut=1e-6).fourth_moment == pytest.approx(1.8, rel=1e-9)
    assert TruncatedNormal(cut=1e-6).bound == pytest.approx(3**0.5, rel=1e-9)
    assert TruncatedNormal(cut=40.0).fourth_moment == pytest.approx(3.0, rel=1e-12)


@pytest.mark.parametrize(
    ("cut", "error", "message"),
    [
        (0.0, ValueError, "`cut` must be positive; got 0.0"),
        (-1.0, ValueError, "`cut` must be positive; got -1.0"),
        (math.inf, ValueError, "`cut` must be finite; got inf"),
        (1e-9, ValueError, "`cut` must be at least 1e-06; got 1e-09"),
        ("2", TypeError, "`cut` must be a real number; got '2'"),
        (True, TypeError, "`cut` must be a real number; got True"),
    ],
)
def test_bad_cut(cut, error, message):
    with pytest.raises(error, match=message):
        TruncatedNormal(cut=cut)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((3, 0), {}, TypeError, "`generator` must be a numpy.random.Generator, a torch.Generator"),
        ((3, np.random.RandomState(0)), {}, TypeError, "`generator` must be a numpy.random"),
        ((-1, np.random.default_rng(0)), {}, ValueError, "`shape` must be at least 0; got -1"),
        ((2.0, np.random.default_rng(0)), {}, TypeError, "`shape` must be an integer; got 2.0"),
        (((2, True), np.random.default_rng(0)), {}, TypeError, "`shape` must be an integer"),
        (("ab", np.random.default_rng(0)), {}, TypeError, "`shape` must be an integer; got 'ab'"),
        (
            (3, np.random.default_rng(0)),
            {"dtype": np.int64},
            ValueError,
            "`dtype` must be float16, float32 or float64; got int64",
        ),
        (
            (3, np.random.default_rng(0)),
            {"dtype": torch.float32},
            TypeError,
            "`dtype` must be a NumPy type with a NumPy generator; got torch.float32",
        ),
        (
            (3, np.random.default_rng(0)),
            {"device": "cuda"},
            ValueError,
            "`device` must be None or 'cpu' with a NumPy generator; got cuda",
        ),
        (
            (3, torch.Generator()),
            {"dtype": np.float32},
            TypeError,
            "`dtype` must be a torch.dtype with a torch generator",
        ),
        (
            (3, torch.Generator()),
            {"dtype": torch.int64},
            ValueError,
            "`dtype` must be float16, bfloat16, float32 or float64; got torch.int64",
        ),
    ],
)
def test_bad_arguments(law, arguments, options, error, message):
    with pytest.raises(error, match=message):
        law.sample(*arguments, **options)


def test_numpy_laws_do_not_import_torch():
    code = (
        "import sys, numpy as np\n"
        "from scalinglimits.laws import FractionalIncrements, Normal, SmoothProcess\n"
        "for law in (FractionalIncrements(0.7), SmoothProcess()):\n"
        "    law.sample(5, (2, 2), np.random.default_rng(0))\n"
        "Normal().sample(3, np.random.default_rng(0))\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
