"""Measures and losses: gradients by differences, integrals by samples, bad input."""

import math
import pickle

import numpy as np
import pytest

from scalinglimits.linear import (
    EmpiricalData,
    GaussianData,
    LinearNetwork,
    Loss,
    MiniBatches,
    huber,
    logistic,
    square,
    train,
)
from scalinglimits.linear.losses import resolve_loss

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 3))
Y = RNG.standard_normal(7)
Y2 = RNG.standard_normal((7, 2))
COVARIANCE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.7]])
QUARTIC = Loss(lambda p, y: (p - y) ** 3, lambda p, y: (p - y) ** 4 / 4, separable=True)
LOSSES = {"square": square(), "logistic": logistic(), "huber": huber(0.7), "quartic": QUARTIC}
MEASURES = {
    "many samples": EmpiricalData(X, Y),
    "few samples": EmpiricalData(X[:2], Y[:2]),
    "weights": EmpiricalData(X, Y, weights=np.arange(7.0)),
    "outputs": EmpiricalData(X, Y2),
    "population": GaussianData(COVARIANCE, [0.3, -1.0, 0.5], noise=0.4),
    "population, outputs": GaussianData(COVARIANCE, RNG.standard_normal((3, 2)), noise=0.4),
    "no noise": GaussianData(COVARIANCE, [0.3, -1.0, 0.5]),
}


def predictor_for(measure, seed=1):
    shape = (3,) if measure.out_features == 1 else (3, measure.out_features)
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MEASURES)
def test_gradient_is_the_derivative_of_the_loss(name, loss):
    measure, loss = MEASURES[name], LOSSES[loss]
    at = predictor_for(measure)
    _, gradient = measure.evaluate(at, loss)
    step = 1e-5
    corners = loss.name.startswith("huber") and isinstance(measure, GaussianData)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        difference = measure.evaluate(up, loss)[0] - measure.evaluate(down, loss)[0]
        assert difference / (2 * step) == pytest.approx(
            gradient[index], abs=3e-2 if corners else 1e-7
        )


@pytest.mark.parametrize("name", MEASURES)
def test_square_loss_takes_the_same_values_either_way(name):
    """In closed form and through the functions of a loss."""
    measure = MEASURES[name]
    at = predictor_for(measure)
    plain = Loss(lambda p, y: p - y, lambda p, y: (p - y) ** 2 / 2, separable=True)
    for a, b in zip(measure.evaluate(at, square()), measure.evaluate(at, plain), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MEASURES)
def test_many_predictors(name, loss):
    measure = MEASURES[name]
    several = np.stack([predictor_for(measure, seed) for seed in range(4)])
    values, gradients = measure.evaluate_many(several, LOSSES[loss])
    for i, predictor in enumerate(several):
        value, gradient = measure.evaluate(predictor, LOSSES[loss])
        assert values[i] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(gradients[i], gradient, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("loss", "margin"), [("logistic", 0), ("huber", 1e-3), ("quartic", 0)])
def test_quadrature(loss, margin):
    """n = 10^6 samples, a bound of 5 standard errors (alpha < 1e-6 each)."""
    measure, loss = MEASURES["population"], LOSSES[loss]
    at = np.array([0.4, 0.2, -0.8])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10**6, 3)) @ np.linalg.cholesky(COVARIANCE).T
    y = x @ measure.target + 0.4 * rng.standard_normal(len(x))
    value, gradient = measure.evaluate(at, loss)
    samples = np.column_stack([loss.value(x @ at, y), x * loss.derivative(x @ at, y)[:, None]])
    error = np.abs(samples.mean(axis=0) - [value, *gradient])
    assert np.all(error < 5 * samples.std(axis=0) / math.sqrt(len(x)) + margin)


@pytest.mark.parametrize("at", [np.zeros(3), np.array([0.3, -1.0, 0.5]), np.full(3, 1e-9)])
def test_quadrature_where_it_degenerates(at):
    """Prediction zero, or equal to the target, or tiny."""
    measure = MEASURES["no noise"]
    plain = Loss(lambda p, y: p - y, lambda p, y: (p - y) ** 2 / 2)
    for a, b in zip(measure.evaluate(at, square()), measure.evaluate(at, plain), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    silent = GaussianData(COVARIANCE, np.zeros(3))
    np.testing.assert_allclose(silent.evaluate(at, plain)[1], COVARIANCE @ at, atol=1e-12)


def test_logistic_quadrature_against_adaptive_integration():
    from scipy.integrate import quad

    measure = GaussianData([[4.0]], [0.5], noise=0.0, nodes=100)
    value, gradient = measure.evaluate(np.array([0.8]), logistic())

    def density(x):
        return math.exp(-x * x / 8) / math.sqrt(8 * math.pi)

    expected = quad(lambda x: math.log1p(math.exp(-0.4 * x * x)) * density(x), -40, 40)[0]
    slope = quad(lambda x: -0.5 * x * x / (1 + math.exp(0.4 * x * x)) * density(x), -40, 40)[0]
    assert value == pytest.approx(expected, abs=1e-7)
    assert gradient[0] == pytest.approx(slope, abs=1e-7)


def test_minimum_norm():
    few = MEASURES["few samples"]
    np.testing.assert_allclose(few.minimum_norm(), np.linalg.pinv(X[:2]) @ Y[:2], atol=1e-12)
    singular = GaussianData(np.diag([1.0, 0.0]), [3.0, 4.0])
    np.testing.assert_allclose(singular.minimum_norm(), [3.0, 0.0], atol=1e-12)


def test_sum_over_samples():
    total = EmpiricalData(X, Y, weights=np.ones(7))
    mean = EmpiricalData(X, Y)
    at = predictor_for(mean)
    assert total.evaluate(at, square())[0] == pytest.approx(7 * mean.evaluate(at, square())[0])


def test_loss_without_a_value():
    run = train(
        LinearNetwork(3), EmpiricalData(X, Y), step_size=0.1, steps=3, loss=lambda p, y: p - y
    )
    assert np.all(np.isnan(run.loss))


def test_measures_are_pickled_with_their_losses():
    measure, loss = pickle.loads(pickle.dumps((EmpiricalData(X, Y), square())))
    assert loss.is_square
    at = predictor_for(measure)
    assert measure.evaluate(at, loss)[0] == EmpiricalData(X, Y).evaluate(at, square())[0]


def test_data_are_copied():
    own = X.copy()
    measure = EmpiricalData(own, Y)
    own[:] = 0.0
    assert np.array_equal(measure.X, X)


def test_mini_batches():
    batches = MiniBatches(X, Y, batch_size=3, seed=0)
    first = [batch.y.tolist() for batch, _ in zip(batches, range(4), strict=False)]
    again = [batch.y.tolist() for batch, _ in zip(batches, range(4), strict=False)]
    assert first == again
    assert len({*first[0], *first[1]}) == 6
    assert [*first[0], *first[1]] != [*first[2], *first[3]]
    other = [batch.y.tolist() for batch, _ in zip(MiniBatches(X, Y, 3, 1), range(4), strict=False)]
    assert first != other


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: EmpiricalData(X[0], Y), ValueError, "`X` must have 2 axes"),
        (lambda: EmpiricalData(X, Y[:-1]), ValueError, "`y` must have one row for each of the 7"),
        (lambda: EmpiricalData(X, Y[:, None, None]), ValueError, "`y` must have 1 or 2 axes"),
        (lambda: EmpiricalData(X * np.nan, Y), ValueError, "`X` must be finite"),
        (lambda: EmpiricalData(X, Y * np.inf), ValueError, "`y` must be finite"),
        (lambda: EmpiricalData(X[:0], Y[:0]), ValueError, "`X` must have at least one row"),
        (lambda: EmpiricalData([["a"]], [1.0]), TypeError, "`X` must be an array of real numbers"),
        (lambda: EmpiricalData(X, Y, weights=-np.ones(7)), ValueError, "`weights` must be 7 non-"),
        (lambda: EmpiricalData(X, Y, weights=np.ones(6)), ValueError, "`weights` must be 7 non-"),
        (lambda: GaussianData(X, Y[:3]), ValueError, "`covariance` must be square"),
        (lambda: GaussianData(COVARIANCE, Y), ValueError, "`target` must have 3 rows"),
        (
            lambda: GaussianData(COVARIANCE + np.triu(np.ones(3), 1), Y[:3]),
            ValueError,
            "`covariance` must be symmetric and positive semidefinite",
        ),
        (lambda: GaussianData(-np.eye(3), Y[:3]), ValueError, "`covariance` must be symmetric and"),
        (
            lambda: GaussianData(np.eye(3), Y[:3], noise=-1),
            ValueError,
            "`noise` must be at least 0",
        ),
        (lambda: GaussianData(np.eye(3), Y[:3], nodes=1), ValueError, "`nodes` must be at least 2"),
        (lambda: MiniBatches(X, Y, 8, 0), ValueError, "`batch_size` must be at most the number"),
        (lambda: MiniBatches(X, Y, 0, 0), ValueError, "`batch_size` must be at least 1"),
        (lambda: MiniBatches(X, Y, 2, None), TypeError, "`seed` must be an integer"),
        (lambda: huber(0.0), ValueError, "`delta` must be greater than 0"),
        (lambda: resolve_loss("hinge"), ValueError, "`loss` must be one of"),
        (lambda: resolve_loss(3), TypeError, "`loss` must be a name, a Loss or a function"),
    ],
)
def test_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_losses_of_wrong_shape():
    data = EmpiricalData(X, Y)
    with pytest.raises(ValueError, match="`loss` must return an array of the predictions' shape"):
        train(LinearNetwork(3), data, step_size=0.1, steps=3, loss=lambda p, y: p.sum())
    bad = Loss(lambda p, y: p - y, lambda p, y: p[:2])
    with pytest.raises(ValueError, match="`loss` must have values of shape"):
        train(LinearNetwork(3), data, step_size=0.1, steps=3, loss=bad)
    population = MEASURES["population, outputs"]
    with pytest.raises(ValueError, match="`loss` must be separable with Gaussian data"):
        population.evaluate(np.zeros((3, 2)), Loss(lambda p, y: p - y))
