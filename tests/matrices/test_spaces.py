"""Neuron spaces: widths, draws, padding, and the reading of actual weights."""

import math

import numpy as np
import pytest
from scipy import stats

from scalinglimits.matrices import (
    MAX_WIDTH,
    DenseMatrix,
    GaussianMatrix,
    HaarBlock,
    HaarMatrix,
    NeuronSpace,
    entries,
)

from .programs import Flat, Sign

ALPHA = 1e-5


class TestWidths:
    @pytest.mark.parametrize("width", [0, -3, MAX_WIDTH + 1])
    def test_out_of_range(self, width):
        with pytest.raises(ValueError, match=rf"`width` must be between 1 .* got {width}"):
            NeuronSpace(width, generator=0)

    @pytest.mark.parametrize("width", [2.5, 10.0, "3", True, -math.inf, math.nan])
    def test_wrong_type(self, width):
        with pytest.raises(TypeError, match=r"`width` must be an integer or math\.inf; got"):
            NeuronSpace(width, generator=0)

    def test_numpy_integers_and_infinity_are_fine(self):
        assert NeuronSpace(np.int64(5), generator=0).width == 5
        assert NeuronSpace(np.inf).width == math.inf
        assert NeuronSpace(MAX_WIDTH, generator=0).draw().shape == (1, 1)

    def test_finite_width_needs_randomness(self):
        with pytest.raises(ValueError, match="`generator` must be a NumPy generator or a seed"):
            NeuronSpace(5)

    def test_explicit_needs_a_finite_width(self):
        with pytest.raises(ValueError, match="`explicit` must be False at infinite width"):
            NeuronSpace(math.inf, explicit=True)

    def test_relative_width(self):
        assert NeuronSpace(math.inf, relative_width=2.0).relative_width == 2.0
        assert NeuronSpace(7, generator=0).relative_width == 7.0
        with pytest.raises(ValueError, match="`relative_width` must be None at finite width"):
            NeuronSpace(7, generator=0, relative_width=2.0)
        for wrong in (0.0, -1.0, math.inf):
            with pytest.raises(ValueError, match="`relative_width` must be positive and finite"):
                NeuronSpace(math.inf, relative_width=wrong)


class TestDraw:
    def test_identity_at_infinite_width(self):
        space = NeuronSpace(math.inf)
        np.testing.assert_array_equal(space.draw(3), np.eye(3))
        np.testing.assert_array_equal(space.draw(2), np.eye(5)[:, 3:])

    def test_bartlett_factor_at_finite_width(self):
        block = NeuronSpace(10**6, generator=0).draw(4)
        assert np.all(np.tril(block, -1) == 0.0)
        np.testing.assert_allclose(np.diagonal(block), 1.0, atol=5e-3)
        assert 1e-5 < np.abs(block[0, 1:]).max() < 5e-3

    @pytest.mark.parametrize("explicit", [False, True])
    @pytest.mark.parametrize("law", [None, Sign(), Flat()])
    def test_dimension_saturates(self, explicit, law):
        space = NeuronSpace(3, generator=0, explicit=explicit)
        for _ in range(4):
            block = space.draw(2, law)
        assert block.shape == (3, 2)
        assert space.dimension == 3

    def test_law_of_lengths(self):
        """m |v|^2 is chi-square with m degrees of freedom, whatever is known already."""
        rng = np.random.default_rng(0)
        lengths = []
        for _ in range(2000):
            space = NeuronSpace(5, generator=rng)
            space.draw(3)
            v = space.draw()[:, 0]
            lengths.append(5 * v @ v)
        assert stats.kstest(lengths, "chi2", args=(5,)).pvalue > ALPHA

    def test_lengths_of_signs_are_exactly_one(self):
        space = NeuronSpace(10, generator=0)
        space.draw(2)
        block = space.draw(3, Sign())
        gram = space.inner(block, block)
        np.testing.assert_allclose(np.diagonal(gram), 1.0, rtol=1e-12)
        np.testing.assert_allclose(gram * 5, np.round(gram * 5), atol=1e-12)

    @pytest.mark.parametrize("before", [0, 1])
    def test_direction_of_signs_is_uniform_for_what_is_known(self, before):
        """Given earlier signs, the rest of a new vector is uniform in their complement."""
        rng = np.random.default_rng(1)
        width, squares = 6, []
        while len(squares) < 1500:
            space = NeuronSpace(width, generator=rng)
            space.draw(before, Sign())
            space.draw(3)
            v = space.draw(1, Sign())[:, 0]
            rest = v[before:]
            # Two vectors of signs may be parallel.
            if rest @ rest > 1e-6:
                squares.append(rest[:2] ** 2 / (rest @ rest))
        law = stats.beta(0.5, (width - before - 1) / 2)
        for column in np.array(squares).T:
            assert stats.kstest(column, law.cdf).pvalue > ALPHA / 2

    def test_negative_count(self):
        with pytest.raises(ValueError, match="`count` must be non-negative; got -1"):
            NeuronSpace(math.inf).draw(-1)

    def test_other_laws_are_refused_where_they_cannot_be_sampled(self):
        with pytest.raises(ValueError, match=r"`entries` must be None \(Gaussian\) when width"):
            NeuronSpace(10**12, generator=0).draw(2, Sign())

    def test_other_laws_are_refused_after_reading(self):
        space = NeuronSpace(10, generator=0)
        space.draw(2)
        space.rows(3)
        with pytest.raises(ValueError, match="`entries` must be None once weights"):
            space.draw(1, Sign())
        assert space.draw(1).shape == (3, 1)

    def test_blocks_of_rows_do_not_show(self):
        """A width beyond one sampling block: lengths and entries are those of one law."""
        space = NeuronSpace(70_000, generator=0)
        block = space.draw(2, Sign())
        assert space.inner(block[:, 0], block[:, 0]) == pytest.approx(1.0, rel=1e-12)
        values = entries(space, block, 66_000)
        np.testing.assert_allclose(np.abs(values), 1.0, atol=1e-9)
        assert abs(values[:, 0].mean()) < 5.5 / math.sqrt(66_000)

    def test_explicit_coordinates_are_the_values(self):
        space = NeuronSpace(6, generator=0, explicit=True)
        block = space.draw(2, Sign())
        np.testing.assert_allclose(np.abs(block), 1 / math.sqrt(6))
        np.testing.assert_allclose(entries(space, block, 6), block * math.sqrt(6))


class TestVectors:
    def test_pad_copies(self):
        space = NeuronSpace(math.inf)
        v = space.draw()[:, 0]
        space.draw(2)
        padded = space.pad(v)
        np.testing.assert_array_equal(padded, [1.0, 0.0, 0.0])
        again = space.pad(padded)
        again[0] = 7.0
        assert padded[0] == 1.0

    def test_inner_pads(self):
        space = NeuronSpace(math.inf)
        space.draw(3)
        assert space.inner(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])) == 11.0
        assert space.inner(np.ones((2, 2)), np.ones((3, 4))).shape == (2, 4)

    def test_rows_errors(self):
        with pytest.raises(ValueError, match="`count` must be between 0 and the width 3; got 4"):
            NeuronSpace(3, generator=0).rows(4)
        with pytest.raises(ValueError, match="`generator` must be given to the space"):
            NeuronSpace(math.inf).rows(4)


class TestEntries:
    @pytest.mark.parametrize("width", [12, 10**12, math.inf])
    @pytest.mark.parametrize("law", [None, Sign()])
    def test_reading_is_consistent(self, width, law):
        if law is not None and width == 10**12:
            width = 1000
        space = NeuronSpace(width, generator=0)
        block = space.draw(3, law)
        first = entries(space, block, 2)
        if law is not None:
            np.testing.assert_allclose(np.abs(first), 1.0, atol=1e-10)
        np.testing.assert_allclose(entries(space, block, 7)[:2], first, atol=1e-10)
        later = space.draw(4)
        later_first = entries(space, later, 3)
        np.testing.assert_allclose(entries(space, block, 7)[:2], first, atol=1e-10)
        np.testing.assert_allclose(entries(space, later, 12)[:3], later_first, atol=1e-10)

    @pytest.mark.parametrize("law", [None, Sign(), Flat()])
    @pytest.mark.parametrize("before", [0, 2])
    def test_entries_give_the_inner_products(self, law, before):
        space = NeuronSpace(9, generator=3)
        blocks = [space.draw(before), space.draw(2, law), space.draw(2), space.draw(1, law)]
        vectors = np.hstack([space.pad(b) for b in blocks])
        values = entries(space, vectors, 9)
        np.testing.assert_allclose(values.T @ values / 9, vectors.T @ vectors, atol=1e-9)

    def test_remark_v_at_infinite_width(self):
        """U(0) takes the entries of its law; what products add to it stays Gaussian."""
        n = 20_000
        domain, codomain = NeuronSpace(math.inf, generator=0), NeuronSpace(math.inf, generator=1)
        u, v = domain.draw(2, Sign()), codomain.draw(1, Flat())
        matrix = GaussianMatrix(domain, codomain)
        b = matrix.rmatvec(codomain.pad(v))[:, 0]
        trained = domain.pad(u[:, 0]) - 0.5 * domain.pad(b)
        np.testing.assert_array_equal(np.abs(entries(domain, u, n)), 1.0)
        assert np.abs(entries(codomain, v, n)).max() <= math.sqrt(3)
        values = entries(domain, trained, n)
        # Without the first basis vector the weights are N(0, 1/4): Figure 2.3.
        rest = values - entries(domain, u, n)[:, 0]
        assert stats.kstest(rest / 0.5, "norm").pvalue > ALPHA
        assert stats.kstest(values / math.sqrt(1.25), "norm").pvalue < 1e-12

    @pytest.mark.parametrize("width", [4, 30, 10**15, math.inf])
    def test_one_entry_of_a_gaussian_vector_is_gaussian(self, width):
        rng = np.random.default_rng(5)
        values = []
        for _ in range(1500):
            space = NeuronSpace(width, generator=rng)
            values.append(entries(space, space.draw(3), 1)[0])
        values = np.array(values)
        for column in values.T:
            assert stats.kstest(column, "norm").pvalue > ALPHA / 3
        correlations = np.corrcoef(values.T)[np.triu_indices(3, 1)]
        assert np.abs(correlations).max() < 5.5 / math.sqrt(len(values))

    @pytest.mark.parametrize("kind", [GaussianMatrix, DenseMatrix])
    def test_entries_of_a_matrix_are_gaussian(self, kind):
        space = NeuronSpace(50, generator=0, explicit=kind is DenseMatrix)
        matrix = kind(space, space, 3.0)
        matrix.matvec(space.draw(4))
        matrix.rmatvec(space.draw(4))
        block = matrix.entries(50)
        assert stats.kstest(block.ravel(), "norm").pvalue > ALPHA
        singular = np.linalg.svd(block, compute_uv=False)
        assert singular[0] < 2.6 * math.sqrt(50)

    def test_entries_of_a_haar_matrix_are_orthogonal(self):
        space = NeuronSpace(50, generator=0)
        matrix = HaarMatrix(space, space)
        matrix.matvec(space.draw(4))
        block = matrix.entries(50) / math.sqrt(50)
        np.testing.assert_allclose(block @ block.T, np.eye(50), atol=1e-9)


class TestHaarBlocks:
    def test_any_order_of_growth_gives_an_orthogonal_matrix(self):
        rng = np.random.default_rng(0)
        for size in (1, 2, 5, 12):
            block = HaarBlock(size)
            shape = (0, 0)
            while shape != (size, size):
                old = block.grow(*shape, rng).copy()
                shape = tuple(min(size, s + int(rng.integers(0, 4))) for s in shape)
                assert np.all(block.grow(*shape, rng)[: old.shape[0], : old.shape[1]] == old)
            full = block.grow(size, size, rng)
            np.testing.assert_allclose(full @ full.T, np.eye(size), atol=1e-10)

    @pytest.mark.parametrize("path", [[(3, 2)], [(1, 1), (1, 2), (3, 2)], [(2, 1), (3, 1), (3, 2)]])
    @pytest.mark.parametrize("size", [3, 4, 9])
    def test_corner_has_the_haar_law(self, path, size):
        """Every entry has the law of a coordinate on the sphere; corners agree with QR's."""
        rng = np.random.default_rng(1)
        samples = 1500
        grown = np.empty((samples, 3, 2))
        for i in range(samples):
            block = HaarBlock(size)
            for shape in path:
                grown[i] = 0.0
                corner = block.grow(*shape, rng)
            grown[i] = corner
        q, r = np.linalg.qr(rng.standard_normal((samples, size, 2)))
        plain = (q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :])[:, :3]
        # The square of a coordinate on the sphere of R^m is Beta(1/2, (m - 1)/2).
        squares = grown.reshape(samples, 6) ** 2
        for column in squares.T:
            law = stats.beta(0.5, (size - 1) / 2)
            assert stats.kstest(np.clip(column, 0, 1), law.cdf).pvalue > ALPHA / 6
        directions = rng.standard_normal((6, 6, 8))
        for i in range(8):
            forms = [
                np.einsum(
                    "sa,ab,sb->s", x.reshape(samples, 6), directions[:, :, i], x.reshape(samples, 6)
                )
                for x in (grown, plain)
            ]
            assert stats.ks_2samp(*forms).pvalue > ALPHA / 8

    def test_errors(self):
        with pytest.raises(ValueError, match="`size` must be non-negative; got -1"):
            HaarBlock(-1)
        with pytest.raises(ValueError, match="`rows` and `columns` must be at most the size 3"):
            HaarBlock(3).grow(4, 1, np.random.default_rng(0))
