"""Moments that are known in closed form at every width, and the exact limit at infinity."""

import math

import numpy as np
import pytest

from scalinglimits.matrices import GaussianMatrix, HaarMatrix, NeuronSpace

SAMPLES = 3000
# Each test compares at most six means; |z| < 5.5 fails by chance with probability below 3e-7.
Z_MAX = 5.5

# E tr (Z^T Z)^k / m^(k+1), k = 1, ..., 4, for a square real Gaussian matrix; Catalan at infinity.
WISHART = [
    lambda m: 1.0,
    lambda m: 2 + 1 / m,
    lambda m: 5 + 6 / m + 4 / m**2,
    lambda m: 14 + 29 / m + 42 / m**2 + 20 / m**3,
]


def z_score(samples, expected):
    samples = np.asarray(samples)
    return (samples.mean(axis=0) - expected) / (samples.std(axis=0) / math.sqrt(len(samples)))


@pytest.mark.parametrize("width", [2, 5, 40, 10**6])
def test_spectral_moments(width):
    """<u, (W^T W)^k u>: what a long program needs is in Gaussian conditioning, order by order."""
    rng = np.random.default_rng(width)
    outcomes = []
    for _ in range(SAMPLES):
        domain, codomain = (NeuronSpace(width, generator=rng) for _ in range(2))
        matrix = GaussianMatrix(domain, codomain, generator=rng)
        u = domain.draw()[:, 0]
        w = matrix.matvec(u)
        v = matrix.rmatvec(w)
        x = matrix.matvec(v)
        y = matrix.rmatvec(x)
        pairs = [(codomain, w, w), (domain, v, v), (codomain, x, x), (domain, y, y)]
        outcomes.append([space.inner(a, b) for space, a, b in pairs])
    assert np.abs(z_score(outcomes, [f(width) for f in WISHART])).max() < Z_MAX


@pytest.mark.parametrize("width", [3, 30, 10**9])
def test_fourth_moment_of_a_network_at_initialisation(width):
    """f = <V, W U>: E f^2 = 1/m and E f^4 = 3 (m + 2)^2 / m^4."""
    rng = np.random.default_rng(width)
    values = []
    for _ in range(SAMPLES):
        domain, codomain = (NeuronSpace(width, generator=rng) for _ in range(2))
        u, v = domain.draw()[:, 0], codomain.draw()[:, 0]
        w = GaussianMatrix(domain, codomain, generator=rng).matvec(u)
        values.append(float(codomain.inner(v, w)))
    moments = np.array(values)[:, None] ** [1, 2, 3, 4]
    expected = [0.0, 1 / width, 0.0, 3 * (width + 2) ** 2 / width**4]
    assert np.abs(z_score(moments, expected)).max() < Z_MAX


def test_catalan_numbers_at_infinite_width():
    domain, codomain = NeuronSpace(math.inf), NeuronSpace(math.inf)
    matrix = GaussianMatrix(domain, codomain)
    v = u = domain.draw()[:, 0]
    for k in range(1, 13):
        v = matrix.rmatvec(matrix.matvec(v))
        catalan = math.comb(2 * k, k) // (k + 1)
        assert domain.inner(u, v) == pytest.approx(catalan, rel=1e-12)


def test_haar_powers_at_infinite_width_are_orthogonal():
    """O, O^2, ... of one orthogonal matrix on one space are free: powers of a vector never meet."""
    space = NeuronSpace(math.inf)
    matrix = HaarMatrix(space, space)
    vectors = [space.draw()[:, 0]]
    for _ in range(6):
        vectors.append(matrix.matvec(vectors[-1]))
    padded = np.column_stack([space.pad(v) for v in vectors])
    np.testing.assert_allclose(padded.T @ padded, np.eye(7), atol=1e-14)


@pytest.mark.parametrize("width", [2, 7])
def test_haar_trace_moments(width):
    """E <u, O u>^2 = 1/m for a unit vector, and E <u, O^2 u> = 1/m."""
    rng = np.random.default_rng(width)
    values = []
    for _ in range(SAMPLES):
        space = NeuronSpace(width, generator=rng)
        matrix = HaarMatrix(space, space, generator=rng)
        u = space.draw()[:, 0]
        u /= np.linalg.norm(u)
        v = matrix.matvec(u)
        values.append([space.inner(u, v) ** 2, float(space.inner(u, matrix.matvec(v)))])
    assert np.abs(z_score(values, [1 / width, 1 / width])).max() < Z_MAX


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_images_are_the_documents_lambda(d):
    """Entry by entry in the basis of (2.7), products in the document's order."""
    domain, codomain = NeuronSpace(math.inf), NeuronSpace(math.inf)
    domain.draw(d)
    codomain.draw(1)
    matrix = GaussianMatrix(domain, codomain)
    size = 40
    right, left = 0, 0
    while right < size:
        # All right vectors in order, then all left vectors, as gradient descent asks for them.
        for _ in range(domain.dimension - right):
            matrix.matvec(np.eye(domain.dimension)[:, right])
            right += 1
        for _ in range(min(codomain.dimension - left, 1)):
            matrix.rmatvec(np.eye(codomain.dimension)[:, left])
            left += 1
    i, j = np.mgrid[1 : size + 1, 1 : size + 1]
    expected = ((i + d == j) | (j + 1 == i)).astype(float)
    image = matrix.matvec(np.eye(right))[:size, :size]
    np.testing.assert_allclose(image, expected, atol=1e-14)
    known = left
    transposed = matrix.rmatvec(np.eye(known))[:size, :size]
    np.testing.assert_allclose(transposed, expected.T[: transposed.shape[0], :known], atol=1e-14)


@pytest.mark.parametrize("width", [math.inf, 10**12, 1500])
@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_orthogonality_after_two_thousand_products(width, kind):
    """The implicit bases stay orthonormal to 1e-12 when dimensions grow and when they saturate."""
    domain, codomain = NeuronSpace(width, generator=0), NeuronSpace(width, generator=1)
    matrix = kind(domain, codomain, generator=2)
    rng = np.random.default_rng(3)
    for _ in range(500):
        a = rng.standard_normal(domain.dimension) * 0.5 ** rng.integers(0, 30, domain.dimension)
        if domain.dimension < 1000:
            fresh = domain.draw()[:, 0]
            a = domain.pad(a) + fresh
        w = matrix.matvec(a / np.linalg.norm(a))
        matrix.matvec(a)
        b = 1e-3 * codomain.draw()[:, 0]
        matrix.rmatvec(codomain.pad(w / np.linalg.norm(w)) + b)
        matrix.rmatvec(w)
    for frame in matrix.query_bases:
        assert frame.shape[1] > 400
        assert np.abs(frame.T @ frame - np.eye(frame.shape[1])).max() < 1e-12
    a, b = domain.draw(3), codomain.draw(3)
    left = codomain.inner(b, matrix.matvec(a))
    np.testing.assert_allclose(left, domain.inner(matrix.rmatvec(b), a), atol=1e-11)
