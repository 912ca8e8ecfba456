"""The joint law of everything a program can see, on demand against dense matrices."""

import numpy as np
import pytest
from scipy import stats

from scalinglimits.matrices import GaussianMatrix, HaarMatrix, NeuronSpace

from .programs import (
    Flat,
    Sign,
    gaussian_arrays,
    haar_arrays,
    random_program,
    run_dense,
    run_on_demand,
)

SAMPLES = 1200
ALPHA = 1e-5
ARRAYS = {GaussianMatrix: gaussian_arrays, HaarMatrix: haar_arrays}


def features(outcome):
    """Every outcome as one row of numbers; products of entries see how they hang together."""
    columns = []
    for gram in outcome[:2]:
        index = np.triu_indices(gram.shape[1])
        columns.append(gram[:, index[0], index[1]])
    if len(outcome) > 2:
        right, left, z = outcome[2:]
        columns += [a.reshape(len(a), -1) for a in (right, left, z)]
        columns.append(np.einsum("sia,sij,sjb->sab", left, z, right).reshape(len(z), -1))
    # Rounding error must not tell apart what is exactly constant or discrete.
    return np.round(np.hstack(columns), 7)


def statistics(both, rng):
    """Random directions (Cramér and Wold) and single numbers, on the scale of their quantiles."""
    pooled = np.vstack(both)
    centre = np.median(pooled, axis=0)
    spread = np.subtract(*np.quantile(pooled, [0.8, 0.2], axis=0)) + 1e-3
    directions = rng.standard_normal((pooled.shape[1], 12)) / np.sqrt(pooled.shape[1])
    single = rng.choice(pooled.shape[1], 12, replace=False)
    for sample in both:
        scaled = (sample - centre) / spread
        yield np.hstack([np.tanh(scaled / 3) @ directions, scaled[:, single]])


def check_same_law(first, second, rng):
    one, two = statistics((first, second), rng)
    tests = one.shape[1]
    for i in range(tests):
        value = stats.ks_2samp(one[:, i], two[:, i])
        assert value.pvalue > ALPHA / tests, (i, value)
    # Moments up to order four of the bounded combinations, with their standard errors.
    for order in (1, 2, 3, 4):
        a, b = one[:, :12] ** order, two[:, :12] ** order
        error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        z = (a.mean(axis=0) - b.mean(axis=0)) / error
        # 48 two-sided tests, n = 1200: beyond 5.5 with probability 48 * 4e-8 < 1e-5.
        assert np.abs(z).max() < 5.5, (order, z)


def compare(kind, n, m, laws=(None, None), read=0, length=12, samples=SAMPLES):
    program = random_program(n + 100 * m, length, laws)
    rng = np.random.default_rng(7 * n + m)
    variance = 1.0 / n
    dense = run_dense(program, ARRAYS[kind](samples, m, n, rng), variance, rng, read)
    outcomes = []
    for _ in range(samples):
        matrix = kind(NeuronSpace(n, generator=rng), NeuronSpace(m, generator=rng), variance)
        outcomes.append(run_on_demand(program, matrix, read))
    on_demand = [np.array(part) for part in zip(*outcomes, strict=True)]
    check_same_law(features(on_demand), features(dense), rng)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (7, 3), (40, 40)])
def test_products(kind, n, m):
    compare(kind, n, m)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 5), (3, 3), (9, 4), (12, 12), (25, 40)])
def test_long_programs(kind, n, m):
    compare(kind, n, m, length=40, samples=5000)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (20, 9)])
def test_products_and_entries(kind, n, m):
    compare(kind, n, m, read=2, length=6)


@pytest.mark.parametrize("laws", [(Sign(), Flat()), (None, Sign())])
@pytest.mark.parametrize(("n", "m"), [(2, 3), (20, 30)])
def test_vectors_of_other_laws(laws, n, m):
    compare(GaussianMatrix, n, m, laws, read=2, length=6)


def test_haar_with_vectors_of_other_laws():
    compare(HaarMatrix, 3, 3, (Sign(), Flat()), read=2, length=6)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_the_comparison_sees_a_wrong_law(kind):
    """The test has power: a deviation of the entries of 3 % is caught."""
    rng = np.random.default_rng(0)
    program = random_program(0, 12)
    arrays = ARRAYS[kind](SAMPLES, 10, 10, rng)
    first = features(run_dense(program, arrays, 0.1, rng))
    arrays = ARRAYS[kind](SAMPLES, 10, 10, rng)
    second = features(run_dense(program, arrays, 0.1 * 1.03**2, rng))
    with pytest.raises(AssertionError):
        check_same_law(first, second, rng)
