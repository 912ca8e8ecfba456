"""Many networks: their law, and that each is itself whatever runs beside it."""

import math

import numpy as np
import pytest
from scipy import stats

from scalinglimits.laws import Uniform
from scalinglimits.linear import (
    EmpiricalData,
    GaussianData,
    LinearNetwork,
    MiniBatches,
    band_matrix,
    explicit_limit,
    train,
    train_replicates,
    width_convergence,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
Y = RNG.standard_normal(6)
DATA = EmpiricalData(X, Y)
ALPHA = 1e-5


def naive_final(m, steps, tau, samples, rng, outputs=1, matrix=None, y=Y):
    """Final predictor and `|V|^2 / m` of dense networks in the variables of (2.5), in a batch."""
    U = rng.standard_normal((samples, m, 3))
    Z = rng.standard_normal((samples, m, m)) if matrix is None else matrix(samples, m, rng)
    V = rng.standard_normal((samples, m, outputs))
    H = Z / math.sqrt(m)
    y = np.reshape(y, (6, outputs))
    for step in range(steps + 1):
        b = H.transpose(0, 2, 1) @ V
        lam = U.transpose(0, 2, 1) @ b / m
        if step == steps:
            return lam, np.sum(V**2, axis=(1, 2)) / m
        xi = np.einsum("nd,rno->rdo", X, np.einsum("nd,rdo->rno", X, lam) - y) / 6
        f0 = U @ xi
        U, H, V = (
            U - tau * b @ xi.transpose(0, 2, 1),
            H - tau / m * V @ f0.transpose(0, 2, 1),
            V - tau * H @ f0,
        )
    return None


def haar(samples, m, rng):
    q, r = np.linalg.qr(rng.standard_normal((samples, m, m)))
    return math.sqrt(m) * q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]


def uniform(samples, m, rng):
    return rng.uniform(-math.sqrt(3), math.sqrt(3), (samples, m, m))


def same_law(ours, theirs):
    """Two-sample Kolmogorov-Smirnov test."""
    assert stats.ks_2samp(ours, theirs).pvalue > ALPHA


@pytest.mark.parametrize(("m", "steps"), [(1, 2), (2, 6), (3, 8), (4, 8), (7, 8), (20, 8)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_law_of_lock_step_networks(m, steps, outputs):
    """n = 2000 against 4000 dense networks: each coordinate, a combination, and |V|^2/m."""
    y = Y if outputs == 1 else np.stack([Y, Y[::-1]], axis=1)
    network = LinearNetwork(3, width=m, out_features=outputs)
    runs = train_replicates(
        network,
        EmpiricalData(X, y),
        replicates=2000,
        step_size=0.03,
        steps=steps,
        seed=1,
        record=[steps],
    )
    lam, v = naive_final(m, steps, 0.03, 4000, np.random.default_rng(2), outputs, y=y)
    kept = ~runs.diverged
    ours = runs.predictor[:, 0].reshape(2000, 3, outputs)
    assert kept.all()
    for i in range(3):
        for j in range(outputs):
            same_law(ours[:, i, j], lam[:, i, j])
    same_law(ours[:, 0, 0] * ours[:, 1, -1], lam[:, 0, 0] * lam[:, 1, -1])
    same_law(runs.v_square[:, 0], v)


@pytest.mark.parametrize("kind", ["gaussian", "haar", "uniform"])
def test_law_of_single_networks(kind):
    """n = 600 trainings on demand against 4000 dense ones, at width 4."""
    matrices, matrix = {
        "gaussian": ("gaussian", None),
        "haar": ("haar", haar),
        "uniform": (Uniform(), uniform),
    }[kind]
    network = LinearNetwork(3, width=4, matrices=matrices)
    ours = [train(network, DATA, step_size=0.05, steps=8, seed=s).predictor[-1] for s in range(600)]
    lam, _ = naive_final(4, 8, 0.05, 4000, np.random.default_rng(3), matrix=matrix)
    for i in range(3):
        same_law(np.array(ours)[:, i], lam[:, i, 0])


def test_law_of_deep_replicates():
    """n = 400: replicates without an explicit form run one by one; law of |predictor|."""
    network = LinearNetwork(3, width=5, matrices="haar")
    runs = train_replicates(network, DATA, replicates=400, step_size=0.05, steps=6, seed=1)
    lam, _ = naive_final(5, 6, 0.05, 4000, np.random.default_rng(4), matrix=haar)
    same_law(np.linalg.norm(runs.predictor[:, -1], axis=1), np.linalg.norm(lam[:, :, 0], axis=1))


SETTINGS = {
    "gaussian": (LinearNetwork(3, width=50), DATA, {}),
    "population": (LinearNetwork(3, width=50), GaussianData(np.eye(3), np.ones(3)), {}),
    "momentum": (LinearNetwork(3, width=50), DATA, {"momentum": 0.8}),
    "outputs": (
        LinearNetwork(3, width=50, out_features=2),
        EmpiricalData(X, np.stack([Y, -Y], axis=1)),
        {},
    ),
    "logistic": (LinearNetwork(3, width=50), EmpiricalData(X, np.sign(Y)), {"loss": "logistic"}),
    "batches": (LinearNetwork(3, width=50), MiniBatches(X, Y, 2, seed=0), {}),
    "generator": (LinearNetwork(3, width=50), "generator", {}),
    "deep": (LinearNetwork(3, hidden=2, width=50), DATA, {}),
    "two layers": (LinearNetwork(3, hidden=0, width=50), DATA, {}),
    "ntk": (LinearNetwork(3, width=math.inf, parametrization="ntk"), DATA, {}),
}


def run_setting(name, replicates, n_jobs=1):
    network, data, options = SETTINGS[name]
    if data == "generator":
        data = (EmpiricalData(X[k % 3 :], Y[k % 3 :]) for k in range(21))
    return train_replicates(
        network,
        data,
        replicates=replicates,
        step_size=0.05,
        steps=20,
        seed=3,
        n_jobs=n_jobs,
        **options,
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_alone_or_in_a_batch(name):
    together = run_setting(name, 9)
    alone = run_setting(name, [7])
    pair = run_setting(name, [8, 2])
    assert np.array_equal(together.predictor[7], alone.predictor[0])
    assert np.array_equal(together.predictor[[8, 2]], pair.predictor)
    assert np.array_equal(together.loss[7], alone.loss[0])
    assert len({tuple(p) for p in together.predictor[:, -1].reshape(9, -1)}) == 9


@pytest.mark.parametrize("name", ["gaussian", "logistic", "deep"])
def test_any_number_of_processes(name):
    one, two = run_setting(name, 70), run_setting(name, 70, n_jobs=2)
    assert np.array_equal(one.predictor, two.predictor)
    assert np.array_equal(one.loss, two.loss)
    assert np.array_equal(one.u_square, two.u_square)


@pytest.mark.parametrize("parametrization", ["mup", "ntk", "standard", "integrable"])
def test_one_network_of_the_lock_step(parametrization):
    """The recursion (2.10) on a network's own band, by hand."""
    network = LinearNetwork(3, width=9, parametrization=parametrization, scale=1.3)
    limit = explicit_limit(network, DATA, step_size=0.02, steps=15, seed=5, size=20)
    assert limit.exact
    start = explicit_limit(network, DATA, step_size=0.02, steps=0, seed=5, size=20)
    s, g, c = network.scales.output, network.scales.gains[0], network.scales.steps
    Z = band_matrix(network, 20, seed=5)
    np.testing.assert_allclose(start.Lambda, g * Z)
    A, B, H = start.A, start.B, g * Z
    for k in range(16):
        lam = s * A.T @ H.T @ B
        np.testing.assert_allclose(limit.predictor[k], lam, atol=1e-12)
        xi = 0.02 * s * X.T @ (X @ lam - Y) / 6
        A, H, B = (
            A - c[0] * np.outer(H.T @ B, xi),
            H - c[1] * np.outer(B, A @ xi),
            B - c[2] * H @ A @ xi,
        )


def test_band_matrix_is_the_document_s():
    band = band_matrix(LinearNetwork(3), 8)
    for i in range(8):
        for j in range(8):
            assert band[i, j] == float(i + 3 == j or j + 1 == i)


def test_longer_bands_continue():
    for m in (5, 30, 10**9):
        network = LinearNetwork(3, width=m, out_features=2)
        short, long = band_matrix(network, 16, seed=1), band_matrix(network, 64, seed=1)
        np.testing.assert_array_equal(short, long[: short.shape[0], : short.shape[1]])


def test_band_has_the_singular_values_of_a_gaussian_matrix():
    """At full size the band is the matrix in other bases: its norm, n = 1000, against dense ones.

    Widths 4 and 6, three inputs, one output.
    """
    network = LinearNetwork(3, width=[6, 4])
    ours = [np.sum(band_matrix(network, 10, seed=s) ** 2) for s in range(1000)]
    rng = np.random.default_rng(0)
    theirs = np.sum(rng.standard_normal((1000, 4, 6)) ** 2, axis=(1, 2)) / 4
    same_law(ours, theirs)
    top = [np.linalg.norm(band_matrix(network, 10, seed=s), 2) for s in range(1000)]
    dense = np.linalg.norm(rng.standard_normal((1000, 4, 6)) / 2, 2, axis=(1, 2))
    same_law(top, dense)


def test_replicates_that_need_longer_bases_get_them():
    loose = train_replicates(
        LinearNetwork(3, width=30), DATA, replicates=40, step_size=0.1, steps=60, seed=0,
        tolerance=1e-4,
    )  # fmt: skip
    tight = train_replicates(
        LinearNetwork(3, width=30), DATA, replicates=40, step_size=0.1, steps=60, seed=0,
        tolerance=1e-14,
    )  # fmt: skip
    error = np.max(np.abs(loose.predictor - tight.predictor), axis=(1, 2))
    assert np.all(tight.error_estimate <= 1e-14)
    assert np.all(loose.error_estimate <= 1e-4)
    assert np.all(error < 1e-3)
    # Bases of all 30 vectors cut nothing.
    whole = explicit_limit(
        LinearNetwork(3, width=30), DATA, step_size=0.1, steps=60, seed=1, size=40
    )
    assert whole.exact


def test_divergence_of_some():
    runs = train_replicates(
        LinearNetwork(3, width=3), DATA, replicates=200, step_size=0.6, steps=60, seed=0
    )
    assert 0 < runs.diverged.sum() < 200
    gone = runs.diverged
    assert np.all(runs.stop_step[~gone] == 60)
    assert np.all(np.isfinite(runs.predictor[~gone]))
    for i in np.flatnonzero(gone):
        stop = runs.stop_step[i]
        assert np.all(np.isfinite(runs.predictor[i, :stop]))
        assert np.all(np.isnan(runs.predictor[i, stop:]))


def test_recorded_steps():
    whole = run_setting("gaussian", 5)
    some = train_replicates(
        SETTINGS["gaussian"][0], DATA, replicates=5, step_size=0.05, steps=20, seed=3,
        record=[20, 0, 7],
    )  # fmt: skip
    assert some.steps.tolist() == [0, 7, 20]
    assert np.array_equal(some.predictor, whole.predictor[:, [0, 7, 20]])
    assert len(some) == 5


def test_convergence_in_the_width():
    """Exponent -1 at the start and in the course of training, from 10 to 10^9."""
    rng = np.random.default_rng(1)
    data = EmpiricalData(rng.standard_normal((4, 6)) / 2, rng.standard_normal(4))
    result = width_convergence(
        LinearNetwork(6),
        data,
        widths=[10**k for k in range(1, 10)],
        replicates=300,
        step_size=0.05,
        steps=40,
        seed=0,
        record=[0, 10, 40],
    )
    for exponent in result.exponents:
        assert abs(exponent.value + 1.0) < 0.05
    assert result.mean_square.shape == (9, 3)
    # Exactly d / m at the start; a mean of 300 replicates, 5 standard errors.
    errors = (result.mean_square[:, 0] - 6.0 / result.widths) / result.standard_error[:, 0]
    assert np.max(np.abs(errors)) < 5.0


def test_convergence_needs_a_limit():
    network = LinearNetwork(3)
    options = {"replicates": 3, "steps": 60, "seed": 0}
    with pytest.raises(ValueError, match="`step_size` must let the limit converge"):
        width_convergence(network, DATA, widths=[10, 100], step_size=30.0, **options)
    with pytest.raises(ValueError, match="`widths` must be increasing"):
        width_convergence(network, DATA, widths=[100, 10], step_size=0.05, **options)
    ntk = LinearNetwork(3, parametrization="ntk")
    with pytest.raises(ValueError, match="`network` must have a limit that is not random"):
        width_convergence(ntk, DATA, widths=[10, 100], step_size=0.05, **options)
