"""The infinite-width limit: against dense recursions, and what it is known to do."""

import math

import numpy as np
import pytest

from scalinglimits.laws import Rademacher
from scalinglimits.linear import (
    EmpiricalData,
    GaussianData,
    LinearNetwork,
    explicit_limit,
    gradient_flow,
    train,
)


def notebook_data(seed=2):
    """The setting of the document's public code: d = 20, n = 15."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((15, 20)) / np.sqrt(20)
    return EmpiricalData(X, X @ rng.standard_normal(20)), 0.02 * 15


def dense_recursion(data, size, tau, steps, scale=1.0):
    """L, (2.10), with arrays of a given size."""
    d, n = data.in_features, len(data)
    hidden = np.zeros((size, size))
    index = np.arange(size - 1)
    hidden[index + 1, index] = 1.0
    index = np.arange(size - d)
    hidden[index, index + d] = 1.0
    A, B, history = np.eye(size, d), np.eye(size, 1)[:, 0], []
    for _ in range(steps + 1):
        back = hidden.T @ B
        lam = scale * A.T @ back
        history.append(lam)
        xi = scale * data.X.T @ (data.X @ lam - data.y) / n
        f0 = A @ xi
        f1 = hidden @ f0
        A -= tau * np.outer(back, xi)
        hidden -= tau * np.outer(B, f0)
        B = B - tau * f1
    return np.array(history)


def test_dense_recursion():
    data, tau = notebook_data()
    run = train(LinearNetwork(20), data, step_size=tau, steps=1000)
    dense = dense_recursion(data, 400, tau, 1000)
    assert np.max(np.abs(run.predictor - dense)) < 1e-9
    assert max(run.dimensions[-1]) < 80


def test_scale_in_dense_recursion():
    data, tau = notebook_data()
    run = train(LinearNetwork(20, scale=0.5), data, step_size=tau, steps=100)
    dense = dense_recursion(data, 300, tau, 100, scale=0.5)
    np.testing.assert_allclose(run.predictor, dense, atol=1e-10)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize(
    ("arguments", "factor"),
    [
        ({}, 100),
        ({"hidden": 3}, 100),
        # Images are queries of the transpose, so that few products drop anything.
        ({"hidden": 2, "matrices": "haar"}, 10**8),
        ({"hidden": 3, "residual_scale": 0.5}, 100),
    ],
    ids=["gaussian", "deep", "haar", "residual"],
)
def test_error_estimate(arguments, factor, tolerance):
    """The estimate covers the true error, and is not wildly larger."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4, 5))
    data = EmpiricalData(X, X @ rng.standard_normal(5))
    network = LinearNetwork(5, **arguments)
    exact = train(network, data, step_size=0.02, steps=60, tolerance=1e-14)
    run = train(network, data, step_size=0.02, steps=60, tolerance=tolerance)
    error = np.max(np.linalg.norm(run.predictor - exact.predictor, axis=1))
    estimate = np.max(run.error_estimate)
    assert 0.0 < error < 2 * estimate
    assert estimate < factor * error


@pytest.mark.parametrize("tolerance", [1e-8, 1e-10])
def test_error_estimate_where_steps_overshoot(tolerance):
    """For a while errors grow with the curvature, by four orders; the estimate sees most of it."""
    data, tau = notebook_data()
    network = LinearNetwork(20, 3)
    exact = train(network, data, step_size=tau, steps=250, tolerance=1e-14)
    run = train(network, data, step_size=tau, steps=250, tolerance=tolerance)
    error = np.max(np.linalg.norm(run.predictor - exact.predictor, axis=1))
    estimate = np.max(run.error_estimate)
    assert error > 1000 * tolerance
    assert error / 30 < estimate < 30 * error


@pytest.mark.parametrize("outputs", [1, 2])
def test_explicit_form(outputs):
    rng = np.random.default_rng(0)
    y = rng.standard_normal((6, outputs))
    data = EmpiricalData(rng.standard_normal((6, 3)), y)
    network = LinearNetwork(3, out_features=outputs)
    limit = explicit_limit(network, data, step_size=0.05, steps=30)
    run = train(network, data, step_size=0.05, steps=30, tolerance=1e-14)
    assert limit.exact
    np.testing.assert_allclose(limit.predictor, run.predictor, atol=1e-12)
    np.testing.assert_allclose(limit.loss, run.loss, atol=1e-12)
    assert np.sum(limit.A**2) == pytest.approx(run.u_square[-1], abs=1e-11)
    assert np.sum(limit.G**2) == pytest.approx(run.w_square[-1, 0], abs=1e-11)
    assert np.sum(limit.B**2) == pytest.approx(run.v_square[-1], abs=1e-11)
    whole = (limit.Lambda + limit.G) @ limit.A
    np.testing.assert_allclose(whole.T @ limit.B, limit.predictor[-1], atol=1e-12)


def test_explicit_form_adapts_its_size():
    data, tau = notebook_data()
    limit = explicit_limit(LinearNetwork(20), data, step_size=tau, steps=1000)
    dense = dense_recursion(data, 400, tau, 1000)
    assert not limit.exact
    assert np.max(np.abs(limit.predictor - dense)) < 1e-11


def test_cut_error_estimate():
    """The error of a short basis is about the square of the coordinates at its end."""
    data, tau = notebook_data()
    exact = explicit_limit(LinearNetwork(20), data, step_size=tau, steps=500, size=400)
    for size in (60, 80, 100, 120):
        cut = explicit_limit(LinearNetwork(20), data, step_size=tau, steps=500, size=size)
        error = np.max(np.linalg.norm(cut.predictor - exact.predictor, axis=1))
        assert 0.1 * error < cut.error_estimate < 1000 * error


def test_only_the_rows_of_the_document_move():
    rng = np.random.default_rng(0)
    data = EmpiricalData(rng.standard_normal((6, 3)), rng.standard_normal(6))
    longer = explicit_limit(LinearNetwork(3), data, step_size=0.05, steps=5, size=60)
    exact = explicit_limit(LinearNetwork(3), data, step_size=0.05, steps=5)
    k = len(exact.B)
    assert np.all(longer.B[k:] == 0.0)
    assert np.all(longer.A[k:] == 0.0)
    assert np.any(longer.B[k - 1] != 0.0) or np.any(longer.A[k - 1] != 0.0)


def test_universality():
    """At infinite width the laws of the entries do not matter (L, remark iv)."""
    data, tau = notebook_data()
    plain = train(LinearNetwork(20), data, step_size=tau, steps=20)
    other = train(
        LinearNetwork(20, matrices=Rademacher(), vectors=Rademacher()),
        data,
        step_size=tau,
        steps=20,
        seed=0,
    )
    assert np.array_equal(plain.predictor, other.predictor)
    signs = train(
        LinearNetwork(20, vectors=Rademacher()), data, step_size=tau, steps=0, seed=0
    ).state.entries(50)
    assert set(np.unique(signs.V)) == {-1.0, 1.0}


def test_minimum_norm_at_an_exponential_rate():
    data, tau = notebook_data()
    run = train(LinearNetwork(20), data, step_size=tau, steps=2000)
    distance = np.linalg.norm(run.predictor - data.minimum_norm(), axis=1)
    rates = np.diff(np.log(distance[250:1251:250])) / 250
    np.testing.assert_allclose(rates, rates[0], rtol=0.01)
    assert rates[0] < -0.01
    assert distance[-1] < 1e-12


def test_large_scale_is_linear():
    """s -> infinity: lambda' = -(n + 2) s^2 int x (lambda^T x - y), up to order 1/s."""
    data, _ = notebook_data()
    H, g = data.X.T @ data.X / len(data), data.X.T @ data.y / len(data)
    steps, tau = 60, 0.2
    for hidden in (0, 1, 2):
        lam, linear = np.zeros(20), []
        for _ in range(steps + 1):
            linear.append(lam)
            lam = lam - tau * (H @ lam - g)
        errors = []
        for s in (10.0, 100.0, 1000.0):
            network = LinearNetwork(20, hidden, scale=s)
            run = train(network, data, step_size=tau / s**2 / (hidden + 2), steps=steps)
            errors.append(np.max(np.abs(run.predictor - linear)))
        assert errors[0] > 8 * errors[1] > 64 * errors[2]
        assert errors[2] < 1e-2


def test_small_scale_has_a_plateau():
    """s << 1: the loss stays near its start, then falls exponentially (L, Figure 2.2)."""
    data, _ = notebook_data()
    halves = []
    for s in (1.0, 0.1, 0.01):
        flow = gradient_flow(
            LinearNetwork(20, scale=s), data, t_end=math.inf, stop_at=1e-8, rtol=1e-6
        )
        share = flow.loss / flow.loss[0]
        assert np.all(np.diff(share) < 1e-12)
        plateau = flow.times[np.argmax(share < 0.9)]
        fall = flow.times[np.argmax(share < 0.1)] - plateau
        halves.append(plateau / fall)
    assert halves[0] < halves[1] < halves[2]
    assert halves[2] > 1.0


@pytest.mark.parametrize("freeze", ["V", "U"])
def test_two_layers_with_one_frozen_are_linear_regression(freeze):
    data, tau = notebook_data()
    H, g = data.X.T @ data.X / len(data), data.X.T @ data.y / len(data)
    sizes = [tau, 0.0] if freeze == "V" else [0.0, tau]
    run = train(LinearNetwork(20, hidden=0), data, layer_step_sizes=sizes, steps=50)
    lam = np.zeros(20)
    for k in range(51):
        np.testing.assert_allclose(run.predictor[k], lam, atol=1e-12)
        lam = lam - tau * (H @ lam - g)


def test_two_layers():
    """hidden = 0: U and V stay in the d + 1 directions they started from."""
    data, tau = notebook_data()
    run = train(LinearNetwork(20, hidden=0), data, step_size=tau, steps=50)
    U, V = np.eye(21, 20), np.eye(21)[20]
    for k in range(51):
        lam = U.T @ V
        np.testing.assert_allclose(run.predictor[k], lam, atol=1e-12)
        xi = data.X.T @ (data.X @ lam - data.y) / len(data)
        U, V = U - tau * np.outer(V, xi), V - tau * U @ xi


def test_residual_network_of_depth_one_is_a_shifted_matrix():
    """alpha large and step sizes rescaled: the residual network tends to the plain one."""
    data, tau = notebook_data()
    plain = train(LinearNetwork(20), data, step_size=tau, steps=20)
    alpha = 1e5
    network = LinearNetwork(20, residual_scale=alpha, scale=1 / alpha)
    run = train(network, data, step_size=tau, steps=20)
    np.testing.assert_allclose(run.predictor, plain.predictor, atol=1e-4)


def test_deep_residual_network():
    """Depth 32: the first step in closed form, and little time."""
    data, tau = notebook_data()
    n, alpha = 32, 32**-0.5
    network = LinearNetwork(20, hidden=n, residual_scale=alpha)
    run = train(network, data, step_size=tau, steps=10)
    growth = (1 + alpha**2) ** n
    kappa = 2 * growth + n * alpha**2 * (1 + alpha**2) ** (n - 1)
    g = data.X.T @ data.y / len(data)
    # To first order in the step; the next orders are small against it.
    tiny = train(network, data, step_size=1e-6, steps=1)
    np.testing.assert_allclose(tiny.predictor[1], 1e-6 * kappa * g, rtol=1e-3)
    assert run.loss[10] < run.loss[0]


def test_haar_limit_has_isometries():
    """Orthogonal matrices at infinite width: norms of the signals are kept at the start."""
    data, tau = notebook_data()
    run = train(LinearNetwork(20, hidden=2, matrices="haar"), data, step_size=tau, steps=30)
    plain = train(LinearNetwork(20, hidden=2), data, step_size=tau, steps=30)
    np.testing.assert_allclose(run.predictor[1], plain.predictor[1], atol=1e-12)
    assert np.max(np.abs(run.predictor[30] - plain.predictor[30])) > 1e-4


@pytest.mark.parametrize(("hidden", "matrices"), [(1, "haar"), (2, "haar"), (3, "gaussian")])
def test_wide_networks_are_near_the_limit(hidden, matrices):
    data, tau = notebook_data()
    limit = train(LinearNetwork(20, hidden, matrices=matrices), data, step_size=tau, steps=40)
    wide = train(
        LinearNetwork(20, hidden, width=10**14, matrices=matrices),
        data,
        step_size=tau,
        steps=40,
        seed=0,
    )
    assert 0.0 < np.max(np.abs(wide.predictor - limit.predictor)) < 1e-5
    assert np.max(np.abs(wide.v_square - limit.v_square)) < 1e-5


def test_relative_widths():
    """Infinite layers of unequal size are the limit of finite ones."""
    data, tau = notebook_data()
    ratios = [1.0, 4.0, 2.0]
    limit = train(
        LinearNetwork(20, 2, relative_widths=ratios), data, step_size=tau, steps=20
    ).predictor
    widths = [int(r * 10**14) for r in ratios]
    wide = train(LinearNetwork(20, 2, width=widths), data, step_size=tau, steps=20, seed=0)
    assert np.max(np.abs(wide.predictor - limit)) < 1e-5
    equal = train(LinearNetwork(20, 2), data, step_size=tau, steps=20).predictor
    assert np.max(np.abs(equal - limit)) > 1e-3


class TestParametrizations:
    """What the others lose."""

    @pytest.mark.parametrize("residual_scale", [None, 0.5])
    def test_ntk_limit(self, residual_scale):
        """Random start, then linear; a very wide network follows it from its own start."""
        data, _ = notebook_data()
        network = LinearNetwork(
            20, 3, width=10**14, parametrization="ntk", residual_scale=residual_scale
        )
        run = train(network, data, step_size=0.05, steps=40, seed=1)
        limit = train(network.with_width(math.inf), data, step_size=0.05, steps=40, seed=1)
        rate = {None: 5.0, 0.5: 2 * 1.25**3 + 3 * 0.25 * 1.25**2}[residual_scale]
        for history in (run.predictor, limit.predictor):
            lam = history[0]
            for k in range(41):
                np.testing.assert_allclose(history[k], lam, atol=1e-5)
                lam = lam - 0.05 * rate * data.X.T @ (data.X @ lam - data.y) / len(data)

    def test_ntk_start_is_standard_normal(self):
        """n = 4000 numbers; a bound of 5 standard deviations, alpha < 1e-6."""
        starts = np.array(
            [
                train(
                    LinearNetwork(40, parametrization="ntk", scale=2.0),
                    GaussianData(np.eye(40), np.ones(40)),
                    step_size=0.1,
                    steps=0,
                    seed=s,
                ).predictor[0]
                for s in range(100)
            ]
        )
        assert abs(np.var(starts) / 4.0 - 1.0) < 5 * math.sqrt(2 / 4000)

    def test_ntk_learns_no_features(self):
        """|U - U(0)| is of order m^-1/2: from m = 10^4 to 10^8 it falls a hundredfold."""
        data, _ = notebook_data()
        moved = []
        for m in (10**4, 10**8):
            network = LinearNetwork(20, width=m, parametrization="ntk")
            run = train(network, data, step_size=0.1, steps=30, seed=0, record_states=[0])
            start = run.states[0].U
            change = run.state.U.copy()
            change[: len(start)] -= start
            moved.append(np.linalg.norm(change))
        assert 50 < moved[0] / moved[1] < 200

    def test_mup_learns_features(self):
        data, tau = notebook_data()
        run = train(LinearNetwork(20), data, step_size=tau, steps=300, record_states=[0])
        change = run.state.U.copy()
        change[: len(run.states[0].U)] -= run.states[0].U
        assert np.linalg.norm(change) > 0.5

    def test_standard_diverges_at_the_first_step(self):
        data, tau = notebook_data()
        network = LinearNetwork(20, parametrization="standard")
        run = train(network, data, step_size=tau, steps=10, seed=0)
        assert run.status == "diverged"
        assert run.stop_step == 1
        assert run.predictor.shape == (1, 20)
        wide = train(network.with_width(10**8), data, step_size=tau, steps=10, seed=0)
        assert wide.diverged
        assert len(wide.predictor) == wide.stop_step < 10
        assert wide.state is None
        assert np.all(np.isfinite(wide.predictor))

    def test_standard_with_small_steps_is_a_kernel_regime(self):
        """A step of c/m moves all layers but the first: lambda' = -(n + 1) xi."""
        data, _ = notebook_data()
        m = 10**12
        network = LinearNetwork(20, 2, width=m, parametrization="standard")
        run = train(network, data, step_size=0.1 / m, steps=20, seed=0)
        lam = run.predictor[0]
        for k in range(21):
            np.testing.assert_allclose(run.predictor[k], lam, atol=1e-4)
            lam = lam - 0.1 * 3 * data.X.T @ (data.X @ lam - data.y) / len(data)

    @pytest.mark.parametrize("hidden", [2, 3])
    def test_integrable_is_stuck(self, hidden):
        data, tau = notebook_data()
        network = LinearNetwork(20, hidden, parametrization="integrable")
        run = train(network, data, step_size=tau, steps=50)
        assert np.all(run.predictor == 0.0)
        assert np.all(run.w_square == 0.0)
        wide = train(network.with_width(10**8), data, step_size=tau, steps=50, seed=0)
        assert np.max(np.abs(wide.predictor)) < 1e-3

    def test_integrable_with_one_matrix_learns_without_randomness(self):
        """One hidden matrix still moves, since both its sides do not vanish."""
        data, tau = notebook_data()
        network = LinearNetwork(20, parametrization="integrable")
        run = train(network, data, step_size=tau, steps=1000)
        np.testing.assert_allclose(run.predictor[-1], data.minimum_norm(), atol=1e-2)
        assert run.dimensions[-1].tolist() == [20, 1]
        wide = train(network.with_width(10**14), data, step_size=tau, steps=100, seed=0)
        assert np.max(np.abs(wide.predictor - run.predictor[:101])) < 1e-4


def test_entries_at_infinite_width():
    """U, V and W at the first neurons are combinations of independent Gaussians (L, 2.13)."""
    data, tau = notebook_data()
    run = train(LinearNetwork(20), data, step_size=tau, steps=100, seed=4, record_states=[0])
    first, last = run.states[0].entries(2000), run.state.entries(2000)
    assert first.U.shape == (2000, 20)
    assert np.all(first.W[0] == 0.0)
    # Means of 2000 squares; relative deviation of each sqrt(2/2000), a bound of 5 of them.
    margin = 5 * math.sqrt(2 / 2000)
    assert np.mean(first.V**2) == pytest.approx(1.0, rel=margin)
    assert np.mean(last.V**2) == pytest.approx(run.v_square[-1], rel=margin)
    assert last.Z[0].shape == (2000, 2000)
    again = run.state.entries(10)
    np.testing.assert_allclose(again.V, last.V[:10], rtol=1e-12)


def test_divergence_is_reported():
    data, _ = notebook_data()
    run = train(LinearNetwork(20), data, step_size=50.0, steps=200, record_states=[0])
    assert run.status == "diverged"
    assert run.stop_step == len(run.predictor) == len(run.loss) < 200
    assert np.all(np.isfinite(run.predictor))
    assert np.all(np.isfinite(run.loss))
    assert run.state is None
    assert run.states[0].U.shape[1] == 20


@pytest.mark.parametrize("rule", ["number", "function"])
def test_early_stop(rule):
    data, tau = notebook_data()
    whole = train(LinearNetwork(20), data, step_size=tau, steps=300)
    stop = 1e-3 if rule == "number" else lambda step, predictor, loss: loss <= 1e-3
    run = train(LinearNetwork(20), data, step_size=tau, steps=300, stop_at=stop)
    assert run.status == "stopped"
    assert run.stop_step == np.argmax(whole.loss <= 1e-3)
    np.testing.assert_array_equal(run.predictor, whole.predictor[: run.stop_step + 1])


def test_a_run_that_oscillates_for_ever_ends_in_a_record():
    data = GaussianData(np.eye(1), np.array([4.0]))
    run = train(LinearNetwork(1), data, step_size=0.2, steps=700)
    assert run.status == "completed"
    assert np.isfinite(run.predictor).all()
    # Nothing bounds the error of a chaotic run: the estimate may be infinite, but is a number.
    assert not np.isnan(run.error_estimate).any()


def test_error_estimate_stays_small_after_convergence():
    X = np.random.default_rng(0).standard_normal((30, 3))
    data = EmpiricalData(X, X @ [1.0, 0.5, -1.0])
    run = train(LinearNetwork(3), data, step_size=0.1, steps=4000)
    assert run.loss[-1] < 1e-25
    assert run.error_estimate.max() < 1e-6
