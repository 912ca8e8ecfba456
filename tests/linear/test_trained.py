"""Trained matrices: factors and arrays agree with a plain array, at every step."""

import subprocess
import sys

import numpy as np
import pytest

from scalinglimits.linear.trained import TrainedMatrix


@pytest.mark.parametrize("columns", [None, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_against_an_array(momentum, columns):
    rng = np.random.default_rng(0)
    matrix = TrainedMatrix(momentum)
    plain, velocity = np.zeros((60, 50)), np.zeros((60, 50))
    copies = []
    for step in range(40):
        k, l = 10 + step, 8 + step  # noqa: E741
        shape = () if columns is None else (columns,)
        left, right = rng.standard_normal((k, *shape)), rng.standard_normal((l, *shape))
        matrix.move(left, right, 0.3)
        velocity *= momentum
        velocity[:k, :l] += 0.3 * (np.outer(left, right) if columns is None else left @ right.T)
        plain += velocity
        np.testing.assert_allclose(matrix.dense((60, 50)), plain, atol=1e-10)
        assert matrix.square == pytest.approx(np.sum(plain**2))
        for transpose, array in ((False, plain), (True, plain.T)):
            vector = rng.standard_normal(array.shape[1])
            out = np.ones(array.shape[0])
            matrix.add_product(vector, out, transpose)
            np.testing.assert_allclose(out, 1.0 + array @ vector, atol=1e-10)
        rows, others = rng.standard_normal((3, 60)), rng.standard_normal((4, 50))
        np.testing.assert_allclose(matrix.between(rows, others), rows @ plain @ others.T, atol=1e-9)
        copies.append((matrix.copy(), plain.copy()))
    for copy, array in copies:
        np.testing.assert_allclose(copy.dense((60, 50)), array, atol=1e-10)


def test_zero():
    matrix = TrainedMatrix()
    assert matrix.square == 0.0
    assert np.array_equal(matrix.dense((2, 3)), np.zeros((2, 3)))


def test_no_torch():
    code = "import sys, scalinglimits.linear; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
