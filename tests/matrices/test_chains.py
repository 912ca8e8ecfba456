"""Loopless chains: against their definition, their exact moments, and the basis at infinity."""

import itertools
import math

import numpy as np
import pytest

from scalinglimits.matrices import (
    MAX_CHAIN_LENGTH,
    GaussianMatrix,
    NeuronSpace,
    chain_variance,
    loopless_chain,
)

Z_MAX = 5.5


def naive_chain(z, start, length):
    """Definition (3.4): a sum over all chains, those with a vertex twice left out."""
    m = len(start)
    out = np.zeros(m)
    for vertices in itertools.product(range(m), repeat=length + 1):
        columns, rows = vertices[0::2], vertices[1::2]
        if len(set(columns)) < len(columns) or len(set(rows)) < len(rows):
            continue
        term = start[vertices[0]]
        for step in range(length):
            a, b = vertices[step], vertices[step + 1]
            term *= z[b, a] if step % 2 == 0 else z[a, b]
        out[vertices[-1]] += term
    return out / m ** (length / 2)


@pytest.mark.parametrize(("m", "length"), [(1, 1), (1, 2), (2, 3), (3, 4), (4, 3), (4, 5), (3, 6)])
def test_against_the_definition(m, length):
    rng = np.random.default_rng(m + 10 * length)
    z, u = rng.standard_normal((m, m)), rng.standard_normal(m)
    np.testing.assert_allclose(loopless_chain(z, u, length), naive_chain(z, u, length), atol=1e-9)


def test_short_chains_are_products():
    rng = np.random.default_rng(0)
    z, u = rng.standard_normal((6, 6)), rng.standard_normal(6)
    np.testing.assert_array_equal(loopless_chain(z, u, 0), u)
    np.testing.assert_allclose(loopless_chain(z, u, 1), z @ u / math.sqrt(6))


def chains_of_both_spaces(z, u, v, length):
    """The basis in the document's order: domain U, K_1, J_2, ...; codomain V, J_1, K_2, ..."""
    j = [loopless_chain(z, u, k) for k in range(length + 1)]
    k = [loopless_chain(z.T, v, k) for k in range(length + 1)]
    domain = [j[i] if i % 2 == 0 else k[i] for i in range(length + 1)]
    codomain = [k[i] if i % 2 == 0 else j[i] for i in range(length + 1)]
    return np.array(domain), np.array(codomain)


def test_moments_at_finite_width():
    """Means zero, exact variances, no correlation between chains, at m = 12."""
    m, samples, length = 12, 1500, 3
    rng = np.random.default_rng(1)
    products = np.empty((samples, 2, length + 1, length + 1))
    for s in range(samples):
        z = rng.standard_normal((m, m))
        u, v = rng.standard_normal((2, m))
        for side, chains in enumerate(chains_of_both_spaces(z, u, v, length)):
            products[s, side] = chains @ chains.T / m
    expected = np.diag([chain_variance(m, k) for k in range(length + 1)])
    error = products.std(axis=0) / math.sqrt(samples)
    assert np.abs((products.mean(axis=0) - expected) / error).max() < Z_MAX


def test_fourth_moments_tend_to_those_of_independent_gaussians():
    """E J_k^2 J_l^2 tends to 1 + 2 [k = l], with an error of order 1/m."""
    samples, length = 400, 3
    index = np.arange(length + 1)
    gaussian = 1.0 + 2.0 * (index[:, None] == index)
    rng = np.random.default_rng(2)
    for m in (20, 80):
        moments = np.empty((samples, 2, length + 1, length + 1))
        for s in range(samples):
            z = rng.standard_normal((m, m))
            u, v = rng.standard_normal((2, m))
            for side, chains in enumerate(chains_of_both_spaces(z, u, v, length)):
                moments[s, side] = chains**2 @ chains.T**2 / m
        error = moments.std(axis=0) / math.sqrt(samples)
        distance = np.abs(moments.mean(axis=0) - gaussian)
        assert np.all(distance < Z_MAX * error + 20 / m)


def test_iterated_products_expand_in_chains_with_the_coefficients_at_infinity():
    """Squared distance of order 1/m between a product and its combination of chains."""
    infinite = [NeuronSpace(math.inf), NeuronSpace(math.inf)]
    a, b = infinite[0].draw()[:, 0], infinite[1].draw()[:, 0]
    limit = GaussianMatrix(*infinite)
    # The document's order fixes which chain is which basis vector.
    coordinates = [(0, a), (1, b)]
    for _ in range(3):
        (_, left), (_, right) = coordinates[-2:]
        coordinates += [(1, limit.matvec(left)), (0, limit.rmatvec(right))]
        coordinates[-2:] = coordinates[-1:] + coordinates[-2:-1]
    distances = {}
    rng = np.random.default_rng(3)
    for m in (25, 100):
        total = np.zeros(len(coordinates))
        for _ in range(40):
            z = rng.standard_normal((m, m))
            u, v = rng.standard_normal((2, m))
            bases = chains_of_both_spaces(z, u, v, 4)
            actual = [u, v]
            for _ in range(3):
                left, right = actual[-2:]
                actual += [z.T @ right / math.sqrt(m), z @ left / math.sqrt(m)]
            for i, ((side, c), vector) in enumerate(zip(coordinates, actual, strict=True)):
                expansion = c @ bases[side][: len(c)]
                total[i] += np.mean((vector - expansion) ** 2) / 40
        distances[m] = total
    exact = 4  # U, V, and the first product of each are chains themselves
    np.testing.assert_allclose(distances[100][:exact], 0.0, atol=1e-20)
    rate = distances[25][exact:] / distances[100][exact:]
    assert np.all(distances[100][exact:] < 0.6)
    assert np.all((rate > 2.0) & (rate < 8.0))


def test_variance_tends_to_one():
    assert chain_variance(1, 1) == 1.0
    assert chain_variance(1, 2) == 0.0
    assert chain_variance(10**9, 7) == pytest.approx(1.0, abs=1e-7)


def test_errors():
    z = np.eye(3)
    with pytest.raises(ValueError, match=r"`z` must be a square matrix; got shape \(3, 2\)"):
        loopless_chain(np.ones((3, 2)), np.ones(3), 1)
    with pytest.raises(ValueError, match=r"`start` must have shape \(3,\); got \(2,\)"):
        loopless_chain(z, np.ones(2), 1)
    for length in (-1, MAX_CHAIN_LENGTH + 1):
        with pytest.raises(ValueError, match=f"`length` must be between 0 and .* got {length}"):
            loopless_chain(z, np.ones(3), length)
    with pytest.raises(ValueError, match="`width` must be at least 1; got 0"):
        chain_variance(0, 1)
    with pytest.raises(ValueError, match="`length` must be non-negative; got -1"):
        chain_variance(3, -1)
