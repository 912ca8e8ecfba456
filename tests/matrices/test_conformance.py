"""One suite that every random matrix passes, at every kind of width it accepts."""

import math

import numpy as np
import pytest

from scalinglimits.matrices import DenseMatrix, GaussianMatrix, HaarMatrix, NeuronSpace, entries

FINITE = [
    (kind, explicit, n, m)
    for kind, explicit in [
        (GaussianMatrix, False),
        (GaussianMatrix, True),
        (HaarMatrix, False),
        (HaarMatrix, True),
        (DenseMatrix, True),
    ]
    for n, m in [(1, 1), (2, 2), (7, 7), (5, 8), (8, 5), (1, 6), (6, 1), (40, 40)]
]
LARGE = [
    (kind, False, n, m)
    for kind in (GaussianMatrix, HaarMatrix)
    for n, m in [(1000, 10**6), (10**12, 10**12), (10**18, 10**9), (math.inf, math.inf)]
]


def build(case, variance="fan_in", **options):
    kind, explicit, n, m = case
    domain = NeuronSpace(n, generator=11, explicit=explicit)
    codomain = NeuronSpace(m, generator=12, explicit=explicit)
    return kind(domain, codomain, variance, generator=13, **options)


def close(left, right):
    size = max(left.shape[0], right.shape[0])
    padded = [np.pad(a, [(0, size - a.shape[0])] + [(0, 0)] * (a.ndim - 1)) for a in (left, right)]
    np.testing.assert_allclose(*padded, atol=1e-10, rtol=1e-9)


def run(matrix, steps=6):
    """A program of mixed products; returns all queries and answers."""
    a, b = matrix.domain.draw(2), matrix.codomain.draw(3)
    asked = []
    for _ in range(steps):
        asked.append(("right", a, matrix.matvec(a)))
        asked.append(("left", b, matrix.rmatvec(b)))
        a = matrix.domain.pad(asked[-1][2])[:, :2] + 0.5 * matrix.domain.pad(a)
        b = matrix.codomain.pad(b)
        b[:, :2] -= matrix.codomain.pad(asked[-2][2])
    return asked


@pytest.mark.parametrize("case", FINITE + LARGE, ids=str)
class TestConformance:
    def test_shapes(self, case):
        matrix = build(case)
        a = matrix.domain.draw(2)
        y = matrix.matvec(a)
        assert matrix.shape == (case[3], case[2])
        assert y.shape == (matrix.codomain.dimension, 2)
        assert y.dtype == np.float64
        assert matrix.matvec(a[:, 0]).shape == (matrix.codomain.dimension,)
        x = matrix.rmatvec(y)
        assert x.shape == (matrix.domain.dimension, 2)
        assert matrix.rmatvec(y[:, 1]).shape == (matrix.domain.dimension,)
        assert "rank_known" in repr(matrix)

    def test_linear(self, case):
        matrix = build(case)
        a = matrix.domain.draw(3)
        separate = matrix.matvec(a)
        mix = np.array([0.3, -2.0, 0.7])
        close(matrix @ (a @ mix), separate @ mix)
        b = matrix.codomain.draw(2)
        close(matrix.rmatvec(b @ [1.0, -1.0]), matrix.rmatvec(b) @ [1.0, -1.0])

    def test_zero_vector_is_mapped_to_zero(self, case):
        matrix = build(case)
        assert np.all(matrix.matvec(np.zeros((matrix.domain.dimension, 2))) == 0.0)
        assert np.all(matrix.rmatvec(np.zeros(matrix.codomain.dimension)) == 0.0)

    def test_answers_agree_however_late_they_are_asked_again(self, case):
        matrix = build(case)
        for side, query, answer in run(matrix):
            product = matrix.matvec if side == "right" else matrix.rmatvec
            close(product(query), answer)
            close(product(query[:, 1]), answer[:, 1])

    def test_adjoint(self, case):
        matrix = build(case, "fan_geo_avg", scale=1.7)
        asked = run(matrix)
        # m <b, W a> = n <W^T b, a>, and so with the square roots of the widths at infinity.
        m, n = matrix.codomain.relative_width, matrix.domain.relative_width
        for side, a, y in asked:
            for other, b, x in asked:
                if side == "right" and other == "left":
                    left = math.sqrt(m / n) * matrix.codomain.inner(b, y)
                    right = math.sqrt(n / m) * matrix.domain.inner(x, a)
                    np.testing.assert_allclose(left, right, atol=1e-9, rtol=1e-9)

    def test_dimensions_never_exceed_the_widths(self, case):
        matrix = build(case)
        run(matrix, steps=12)
        assert matrix.domain.dimension <= case[2]
        assert matrix.codomain.dimension <= case[3]

    def test_missing_coordinates_are_zero(self, case):
        matrix = build(case)
        a = matrix.domain.draw(1)[:, 0]
        y = matrix.matvec(a)
        matrix.rmatvec(matrix.codomain.draw(2))
        close(matrix.matvec(matrix.domain.pad(a)), y)

    def test_same_seed_same_answers(self, case):
        first, second = run(build(case)), run(build(case))
        for one, two in zip(first, second, strict=True):
            assert np.array_equal(one[2], two[2])

    def test_reading_weights_changes_no_product(self, case):
        plain, read = build(case), build(case)
        expected = run(plain, 4)
        run(read, 2)
        read.domain.rows(1)
        read.codomain.rows(1)
        read = build(case)
        a, b = read.domain.draw(2), read.codomain.draw(3)
        read.domain.rows(1)
        assert np.array_equal(read.matvec(a), expected[0][2])
        read.codomain.rows(1)
        assert np.array_equal(read.rmatvec(b), expected[1][2])

    def test_too_many_coordinates(self, case):
        matrix = build(case)
        with pytest.raises(ValueError, match=r"`vectors` must have shape .* got \(\d+,\)"):
            matrix.matvec(np.zeros(matrix.domain.dimension + 1))
        with pytest.raises(ValueError, match="`vectors` must have shape"):
            matrix.rmatvec(np.zeros((matrix.codomain.dimension + 1, 2)))
        with pytest.raises(ValueError, match="`vectors` must have shape"):
            matrix.matvec(np.zeros((1, 1, 1)))


@pytest.mark.parametrize("case", FINITE, ids=str)
@pytest.mark.parametrize("steps", [0, 1, 2, 30])
def test_products_are_those_of_the_entries(case, steps):
    """The whole matrix, read after a program, multiplies the vectors as the program did."""
    matrix = build(case, 0.3)
    asked = run(matrix, steps)
    full = matrix.entries(case[3], case[2]) * math.sqrt(matrix.variance)
    assert full.shape == (case[3], case[2])
    for side, query, answer in asked:
        source, target = matrix.domain, matrix.codomain
        if side == "left":
            source, target = target, source
        into = entries(source, query, int(source.width))
        out = entries(target, answer, int(target.width))
        product = full @ into if side == "right" else full.T @ into
        np.testing.assert_allclose(product, out, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 7), (5, 8), (8, 5), (1, 6), (6, 1)])
def test_dimensions_saturate_and_everything_becomes_known(kind, n, m):
    matrix = build((kind, False, n, m))
    for _ in range(4):
        matrix.matvec(matrix.domain.draw(3))
        matrix.rmatvec(matrix.codomain.draw(3))
    assert (matrix.domain.dimension, matrix.codomain.dimension) == (n, m)
    assert matrix.rank_known == (n + m if kind is GaussianMatrix else max(n, m))
    forward, backward = matrix.matvec(np.eye(n)), matrix.rmatvec(np.eye(m))
    np.testing.assert_allclose(m * forward, n * backward.T, atol=1e-10)
    if kind is HaarMatrix:
        small = forward.T @ forward if n <= m else forward @ forward.T
        np.testing.assert_allclose(small, max(m, n) / m * np.eye(min(m, n)), atol=1e-10)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
@pytest.mark.parametrize("width", [3, 10**12, math.inf])
def test_one_space_for_domain_and_codomain(kind, width):
    space = NeuronSpace(width, generator=0)
    matrix = kind(space, space)
    v = space.draw(2)
    for _ in range(4):
        w = matrix.matvec(v)
        close(matrix.matvec(v), w)
        x = matrix.rmatvec(w)
        np.testing.assert_allclose(space.inner(x, v), space.inner(w, w), atol=1e-10)
        v = space.pad(v) + x


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_tolerance_stops_the_growth(kind):
    space = NeuronSpace(math.inf)
    matrix = kind(space, space, tolerance=1e-3)
    v = space.draw(2)
    matrix.matvec(v[:, 0])
    matrix.matvec(v[:, 0] + 1e-4 * v[:, 1])
    assert matrix.rank_known == 1
    matrix.matvec(v[:, 0] + 1e-2 * v[:, 1])
    assert matrix.rank_known == 2


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_products_in_new_directions_end_with_the_reading_of_entries(kind):
    space = NeuronSpace(20, generator=0)
    matrix = kind(space, space)
    v = space.draw(2)
    y = matrix.matvec(v[:, 0])
    first = matrix.entries(3)
    np.testing.assert_allclose(matrix.entries(5, 7)[:3, :3], first, atol=1e-12)
    close(matrix.matvec(v[:, 0]), y)
    with pytest.raises(RuntimeError, match="no products in new directions"):
        matrix.matvec(v[:, 1])


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_entries_at_infinite_width_are_gaussian_and_free_of_the_products(kind):
    space = NeuronSpace(math.inf, generator=0)
    matrix = kind(space, space, generator=1)
    first = matrix.entries(3)
    matrix.matvec(space.draw())
    assert np.array_equal(matrix.entries(4)[:3, :3], first)
    silent = NeuronSpace(math.inf)
    with pytest.raises(ValueError, match="`generator` must be given"):
        kind(silent, silent).entries(2)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix, DenseMatrix])
class TestErrors:
    def spaces(self, n=4, m=4):
        return [NeuronSpace(w, generator=0, explicit=True) for w in (n, m)]

    def test_variance(self, kind):
        with pytest.raises(ValueError, match=r"`variance` must be .* got 'fan'"):
            kind(*self.spaces(), "fan")
        with pytest.raises(ValueError, match=r"`variance` must be positive and finite; got 0"):
            kind(*self.spaces(), 0.0)
        with pytest.raises(ValueError, match=r"`scale` must be positive and finite; got -1"):
            kind(*self.spaces(), scale=-1.0)

    def test_variance_at_infinite_width(self, kind):
        space = NeuronSpace(math.inf)
        with pytest.raises(ValueError, match=r"`variance` must be one of .* infinite width"):
            kind(space, space, 0.1)

    def test_mixed_widths(self, kind):
        with pytest.raises(ValueError, match=r"both of finite or both of infinite .* inf and 4"):
            kind(NeuronSpace(math.inf), NeuronSpace(4, generator=0))

    def test_more_entries_than_neurons(self, kind):
        with pytest.raises(ValueError, match="must be between 0 and the width"):
            kind(*self.spaces()).entries(5)


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_tolerance_error(kind):
    space = NeuronSpace(math.inf)
    with pytest.raises(ValueError, match=r"`tolerance` must be in \[0, 1\); got 1.0"):
        kind(space, space, tolerance=1.0)


def test_dense_needs_explicit_spaces():
    space = NeuronSpace(4, generator=0)
    with pytest.raises(ValueError, match="`domain` must be an explicit space"):
        DenseMatrix(space, space)
    with pytest.raises(ValueError, match="`codomain` must be an explicit space"):
        DenseMatrix(NeuronSpace(4, generator=0, explicit=True), space)


def test_dense_takes_a_law():
    class Sign:
        def sample(self, shape, generator):
            return generator.choice([-1.0, 1.0], size=shape)

    domain = NeuronSpace(3, generator=0, explicit=True)
    codomain = NeuronSpace(5, generator=0, explicit=True)
    matrix = DenseMatrix(domain, codomain, "fan_out", entries=Sign())
    assert np.all(np.abs(matrix.entries(5, 3)) == 1.0)
    values = matrix.matvec(np.eye(3)) * math.sqrt(5) / math.sqrt(3)
    np.testing.assert_allclose(np.abs(values), 1 / math.sqrt(5))


@pytest.mark.parametrize("variance", [0.3, "fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
def test_gains_are_the_variance_times_the_widths(variance):
    matrix = GaussianMatrix(
        NeuronSpace(4, generator=0), NeuronSpace(9, generator=1), variance, scale=2.0
    )
    expected = {"fan_in": 1 / 4, "fan_out": 1 / 9, "fan_avg": 2 / 13, "fan_geo_avg": 1 / 6}
    v = 2.0 * expected.get(variance, 0.3)
    assert matrix.variance == pytest.approx(v)
    assert matrix.forward_gain == pytest.approx(math.sqrt(4 * v))
    assert matrix.backward_gain == pytest.approx(math.sqrt(9 * v))


@pytest.mark.parametrize("kind", [GaussianMatrix, HaarMatrix])
def test_infinite_widths_of_a_ratio_are_the_limit_of_finite_ones(kind):
    """Products up to order four agree with widths of the same ratio, up to their fluctuations."""

    def inner_products(n, m, relative=(None, None)):
        domain = NeuronSpace(n, generator=0, relative_width=relative[0])
        codomain = NeuronSpace(m, generator=1, relative_width=relative[1])
        matrix = kind(domain, codomain, "fan_out", scale=1.3)
        a = domain.draw()[:, 0]
        vectors = [a]
        for _ in range(4):
            vectors.append(matrix.rmatvec(matrix.matvec(vectors[-1])))
        padded = np.column_stack([domain.pad(v) for v in vectors])
        return domain.inner(padded, padded)

    limit = inner_products(math.inf, math.inf, (2.0, 3.0))
    finite = inner_products(2 * 10**14, 3 * 10**14)
    np.testing.assert_allclose(finite, limit, rtol=1e-4)
