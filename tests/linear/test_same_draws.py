"""Networks sampled on demand, against plain gradient descent on the entries they turn out to have.

After training, all weights of the start are read; descent on these arrays must give the same
numbers. Nothing here is a statistical test.
"""

import math

import numpy as np
import pytest

from scalinglimits.laws import Normal, Rademacher, Uniform
from scalinglimits.linear import (
    EmpiricalData,
    LinearNetwork,
    MiniBatches,
    huber,
    logistic,
    train,
)

from .naive import descend, program_form

D, N = 3, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Y = RNG.standard_normal(N)
Y2 = RNG.standard_normal((N, 2))
STEPS = 25


def square_gradients(X, y):
    return lambda k, lam: X.T @ (X @ lam - y) / len(X)


def compare(network, data, gradients, tau=0.05, momentum=0.0, loss="square", seed=3):
    sizes = {"layer_step_sizes": tau} if np.ndim(tau) else {"step_size": tau}
    run = train(
        network,
        data,
        **sizes,
        steps=STEPS,
        seed=seed,
        momentum=momentum,
        loss=loss,
        record_states=[0, 4],
    )
    assert run.status == "completed"
    count = int(min(network.widths))
    assert len(set(network.widths)) == 1
    weights = run.states[0].entries(count)
    history, states = descend(network, weights, gradients, tau, STEPS, momentum)
    np.testing.assert_allclose(run.predictor, history, rtol=0, atol=1e-9)
    return run, states


CASES = {
    "three layers": {},
    "two layers": {"hidden": 0},
    "five layers": {"hidden": 3},
    "width one": {"width": 1},
    "width two": {"width": 2, "hidden": 2},
    "haar": {"matrices": "haar", "hidden": 2},
    "dense": {"matrices": Normal()},
    "rademacher": {"matrices": Rademacher(), "hidden": 2},
    "vectors": {"vectors": Uniform()},
    "dense vectors": {"vectors": Rademacher(), "matrices": Uniform()},
    "residual": {"hidden": 3, "residual_scale": 0.5},
    "residual haar": {"hidden": 2, "residual_scale": -0.7, "matrices": "haar"},
    "scale": {"scale": 1.7},
    "ntk": {"parametrization": "ntk", "hidden": 2},
    "standard": {"parametrization": "standard", "hidden": 2},
    "integrable": {"parametrization": "integrable", "hidden": 2, "width": 4},
    "ntk residual": {"parametrization": "ntk", "hidden": 2, "residual_scale": 0.5},
}


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_predictor(case, outputs):
    arguments = {"width": 7, **CASES[case]}
    network = LinearNetwork(D, out_features=outputs, **arguments)
    y = Y if outputs == 1 else Y2
    compare(network, EmpiricalData(X, y), square_gradients(X, y), tau=0.02)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_momentum(momentum):
    network = LinearNetwork(D, hidden=2, width=6)
    compare(network, EmpiricalData(X, Y), square_gradients(X, Y), tau=0.02, momentum=momentum)


def test_layer_step_sizes():
    network = LinearNetwork(D, hidden=2, width=6)
    sizes = [0.01, 0.0, 0.05, 0.02]
    run, _ = compare(network, EmpiricalData(X, Y), square_gradients(X, Y), tau=sizes)
    assert np.all(run.w_square[:, 0] == 0.0)
    assert run.w_square[-1, 1] > 0.0


def test_mini_batches():
    batches = MiniBatches(X, Y, batch_size=2, seed=1)
    chosen = [batch for batch, _ in zip(batches, range(STEPS + 1), strict=False)]

    def gradients(k, lam):
        return square_gradients(chosen[k].X, chosen[k].y)(k, lam)

    run, _ = compare(LinearNetwork(D, width=6), batches, gradients)
    residual = run.predictor @ X.T - Y
    np.testing.assert_allclose(run.loss, 0.5 * np.mean(residual**2, axis=1), rtol=1e-12)


@pytest.mark.parametrize("kind", ["sequence", "generator"])
def test_sequence_of_measures(kind):
    measures = [EmpiricalData(X[k % 4 :], Y[k % 4 :]) for k in range(STEPS)]

    def gradients(k, lam):
        measure = measures[min(k, STEPS - 1)]
        return square_gradients(measure.X, measure.y)(k, lam)

    data = measures if kind == "sequence" else iter(measures)
    compare(LinearNetwork(D, width=6), data, gradients)


@pytest.mark.parametrize(
    ("loss", "slope"),
    [
        ("logistic", lambda p, y: -y / (1 + np.exp(y * p))),
        (logistic(), lambda p, y: -y / (1 + np.exp(y * p))),
        ("huber", lambda p, y: np.clip(p - y, -1, 1)),
        (huber(0.3), lambda p, y: np.clip(p - y, -0.3, 0.3)),
        (lambda p, y: (p - y) ** 3, lambda p, y: (p - y) ** 3),
    ],
)
def test_losses(loss, slope):
    y = np.sign(Y)
    compare(
        LinearNetwork(D, width=6),
        EmpiricalData(X, y),
        lambda k, lam: X.T @ slope(X @ lam, y) / N,
        loss=loss,
    )


@pytest.mark.parametrize("matrices", ["gaussian", "haar", Uniform()])
def test_weights(matrices):
    """Entries of the trained weights at a recorded step, and their norms."""
    m = 6
    network = LinearNetwork(D, width=m, hidden=2, matrices=matrices)
    run, states = compare(network, EmpiricalData(X, Y), square_gradients(X, Y))
    for step, state in ((4, run.states[4]), (STEPS, run.state)):
        u, w1, w2, v = states[step]
        read = state.entries(m)
        np.testing.assert_allclose(read.U, u, atol=1e-9)
        np.testing.assert_allclose(read.V, m * v, atol=1e-9)
        for i, w in enumerate((w1, w2)):
            np.testing.assert_allclose(read.W[i], m * (w - states[0][i + 1]), atol=1e-8)
            assert run.w_square[step, i] == pytest.approx(np.mean(read.W[i] ** 2))
        assert run.u_square[step] == pytest.approx(np.sum(u**2) / m)
        assert run.v_square[step] == pytest.approx(np.sum((m * v) ** 2) / m)


def test_alignment():
    """Cosines between what comes forward and backward, from the entries."""
    m = 6
    network = LinearNetwork(D, width=m, hidden=2)
    run, states = compare(network, EmpiricalData(X, Y), square_gradients(X, Y))
    for step in (0, STEPS):
        u, w1, w2, v = states[step]
        xi = square_gradients(X, Y)(step, run.predictor[step])
        forward = [u @ xi, w1 @ u @ xi, w2 @ w1 @ u @ xi]
        backward = [w1.T @ w2.T @ v, w2.T @ v, v]
        for layer, (f, b) in enumerate(zip(forward, backward, strict=True)):
            cosine = f @ b / np.linalg.norm(f) / np.linalg.norm(b)
            assert run.alignment[step, layer] == pytest.approx(cosine, abs=1e-9)


def test_unequal_widths():
    """Layers of 4, 7 and 5 neurons; entries are read layer by layer."""
    network = LinearNetwork(D, hidden=2, width=[4, 7, 5], matrices=Normal())
    run = train(
        network, EmpiricalData(X, Y), step_size=0.02, steps=STEPS, seed=1, record_states=[0]
    )
    start = run.states[0]
    rows = [space.rows(int(space.width)) for space in start.spaces]
    weights = type(start.entries(1))(
        rows[0][:, : start.U.shape[0]] @ start.U,
        (),
        tuple(z.entries(*map(int, z.shape)) for z in start.matrices),
        rows[2][:, : start.V.shape[0]] @ start.V,
    )
    history, _ = descend(network, weights, square_gradients(X, Y), 0.02, STEPS)
    np.testing.assert_allclose(run.predictor, history, atol=1e-10)


@pytest.mark.parametrize("parametrization", ["mup", "ntk", "standard", "integrable"])
def test_unequal_widths_on_demand(parametrization):
    network = LinearNetwork(D, hidden=2, width=[4, 7, 5], parametrization=parametrization)
    run = train(
        network, EmpiricalData(X, Y), step_size=0.02, steps=STEPS, seed=1, record_states=[0]
    )
    start = run.states[0]
    rows = [space.rows(int(space.width)) for space in start.spaces]
    weights = type(start.entries(1))(
        rows[0][:, : start.U.shape[0]] @ start.U,
        (),
        tuple(z.entries(*map(int, z.shape)) for z in start.matrices),
        rows[2][:, : start.V.shape[0]] @ start.V,
    )
    history, _ = descend(network, weights, square_gradients(X, Y), 0.02, STEPS)
    np.testing.assert_allclose(run.predictor, history, atol=1e-9)


def test_same_seed_same_network():
    network = LinearNetwork(D, width=10**6, hidden=2)
    data = EmpiricalData(X, Y)
    runs = [train(network, data, step_size=0.05, steps=9, seed=s) for s in (5, 5, 6)]
    assert np.array_equal(runs[0].predictor, runs[1].predictor)
    assert not np.array_equal(runs[0].predictor, runs[2].predictor)


def test_program_form_of_the_document():
    """Deviations and step sizes of (2.1) and the recursion below it."""
    network = LinearNetwork(D, width=100)

    class One:
        U, Z, V = 1.0, (1.0,), 1.0

    stored, _, rates = program_form(network, One, 0.2)
    assert stored == pytest.approx([1.0, 0.1, 0.01])
    assert rates == pytest.approx([20.0, 0.2, 0.002])
    assert math.isclose(network.scales.output, 1.0)
