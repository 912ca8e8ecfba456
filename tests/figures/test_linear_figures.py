"""Figures of linear networks in their quick sizes, against theory; and the user's own data."""

import importlib
import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from scalinglimits.figures import linear_settings
from scalinglimits.figures.linear_endpoint import end_factor
from scalinglimits.figures.linear_laws import SparseSigns
from scalinglimits.figures.linear_run import LinearRequest, draw_linear, linear_record
from scalinglimits.figures.linear_scales import distance_from_path, linear_path
from scalinglimits.figures.linear_settings import (
    STABLE_NORM,
    error_bars,
    linear_setting,
    longest_step_size,
    power_fit,
)
from scalinglimits.figures.record import Request, save_drawing, save_record
from scalinglimits.linear import EmpiricalData, GaussianData, LinearNetwork, train

MODULES = (
    "linear_widths",
    "linear_scales",
    "linear_entries",
    "linear_endpoint",
    "linear_laws",
    "linear_depth",
    "linear_rules",
    "linear_residual",
)
SPECS = {
    spec.name: spec
    for module in MODULES
    for spec in importlib.import_module(f"scalinglimits.figures.{module}").FIGURES
}
NAMES = sorted(SPECS)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "cells.sqlite"
    request = Request(quick=True, n_jobs=1, store=store)
    return {name: spec.compute(request) for name, spec in SPECS.items()}


@pytest.mark.parametrize("name", NAMES)
def test_record_is_saved_and_drawn(records, tmp_path, name):
    before = dict(mpl.rcParams)
    record = records[name]
    assert record.name == name
    paths = save_record(record, tmp_path) + save_drawing(SPECS[name].draw(record), name, tmp_path)
    assert all(path.stat().st_size > 0 for path in paths)
    assert dict(mpl.rcParams) == before
    assert "nan" not in record.caption


@pytest.mark.parametrize("name", ["L1", "L2", "L3"])
def test_figures_in_the_public_notebooks_setting(name):
    record = SPECS[name].compute(Request(quick=True, setting="code", n_jobs=1))
    assert record.settings["setting"] == "code"
    assert "n = 15" in record.caption
    assert SPECS[name].draw(record).axes


def test_settings_hold_the_documents_numbers():
    text, code = linear_setting("text", 0), linear_setting("code", 0)
    assert (text.in_features, text.step_size) == (10, 0.2)
    assert isinstance(text.data, GaussianData)
    assert isinstance(code.data, EmpiricalData)
    assert (code.data.X.shape, code.step_size) == ((15, 20), 0.02)
    assert code.data.weights.tolist() == [1.0] * 15
    study = linear_setting("study", 0)
    eigenvalues = np.linalg.eigvalsh(study.second_moments)
    np.testing.assert_allclose(eigenvalues[-8:], np.linspace(1, 4, 8))
    np.testing.assert_allclose(eigenvalues[:-8], 0, atol=1e-12)
    assert np.linalg.norm(study.solution) == pytest.approx(2)
    with pytest.raises(ValueError, match="`name` must be 'text', 'code' or 'study'; got 'other'"):
        linear_setting("other", 0)


def test_step_of_the_text_is_too_long_for_most_targets():
    # By rotation, d = 10 with isotropic inputs is d = 1 with the same norm.
    target = np.zeros(10)
    target[3] = 2.0
    options = {"step_size": 0.2, "steps": 20}
    ten = train(LinearNetwork(10), GaussianData(np.eye(10), target), **options)
    one = train(LinearNetwork(1), GaussianData(np.eye(1), [2.0]), **options)
    np.testing.assert_allclose(ten.loss, one.loss, atol=1e-12)
    last = {}
    for norm in (STABLE_NORM - 0.02, STABLE_NORM + 0.02):
        data = GaussianData(np.eye(1), [norm])
        run = train(LinearNetwork(1), data, step_size=0.2, steps=1500)
        last[norm] = run.loss[-2:].max()
    assert list(np.array(list(last.values())) < 1e-6) == [True, False]


def test_power_fit_recovers_an_exact_power():
    x = np.array([10.0, 100.0, 1000.0])
    fit = power_fit(x, 3 * x**-1.5, 0.3 * x**-1.5)
    assert (fit.exponent, fit.constant) == pytest.approx((-1.5, 3.0))
    # Equal relative errors of a tenth: the slope's deviation is 0.1 / sqrt(2 log(10)^2).
    assert fit.half_width == pytest.approx(1.96 * 0.1 / (math.sqrt(2) * math.log(10)))
    assert str(fit).startswith("-1.500 ± ")


def test_start_is_d_over_m(records):
    table = records["L-convergence"].tables[""]
    start = table[table.step == 0]
    # Means of 32 networks; |λ(0)|² has relative deviation √(2/d) or more at small width.
    score = (start.mean_square - start.theory) / start.standard_error
    assert np.abs(score[start.width >= 1000]).max() < 6
    assert linear_settings.width_label(10**6) == "$m = 10^{6}$"


@pytest.mark.parametrize(
    ("name", "bound"), [("L-convergence", 0.05), ("L-sgd", 0.05), ("L-depth", 0.05)]
)
def test_mean_square_error_is_of_order_one_over_width(records, name, bound):
    table = records[name].tables["exponents"]
    # 4.42 standard errors: α = 1e-5.
    slack = 4.42 / 1.96 * table.half_width
    assert (np.abs(table.exponent + 1) < bound + slack).all()


def test_limit_of_v_square_is_approached(records):
    paths = records["L1"].tables["paths"]
    end = paths[paths.step == paths.step.max()]
    limit = end[np.isinf(end.width)].v_square.item()
    error = end[end.width == 1000].v_square / limit - 1
    assert np.abs(error).max() < 0.2


def test_paths_are_straight_for_isotropic_inputs_only(records):
    assert records["L2"].tables[""].distance_from_linear_path.max() < 1e-9
    code = SPECS["L2"].compute(Request(quick=True, setting="code", n_jobs=1)).tables[""]
    bends = code.set_index("scale").distance_from_linear_path
    assert bends[0.01] > 0.02 > bends[10.0]


def test_two_phases_and_linear_limit(records):
    table = records["L-scales"].tables["exponents"]
    np.testing.assert_allclose(table.exponent, table.theory, rtol=0.03)
    gap = records["L-scales"].tables[""].set_index("scale").gap
    assert gap[100.0] < 1e-3


def test_linear_path_is_the_flow_of_least_squares():
    setting = linear_setting("code", 0)
    times = np.array([0.0, 0.5, 1e9])
    path = linear_path(setting, times)
    np.testing.assert_allclose(path[0], 0)
    np.testing.assert_allclose(path[2], setting.solution, atol=1e-10)
    step = 1e-6
    slope = (linear_path(setting, times + step)[1] - path[1]) / step
    want = -setting.second_moments @ (path[1] - setting.solution)
    np.testing.assert_allclose(slope, want, atol=1e-4)


def test_distance_from_a_path():
    path = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    points = np.array([[0.5, 0.1], [0.9, 0.5], [1.0, 1.0]])
    assert distance_from_path(points, path) == pytest.approx(0.1 / math.sqrt(2))


def test_end_is_the_minimum_norm_interpolator(records):
    rate = records["L-endpoint"].tables["rate"].iloc[0]
    assert rate.distance < 1e-12
    assert rate.factor == pytest.approx(rate.theory, abs=1e-4)
    ends = records["L-endpoint"].tables[""]
    assert (ends.largest_loss[1:] < 1e-12).all()
    # Networks of finite width interpolate too, but end elsewhere.
    assert (ends.mean_square_distance > 1e-10).all()


def test_end_factor_is_the_slowest_of_a_linear_recursion():
    # A network that is at its end: one more step multiplies a small error by the matrix I - τKΣ.
    setting = linear_setting("study", 1)
    run = train(LinearNetwork(12), setting.data, step_size=0.02, steps=200)
    gaps = np.linalg.norm(run.predictor - setting.solution, axis=1)
    factor = end_factor(run, setting.second_moments, 0.02)
    assert gaps[81] / gaps[80] == pytest.approx(factor, abs=2e-3)


@pytest.mark.parametrize(("hidden", "scale"), [(1, 1.0), (1, 0.5), (3, 1.0), (3, 0.5)])
def test_longest_step_size_is_two_over_the_speed_of_balanced_layers(hidden, scale):
    # A tenth of that step shrinks a small error by 1 - 2/10; layers that start at length 1 are
    # balanced only up to powers of 1/norm.
    step_size = longest_step_size(1.0, hidden, 300.0, scale)
    data = GaussianData(np.eye(1), [300.0])
    network = LinearNetwork(1, hidden=hidden, scale=scale)
    run = train(network, data, step_size=0.1 * step_size, steps=600)
    gap = np.abs(run.predictor[:, 0] / 300.0 - 1)
    late = int(np.flatnonzero(gap < 1e-4)[0])
    assert 1 - gap[late + 1] / gap[late] == pytest.approx(0.2, rel=0.02)


def test_error_bars_are_symmetric_in_logarithms():
    mean, error = pd.Series([1.0, 2.0]), pd.Series([0.5, 0.0])
    below, above = error_bars(mean, error)
    np.testing.assert_allclose((mean - below) * (mean + above), mean**2)
    np.testing.assert_allclose(above, [math.exp(0.98) - 1, 0.0])


def test_laws_of_weights(records):
    tests = records["L3"].tables["tests"].set_index(["width", "entries", "law"]).p_value
    assert tests[(math.inf, "whole", "mixture")] > 1e-5
    assert tests[(math.inf, "whole", "normal")] < 1e-20
    assert tests[(math.inf, "rest", "normal")] > 1e-5
    # At finite width the limit's law holds up to terms of order m^-1/2.
    assert tests[(2000.0, "whole", "mixture")] > 1e-5


def test_universality_and_its_end(records):
    table = records["L-universality"].tables[""]
    last = table[table.width == table.width.max()].set_index("law")
    value, error = last.relative_mean_square, last.standard_error
    for law in ("Rademacher", "uniform"):
        spread = math.hypot(error[law], error["Gaussian"])
        assert abs(value[law] - value["Gaussian"]) < 4.42 * spread
    assert value["sparse"] > 1.4 * value["Gaussian"]


def test_sparse_law_has_unit_variance():
    draws = SparseSigns(0.1).sample((200_000,), np.random.default_rng(0))
    assert np.mean(draws) == pytest.approx(0, abs=0.01)
    assert np.mean(draws**2) == pytest.approx(1, abs=0.04)
    assert np.mean(draws**4) == pytest.approx(10, abs=0.4)


def test_haar_falls_behind_with_depth(records):
    table = records["L-orthogonal"].tables[""]
    np.testing.assert_allclose(table.loss_ratio_first_step, 1.0, atol=1e-12)
    behind = table.steps_haar - table.steps_gaussian
    assert (behind > 1).all()
    assert behind.is_monotonic_increasing
    # A Haar matrix of an isometric start needs no new direction but one.
    assert table.dimensions_haar.max() <= 14


def test_parametrizations(records):
    table = records["L-parametrizations"].tables[""]
    one = table[table.hidden == 1].set_index("parametrization")

    def slope(rule, column):
        part = one.loc[rule]
        return np.polyfit(np.log(part.width), np.log(part[column]), 1)[0]

    assert slope("mup", "moved") == pytest.approx(0, abs=0.05)
    assert slope("ntk", "moved") == pytest.approx(-1, abs=0.05)
    assert slope("mup", "start") == pytest.approx(-0.5, abs=0.05)
    assert slope("ntk", "start") == pytest.approx(0, abs=0.05)
    standard = table[table.parametrization == "standard"]
    assert (standard.diverged == standard.networks).all()
    stuck = table[(table.parametrization == "integrable") & (table.hidden == 2)]
    assert (np.diff(stuck.half_loss_step) > 5).all()
    assert (table[table.parametrization == "mup"].half_loss_step < 5).all()


def test_best_step_size_against_depth(records):
    table = records["L-residual"].tables[""].set_index(["rule", "depth"])
    best = table.best_step_size
    # With hidden steps times L the best step barely depends on the depth.
    scaled = best["inverse, scaled"]
    assert scaled.max() / scaled.min() < 1.15
    # With alpha = 1/L alone the hidden matrices stop moving.
    moved = table.hidden_movement["inverse"]
    assert moved.is_monotonic_decreasing
    share = table.theory_hidden_share
    assert share[("inverse", 8)] < 0.1 < share[("sqrt", 8)]


def test_speeds_at_the_start_are_those_of_the_first_step():
    from scalinglimits.figures.linear_residual import _speeds, _train

    setting = linear_setting("study", 0)
    for rule in ("sqrt", "inverse", "inverse, scaled"):
        run = _train(rule, 4, 1e-6, 0)
        xi = setting.second_moments @ setting.solution
        speed = run.predictor[1] @ xi / (xi @ xi) / 1e-6
        assert speed == pytest.approx(sum(_speeds(rule, 4)), rel=1e-4)


def test_numbers_do_not_depend_on_workers():
    one, two = (
        SPECS["L-sgd"].compute(Request(quick=True, n_jobs=jobs)).tables[""] for jobs in (1, 2)
    )
    pd.testing.assert_frame_equal(one, two, check_exact=True)


@pytest.fixture
def csv(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 4)) * [1, 2, 1, 3] + 1
    table = pd.DataFrame(X, columns=list("abcd")).assign(price=X @ [1.0, -1.0, 0.5, 0.0] + 2)
    path = tmp_path / "data.csv"
    table.to_csv(path, index=False)
    return path


def test_own_data(csv, tmp_path):
    wanted = LinearRequest(
        str(csv), "price", widths=(math.inf, 50), steps=400, standardize=True, replicates=2
    )
    record = linear_record(wanted, Request())
    table = record.tables[""]
    assert table.width.tolist() == [math.inf, 50.0, 50.0]
    assert (table.relative_distance < 1e-2).all()
    assert (table.final_loss < 1e-4 * table.first_loss).all()
    path = record.tables["trajectory"]
    assert set(path.columns) == {
        "width", "replicate", "step", "output", "feature", "predictor", "loss"
    }  # fmt: skip
    end = path[(path.width == math.inf) & (path.step == 400)].predictor
    np.testing.assert_allclose(end, record.tables["solution"].value, atol=1e-2)
    figure = draw_linear(record)
    assert all(p.stat().st_size for p in save_drawing(figure, "linear", tmp_path))
    again = linear_record(wanted, Request()).tables[""]
    pd.testing.assert_frame_equal(table, again, check_exact=True)


def test_own_data_with_two_outputs_and_dense_matrices(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((9, 3))
    np.savez(tmp_path / "data.npz", X=X, y=X @ rng.standard_normal((3, 2)))
    wanted = LinearRequest(
        str(tmp_path / "data.npz"), widths=(20,), matrices="rademacher", steps=50, replicates=1,
        hidden=2, loss="huber",
    )  # fmt: skip
    record = linear_record(wanted, Request())
    assert record.tables["solution"].output.tolist() == [0, 0, 0, 1, 1, 1]
    assert draw_linear(record).axes


def test_divergence_is_reported(csv):
    wanted = LinearRequest(str(csv), "price", step_size=5.0, steps=200)
    record = linear_record(wanted, Request())
    assert record.tables[""].status.tolist() == ["diverged"]
    assert "1 of 1 diverged" in record.caption
    assert draw_linear(record).axes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": ()}, "`widths` must hold at least one width; got none"),
        ({"widths": (10, 10)}, "`widths` must differ from each other"),
        ({"matrices": "cauchy"}, "`matrices` must be one of gaussian, haar"),
        ({"parametrization": "x"}, "`parametrization` must be one of mup"),
        ({"loss": "hinge"}, "`loss` must be one of square, logistic, huber"),
        ({"steps": 0}, "`steps` must be at least 1; got 0"),
        ({"hidden": -1}, "`hidden` must be at least 0; got -1"),
        ({"replicates": 0}, "`replicates` must be at least 1; got 0"),
        ({"step_size": -1.0}, "`step_size` must be positive and finite; got -1.0"),
        (
            {"matrices": "uniform", "widths": (10**5,)},
            "`widths` must be at most 4096, or inf, with matrices held in full; got 100000",
        ),
    ],
)
def test_wrong_requests(options, message):
    with pytest.raises(ValueError, match=message):
        LinearRequest("data.csv", **options)


def test_wrong_data(csv):
    with pytest.raises(ValueError, match="`target` must name the target of"):
        linear_record(LinearRequest(str(csv)), Request())
    with pytest.raises(ValueError, match="`target` must be -1 or 1 for the logistic loss"):
        linear_record(LinearRequest(str(csv), "price", loss="logistic"), Request())
    with pytest.raises(ValueError, match="`width` must be at least 1; got 0"):
        linear_record(LinearRequest(str(csv), "price", widths=(0,)), Request())
