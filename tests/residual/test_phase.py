"""The phase diagram: what a cell measures, the fit against theory, and the sweep under it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from scalinglimits.laws import FractionalIncrements, Normal
from scalinglimits.laws.streams import substream
from scalinglimits.residual import ResidualNetwork, phase_diagram, propagate, response_moments
from scalinglimits.residual.phase import _fit_depths, _measure_draw
from scalinglimits.sweeps import SerialExecutor, expand_grid

SMALL = {"width": 6, "depth": 32, "draws": 3, "inputs": 2, "executor": "serial"}
COLUMNS = [
    "hurst", "quantity", "beta_c", "standard_error", "lower", "upper", "theory_limit",
    "theory_depth", "extrapolated", "beta_one", "theory_one",
]  # fmt: skip
MAPS = ("log10_hidden_change", "log10_gradient_change")


class Interrupted(SerialExecutor):
    """Stops after some cells, as a user who presses Ctrl-C, and counts the cells it ran."""

    def __init__(self, cells=None):
        self.cells, self.ran = cells, 0

    def run(self, task, cells):
        for outcome in super().run(task, cells):
            yield outcome
            self.ran += 1
            if self.ran == self.cells:
                raise KeyboardInterrupt


def same(first, second):
    for name in MAPS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.critical.equals(second.critical)


def test_shapes_and_columns():
    diagram = phase_diagram([0.3, 0.8], [0.2, 0.5, 1.0], **SMALL)
    assert diagram.log10_hidden_change.shape == diagram.log10_gradient_change.shape == (2, 3)
    assert list(diagram.critical.columns) == COLUMNS
    assert len(diagram.critical) == 4
    assert diagram.critical.theory_limit.tolist() == [0.5, 0.5, 0.8, 0.8]
    assert (diagram.depth, diagram.width, diagram.draws, diagram.inputs) == (32, 6, 3, 2)
    frame = diagram.to_frame()
    row = frame[(frame.hurst == 0.8) & (frame.beta == 0.5)]
    assert row.log10_gradient_change.item() == diagram.log10_gradient_change[1, 1]
    assert len(frame) == 6


def test_one_cell_is_one_network():
    """A cell's numbers, by the model and its propagation on the same draw."""
    beta, seed = (0.4, 1.0), 11
    values = _measure_draw(0.7, beta, 6, 32, 3, "res-3", None, seed=seed)
    law = FractionalIncrements(0.7)
    network = ResidualNetwork(3, width=6, depth=32, out_features=3, weights=law)

    def vectors(name):
        return Normal().sample((6, 3), substream(seed, name), dtype=torch.float32)

    with torch.no_grad():
        for name in ("V", "W"):
            draw = law.sample(32, (6, 6), substream(seed, name), dtype=torch.float32)
            network.get_parameter(name).copy_(draw / math.sqrt(6))
        network.input_weight.copy_(vectors("h_0"))
        network.output_weight.copy_(vectors("p_L").T)
    record = propagate(network, torch.eye(3), beta=beta, output_gradient=torch.eye(3))
    depths = _fit_depths(32)
    assert depths.tolist() == [8, 10, 11, 13, 16, 19, 23, 27, 32]
    for name, logs in [
        ("hidden_change", record.log_hidden_change[..., depths]),
        ("gradient_change", record.log_backward_change[..., 32 - depths]),
    ]:
        np.testing.assert_allclose(values[name], logs[..., -1], atol=1e-5)
        squares = np.log(np.mean(np.exp(2 * logs), axis=1))
        np.testing.assert_allclose(values[f"{name}_square"], squares, atol=1e-5)


def test_maps_are_means_over_draws_and_inputs():
    diagram = phase_diagram([0.6], [0.3, 0.9], seed=5, **SMALL)
    grid = {
        "hurst": [0.6], "beta": [(0.3, 0.9)], "width": [6], "depth": [32], "inputs": [2],
        "branch": ["res-3"], "activation": [None],
    }  # fmt: skip
    cells = expand_grid(grid, 3, seed=5, seed_by=["hurst", "width", "depth"])
    draws = [_measure_draw(**cell.config, seed=cell.seed) for cell in cells]
    hidden = np.mean([d["hidden_change"] for d in draws], axis=(0, 2)) / math.log(10)
    np.testing.assert_allclose(diagram.log10_hidden_change[0], hidden, rtol=1e-12)


def test_fit_is_a_slope_with_a_jackknife_error():
    """The fitted exponent, written out: slope of log(rms change)/α over the last two octaves."""
    diagram = phase_diagram([0.6], [0.1, 1.0, 1.5], seed=5, **SMALL)
    grid = {
        "hurst": [0.6], "beta": [(0.1, 1.0, 1.5)], "width": [6], "depth": [32], "inputs": [2],
        "branch": ["res-3"], "activation": [None],
    }  # fmt: skip
    logs = np.array(
        [
            _measure_draw(**cell.config, seed=cell.seed)["hidden_change_square"]
            for cell in expand_grid(grid, 3, seed=5, seed_by=["hurst", "width", "depth"])
        ]
    )
    depths = np.array([8, 10, 11, 13, 16, 19, 23, 27, 32])

    def slope(rows):
        # β = 0.1 is no small change; at the other two, log R/α is averaged
        rms = np.log(np.exp(rows).mean(0)) / 2
        assert (rms[:, -1] < math.log(0.3)).tolist() == [False, True, True]
        return np.polyfit(np.log(depths), rms[1:].mean(0), 1)[0]

    left_out = [slope(np.delete(logs, i, axis=0)) for i in range(3)]
    error = math.sqrt(2 / 3 * np.sum((left_out - np.mean(left_out)) ** 2))
    row = diagram.critical.iloc[0]
    assert row.beta_c == pytest.approx(slope(logs))
    assert row.standard_error == pytest.approx(error)
    margin = stats.t.ppf(0.975, 2) * error
    assert (row.lower, row.upper) == pytest.approx((slope(logs) - margin, slope(logs) + margin))
    moments = response_moments(FractionalIncrements(0.6), depths, width=6)
    theory = np.polyfit(np.log(depths), np.log(moments.hidden) / 2, 1)[0]
    assert row.theory_depth == pytest.approx(theory)
    assert row.extrapolated == pytest.approx(row.beta_c - theory + 0.6)
    assert row.theory_one == pytest.approx(moments.balanced_beta()[0][-1])


def test_another_grid_of_exponents_changes_no_weights():
    few = phase_diagram([0.6], [0.3, 0.9], **SMALL).log10_hidden_change
    more = phase_diagram([0.6], [0.3, 0.5, 0.9], **SMALL).log10_hidden_change
    np.testing.assert_allclose(few[:, 1], more[:, 2], atol=1e-5)


def test_where_the_change_is_one():
    diagram = phase_diagram([0.9], np.linspace(0.2, 1.4, 13), **SMALL)
    row = diagram.critical.iloc[0]
    at_it = phase_diagram([0.9], [row.beta_one], **SMALL)
    assert 0.2 < row.beta_one < 1.4
    # at that exponent the change is about 1 (other weights: the grid is part of a cell's seed)
    assert abs(at_it.log10_hidden_change[0, 0]) < 0.35
    assert math.isnan(phase_diagram([0.9], [2.0, 3.0], **SMALL).critical.beta_one[0])


def test_no_small_change_no_fit():
    row = phase_diagram([0.8], [-0.5, 0.0], **SMALL).critical.iloc[0]
    assert math.isnan(row.beta_c)
    assert math.isnan(row.extrapolated)
    assert not math.isnan(row.theory_depth)


def test_one_draw_has_no_interval():
    row = phase_diagram([0.8], [1.0], **SMALL | {"draws": 1}).critical.iloc[0]
    assert math.isfinite(row.beta_c)
    assert math.isnan(row.standard_error)
    assert math.isnan(row.lower)


def test_depth_one():
    diagram = phase_diagram([0.8], [1.0], **SMALL | {"depth": 1, "width": 40})
    assert np.isfinite(diagram.log10_hidden_change).all()
    assert diagram.critical.beta_c.isna().all()


@pytest.mark.parametrize(
    ("branch", "activation", "limit"),
    [("res-1", None, 0.8), ("res-2", "leaky_relu", 0.8), ("res-2", "identity", 0.6)],
)
def test_other_branches(branch, activation, limit):
    diagram = phase_diagram([0.8], [0.5, 1.2], branch=branch, activation=activation, **SMALL)
    assert np.isfinite(diagram.critical.beta_c).all()
    np.testing.assert_allclose(diagram.critical.theory_limit, limit)


def test_resumes_from_its_store(tmp_path):
    grid = ([0.3, 0.6, 0.9], [0.4, 1.0])
    whole = phase_diagram(*grid, **SMALL)
    path = str(tmp_path / "phase.sqlite")
    first, second, third = Interrupted(4), Interrupted(), Interrupted()
    with pytest.raises(KeyboardInterrupt):
        phase_diagram(*grid, store=path, **SMALL | {"executor": first})
    same(phase_diagram(*grid, store=path, **SMALL | {"executor": second}), whole)
    assert (first.ran, second.ran) == (4, 5)
    same(phase_diagram(*grid, store=path, **SMALL | {"executor": third}), whole)
    assert third.ran == 0


def test_more_draws_keep_the_old_ones(tmp_path):
    path = str(tmp_path / "phase.sqlite")
    phase_diagram([0.3], [0.4, 1.0], store=path, **SMALL)
    more = Interrupted()
    phase_diagram([0.3], [0.4, 1.0], store=path, **SMALL | {"executor": more, "draws": 5})
    assert more.ran == 2


def test_same_bits_for_any_number_of_workers():
    grid = ([0.3, 0.9], [0.4, 1.0])
    serial = phase_diagram(*grid, **SMALL)
    for n_jobs in (1, 2):
        same(phase_diagram(*grid, n_jobs=n_jobs, **SMALL | {"executor": "joblib"}), serial)
    other = phase_diagram(*grid, seed=1, **SMALL)
    assert not np.array_equal(other.log10_hidden_change, serial.log10_hidden_change)


def test_fit_covers_the_theory_of_its_depth():
    # t-interval at level 1 − 1e-5 of 12 draws, each Hurst index and quantity
    diagram = phase_diagram(
        [0.2, 0.5, 0.7, 0.9], [0.8, 1.1], width=20, depth=300, draws=12, inputs=5,
        confidence=1 - 1e-5, executor="serial",
    )  # fmt: skip
    critical = diagram.critical
    assert (critical.lower < critical.theory_depth).all()
    assert (critical.theory_depth < critical.upper).all()
    assert (critical.standard_error < 0.04).all()


@pytest.mark.parametrize("hurst", np.linspace(0.1, 0.9, 17))
def test_theory_of_depth_1000_is_near_the_limit(hurst):
    depths = _fit_depths(1000)
    moments = response_moments(FractionalIncrements(hurst), depths, width=40)
    local = np.polyfit(np.log(depths), np.log(moments.hidden) / 2, 1)[0]
    assert abs(local - max(hurst, 0.5)) < 0.05


@pytest.mark.slow
def test_critical_exponent_is_the_documents():
    # R, section 4.1: β_c = max(H, ½), from 30 draws of depth 1000; 4.5 standard errors
    diagram = phase_diagram(
        np.linspace(0.1, 0.9, 9), [0.75, 1.0, 1.25], depth=1000, draws=30, inputs=5
    )
    critical = diagram.critical
    distance = (critical.extrapolated - np.maximum(critical.hurst, 0.5)).abs()
    assert (distance <= 4.5 * critical.standard_error).all()
    assert (critical.standard_error < 0.025).all()


# --- errors


@pytest.mark.parametrize("hurst", [0.0, 1.0, -0.2, math.nan])
def test_hurst_must_lie_inside(hurst):
    with pytest.raises(ValueError, match="`hurst` must"):
        phase_diagram([0.5, hurst], [0.5], **SMALL)


def test_hurst_must_not_be_empty():
    with pytest.raises(ValueError, match="`hurst` must hold at least one index; got none"):
        phase_diagram([], [0.5], **SMALL)


@pytest.mark.parametrize("beta", [[], [1.0, 0.5], [0.5, 0.5], [0.5, math.nan], [[0.5]]])
def test_beta_must_increase(beta):
    with pytest.raises(ValueError, match="`beta` must be increasing finite numbers; got"):
        phase_diagram([0.5], beta, **SMALL)


@pytest.mark.parametrize("name", ["width", "depth", "draws", "inputs"])
@pytest.mark.parametrize("value", [0, True, 2.5])
def test_sizes_must_be_positive_integers(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; got"):
        phase_diagram([0.5], [0.5], **SMALL | {name: value})


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_confidence_must_be_a_level(confidence):
    with pytest.raises(ValueError, match=r"`confidence` must lie in \(0, 1\); got"):
        phase_diagram([0.5], [0.5], confidence=confidence, **SMALL)


def test_branch_must_be_known():
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'x'"):
        phase_diagram([0.5], [0.5], branch="x", **SMALL)


def test_activation_must_be_homogeneous():
    with pytest.raises(ValueError, match="`activation` must be positively homogeneous; got 'tanh'"):
        phase_diagram([0.5], [0.5], branch="res-2", activation="tanh", **SMALL)


def test_executor_must_be_known():
    with pytest.raises(ValueError, match='`executor` must be "serial", "joblib" or an Executor'):
        phase_diagram([0.5], [0.5], **SMALL | {"executor": "cluster"})
