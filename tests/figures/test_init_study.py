"""The study of averages: its ensembles against plain modules, its predictions, its arithmetic."""

import dataclasses
import gzip
import math
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from scalinglimits.figures import Request, save_drawing, save_record
from scalinglimits.figures.init_study import FIGURES, stored_record, study, study_grid
from scalinglimits.figures.init_study_analysis import (
    compare,
    decode_outcomes,
    encode_outcomes,
    pool,
    summarize,
)
from scalinglimits.figures.init_study_cells import Protocol, load_classes, measure_cell
from scalinglimits.figures.init_study_networks import ARCHITECTURES, predicted_gains
from scalinglimits.figures.init_study_training import ensemble_logits, train_ensemble
from scalinglimits.init import END_TO_END, signal_table
from scalinglimits.laws.fans import MODES

HE = math.sqrt(2.0)
STORED = Path(__file__).parents[2] / "docs" / "data" / "averaging-fans"
SMALL = {
    "data": "digits", "replicates": 2, "steps": 30, "batch_size": 32, "target": 1.8, "window": 3,
    "root": 0,
}  # fmt: skip


class PlainModel(nn.Module):
    """One member, written as anyone would write it."""

    def __init__(self, kind, norm, weights):
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList()
        for weight in weights:
            layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
            layer.weight.data.copy_(weight)
            self.layers.append(layer)
        make = {
            "none": lambda n: nn.Identity(),
            "layer": lambda n: nn.LayerNorm(n, elementwise_affine=False),
            "rms": lambda n: nn.RMSNorm(n, eps=1e-5, elementwise_affine=False),
        }[norm]
        sizes = {w.shape[0] for w in weights} | {w.shape[1] for w in weights}
        self.norms = nn.ModuleDict({str(n): make(n) for n in sizes})

    def norm(self, h):
        return self.norms[str(h.shape[-1])](h)

    def forward(self, x):
        first, *hidden, last = self.layers
        if self.kind == "chain":
            h = torch.relu(self.norm(first(x)))
            for layer in hidden:
                h = torch.relu(self.norm(layer(h)))
            return last(h)
        h = first(x)
        for up, down in zip(hidden[::2], hidden[1::2], strict=True):
            branch = down(torch.relu(up(self.norm(h))))
            h = h + branch if self.kind == "residual" else branch
        return last(self.norm(h))


def draw(shapes, mode, gain, seed, members=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(members, s.fan_out, s.fan_in, generator=generator, dtype=dtype)
        * math.sqrt(s.variance(mode, gain))
        for s in shapes
    ]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
@pytest.mark.parametrize("name", ["expand-2", "ffn-4", "residual-4"])
def test_members_train_like_plain_modules(name, norm, optimizer):
    family = ARCHITECTURES[name]
    weights = draw(family.matrices(6, 5, 3), "fan_avg", HE, seed=0, members=3)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 2, 8, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (12, 2, 8), generator=generator)
    streams, rates = [0, 1, 1], [0.004, 0.002, 0.01]
    run = train_ensemble(
        family.kind, norm, weights, streams, rates, lambda step: (x[step], y[step]),
        optimizer=optimizer, steps=12, target=-1.0, window=2,
    )  # fmt: skip
    for i, (stream, rate) in enumerate(zip(streams, rates, strict=True)):
        model = PlainModel(family.kind, norm, [w[i] for w in weights])
        make = {
            "sgd": lambda p, lr=rate: torch.optim.SGD(p, lr=lr, momentum=0.9),
            "adam": lambda p, lr=rate: torch.optim.Adam(p, lr=lr),
        }[optimizer]
        trainer = make(model.parameters())
        losses = []
        for step in range(12):
            loss = nn.functional.cross_entropy(model(x[step, stream]), y[step, stream])
            losses.append(loss.item())
            trainer.zero_grad()
            loss.backward()
            trainer.step()
        np.testing.assert_allclose(run.losses[:, i], losses, rtol=1e-5)


def test_a_member_does_not_depend_on_the_others():
    family = ARCHITECTURES["expand-2"]
    weights = draw(family.matrices(4, 64, 10), "fan_in", HE, seed=0, members=4)
    X, y = (torch.from_numpy(part) for part in load_classes())
    X = X.double()

    def batches(step):
        rows = torch.arange(32 * step, 32 * (step + 1))
        return X[rows][None], y[rows][None]

    options = {"optimizer": "sgd", "steps": 40, "target": 1.8, "window": 3}
    # the first reaches the target and is dropped, the second diverges, the third is too slow
    rates = [2.0**-4, 2.0**6, 2.0**-20, 2.0**-5]
    together = train_ensemble("chain", "none", weights, [0] * 4, rates, batches, **options)
    assert np.isfinite(together.steps).tolist() == [True, False, False, True]
    assert together.diverged.tolist() == [False, True, False, False]
    for i, rate in enumerate(rates):
        alone = train_ensemble(
            "chain", "none", [w[i : i + 1] for w in weights], [0], [rate], batches, **options
        )
        np.testing.assert_array_equal(alone.steps, together.steps[i : i + 1])
        count = np.isfinite(alone.losses[:, 0]).sum()
        np.testing.assert_allclose(alone.losses[:count, 0], together.losses[:count, i], rtol=1e-9)


def test_target_is_met_by_the_mean_of_the_last_losses():
    family = ARCHITECTURES["expand-2"]
    weights = draw(family.matrices(4, 64, 10), "fan_in", HE, seed=0)
    X, y = (torch.from_numpy(part) for part in load_classes())
    run = train_ensemble(
        "chain", "none", weights, [0], [2.0**-5],
        lambda step: (X[None, 64 * step : 64 * step + 64].double(), y[None, 64 * step :][:, :64]),
        optimizer="sgd", steps=25, target=1.7, window=4,
    )  # fmt: skip
    means = pd.Series(run.losses[:, 0]).rolling(4).mean()
    first = int(np.flatnonzero(means <= 1.7)[0])
    assert run.steps[0] == first + 1


@pytest.mark.parametrize("name", ["expand-2", "expand-8", "bottleneck-4"])
def test_three_modes_are_one_function_at_the_start(name):
    """Without normalisation: fan_in, fan_out and fan_geo_avg have the same product over a pair."""
    family = ARCHITECTURES[name]
    shapes = family.matrices(16, 7, 4)
    x = torch.randn(1, 9, 7, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    logits = {
        mode: ensemble_logits("chain", "none", draw(shapes, mode, HE, seed=3), x)[0]
        for mode in MODES
    }
    for mode in ("fan_in", "fan_out"):
        torch.testing.assert_close(logits[mode], logits["fan_geo_avg"], rtol=1e-9, atol=0)
    for mode in ("fan_avg", "fan_quad_avg"):
        assert logits[mode].abs().max() < 0.9 * logits["fan_geo_avg"].abs().max()


@pytest.mark.parametrize(("mode", "sign"), [("fan_in", 1), ("fan_out", -1)])
def test_layers_of_one_function_learn_at_other_speeds(mode, sign):
    """The squared gradient of a widening matrix is √e times smaller with fan_in, and so on."""
    family, x = ARCHITECTURES["expand-8"], torch.ones(1, 1, 7, dtype=torch.float64)
    shapes = family.matrices(6, 7, 1)
    squares = []
    for each in (mode, "fan_geo_avg"):
        weights = [w.requires_grad_() for w in draw(shapes, each, HE, seed=3)]
        gradients = torch.autograd.grad(
            ensemble_logits("chain", "none", weights, x)[0].sum(), weights[1:-1]
        )
        squares.append([g.square().sum().item() for g in gradients])
    ratios = np.divide(*squares)
    np.testing.assert_allclose(ratios, [8 ** (-sign / 2), 8 ** (sign / 2)] * 2, rtol=1e-9)


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_averages_differ_by_one_gain(name):
    """fan_avg and fan_quad_avg are fan_geo_avg with a smaller gain, the same for all matrices."""
    up, down = ARCHITECTURES[name].matrices(4, 7, 4)[1:3]
    for mode in ("fan_avg", "fan_quad_avg"):
        first, second = (s.variance(mode, HE) / s.variance("fan_geo_avg", HE) for s in (up, down))
        assert first == pytest.approx(second, rel=1e-12)
        assert first < 1


@pytest.mark.parametrize("name", ["expand-8", "bottleneck-4"])
def test_predictions_agree_with_the_signal_table(name):
    family = ARCHITECTURES[name]
    shapes = [(s.fan_in, s.fan_out) for s in family.matrices(6, family.start, 1)[1:-1]]
    table = signal_table(shapes, activation=nn.ReLU(), draws=1, batch=4, gains=HE)
    ends = table[table.layer == END_TO_END].set_index("mode")
    for mode in MODES:
        gains = predicted_gains(family, 6, "none", mode, HE)
        # the table's chain has no ReLU after its last matrix, where ours has one
        assert math.exp(gains["forward_predicted"]) == pytest.approx(
            ends.forward_predicted[mode] / 2, rel=1e-3
        )


@pytest.mark.parametrize(("name", "norm"), [("expand-4", "none"), ("ffn-4", "none")])
def test_typical_signal_is_the_exact_mean_of_the_logarithm(name, norm):
    family = dataclasses.replace(ARCHITECTURES[name], start=8, middle=20)
    members = 10_000
    weights = draw(family.matrices(6, 3, 1), "fan_avg", 1.0, seed=0, members=members)
    x = torch.ones(members, 1, 3, dtype=torch.float64)
    _, start, end = ensemble_logits(family.kind, norm, weights, x)
    logs = (end.square().sum(dim=(1, 2)) / start.square().sum(dim=(1, 2))).log()
    logs = logs[logs.isfinite()]  # the formula is about networks with no dead layer
    assert len(logs) > 0.95 * members
    predicted = predicted_gains(family, 6, norm, "fan_avg", 1.0)["forward_typical"]
    # n = 10,000, α = 1e-5
    assert abs(logs.mean() - predicted) < 4.42 * logs.std() / math.sqrt(members)
    assert predicted < predicted_gains(family, 6, norm, "fan_avg", 1.0)["forward_predicted"]


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("name", ["residual-4", "ffn-4", "expand-4"])
def test_mean_signal_and_gradient_match_the_prediction(name, norm):
    family, members = dataclasses.replace(ARCHITECTURES[name], start=96, middle=384), 100
    shapes = family.matrices(6, 96, 1)
    weights = draw(shapes, "fan_quad_avg", HE, 0, members, torch.float32)
    x = torch.randn(members, 4, 96, generator=torch.Generator().manual_seed(1))
    _, start, end = ensemble_logits(family.kind, norm, [w.requires_grad_() for w in weights], x)
    # a Gaussian gradient of the last hidden state, as the predictions assume
    gradient = torch.randn(end.shape, generator=torch.Generator().manual_seed(2))
    (back,) = torch.autograd.grad((end * gradient).sum(), start)
    predicted = predicted_gains(family, 6, norm, "fan_quad_avg", HE)
    forward = (end.square().mean() / start.square().mean()).log().item()
    backward = back.square().mean().log().item()
    # one member's log ratio deviates by at most 0.36 (variance 5/width for each matrix)
    assert forward == pytest.approx(predicted["forward_predicted"], abs=0.16)
    assert backward == pytest.approx(predicted["backward_predicted"], abs=0.16)


def test_modes_share_their_draws():
    cells = {
        mode: measure_cell("expand-4", "none", HE, 4, "sgd", mode, seed=hash(mode) % 97, **SMALL)
        for mode in ("fan_in", "fan_out", "fan_geo_avg")
    }
    for mode in ("fan_in", "fan_out"):
        np.testing.assert_allclose(
            cells[mode]["forward"], cells["fan_geo_avg"]["forward"], rtol=1e-4
        )


def test_rates_are_spread_until_none_reaches_the_target():
    cell = measure_cell("residual-4", "layer", HE, 4, "adam", "fan_geo_avg", seed=0, **SMALL)
    found = np.isfinite(cell["steps_to_target"])
    assert found.any()
    assert not found[0].any()
    assert not found[-1].any()
    assert (np.diff(cell["log2_rates"]) == 1).all()


def test_outcomes_survive_as_text():
    steps = np.array([[12.0, math.nan], [9.0, 30.0]])
    text = encode_outcomes(steps, np.array([[False, True], [False, False]]))
    assert text == "12 x/9 30"
    np.testing.assert_array_equal(decode_outcomes(text), steps)


def trials(**outcomes):
    return pd.DataFrame(
        [
            {
                "architecture": "expand-2", "norm": "none", "gain": 1.0, "depth": depth,
                "optimizer": "sgd", "mode": mode, "first_log2_rate": -3, "outcomes": text,
            }
            for depth in (4, 8)
            for mode, text in outcomes.items()
        ]
    )  # fmt: skip


def test_summary_of_a_small_example():
    table = trials(fan_geo_avg="- -/40 10/25 25/x x", fan_in="- -/80 40/40 x/x x")
    summary = summarize(table).query("depth == 4").set_index("mode")
    assert summary.log2_best_rate.to_dict() == {"fan_geo_avg": -2, "fan_in": -2}
    assert summary.steps["fan_geo_avg"] == pytest.approx(20)
    assert summary.steps["fan_in"] == pytest.approx(math.sqrt(80 * 40))
    assert summary.octaves.to_dict() == {"fan_geo_avg": 2.0, "fan_in": 1.5}
    assert not summary.at_edge.any()
    cells = compare(summarize(table)).query("depth == 4").set_index("mode")
    assert cells.steps_ratio["fan_in"] == pytest.approx(math.sqrt(2 * 4))
    half = 12.706 * math.log(2) / 2  # Student's quantile for 1 degree of freedom
    assert cells.steps_ratio_upper["fan_in"] == pytest.approx(math.sqrt(8) * math.exp(half), 1e-3)
    assert cells.octaves_difference["fan_in"] == -0.5


def test_settings_that_fail_count_for_the_range_and_not_for_the_steps():
    table = trials(fan_geo_avg="- -/40 10/x x", fan_in="- -/- -/- -")
    (row,) = pool(summarize(table), ["norm"]).query("mode == 'fan_in'").to_dict("records")
    assert (row["settings"], row["trained"], row["compared"]) == (2, 0, 0)
    assert math.isnan(row["steps_ratio"])
    assert row["octaves_difference"] == -1


def test_edges_are_flagged():
    assert summarize(trials(fan_geo_avg="40 10/- -")).at_edge.all()


def test_grid_holds_every_mode_in_every_setting():
    grid = pd.DataFrame(study_grid())
    counts = grid.groupby(["architecture", "norm", "gain", "depth", "optimizer"])["mode"].nunique()
    assert (counts == len(MODES)).all()
    assert set(grid.architecture) == set(ARCHITECTURES)
    assert set(grid.depth) == {4, 8, 16, 64}


def test_any_number_of_workers_and_a_stored_record_give_the_same(tmp_path):
    protocol = Protocol(**SMALL)
    grid = [
        config
        for config in study_grid(quick=True)
        if config["mode"] in ("fan_geo_avg", "fan_quad_avg") and config["norm"] == "layer"
    ]
    one, two = (study(Request(quick=True, n_jobs=n), protocol, grid) for n in (1, 2))
    for name in one.tables:
        pd.testing.assert_frame_equal(one.tables[name], two.tables[name], check_exact=True)
    save_record(one, tmp_path)
    again = stored_record(tmp_path)
    pd.testing.assert_frame_equal(again.tables[""], one.tables[""])
    pd.testing.assert_frame_equal(again.tables["groups"], one.tables["groups"])


def test_stored_record_must_be_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`folder` must hold A-study_trials\.csv"):
        stored_record(tmp_path)


def test_quick_study_is_drawn(tmp_path):
    (spec,) = FIGURES
    record = spec.compute(Request(quick=True, n_jobs=1))
    paths = save_record(record, tmp_path) + save_drawing(spec.draw(record), spec.name, tmp_path)
    assert all(path.stat().st_size > 0 for path in paths)
    assert not any(word in record.caption for word in ("nan", "None"))
    assert (record.tables[""].reached == 1).all()
    assert not record.tables[""].at_edge.any()


def test_classes_from_files(tmp_path):
    generator = np.random.default_rng(0)
    X, y = generator.integers(0, 256, (6, 2, 3), dtype=np.uint8), np.arange(6) % 3
    np.savez(tmp_path / "set.npz", x_train=X, y_train=y.astype(np.uint8))
    for name, array in (("train-images-idx3-ubyte", X), ("train-labels-idx1-ubyte", y)):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        content = header + array.astype(np.uint8).tobytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    loaded = [load_classes(tmp_path / name) for name in ("set.npz", "train-images-idx3-ubyte.gz")]
    for inputs, classes in loaded:
        assert inputs.shape == (6, 6)
        assert inputs.dtype == np.float32
        assert inputs.mean() == pytest.approx(0, abs=1e-6)
        assert (inputs**2).mean() == pytest.approx(1, rel=1e-5)
        np.testing.assert_array_equal(classes, y)
    np.testing.assert_array_equal(loaded[0][0], loaded[1][0])


def test_wrong_files(tmp_path):
    np.savez(tmp_path / "no-classes.npz", X=np.ones((4, 2)))
    np.savez(tmp_path / "fractions.npz", x_train=np.eye(4), y_train=np.full(4, 0.5))
    with pytest.raises(ValueError, match=r"no-classes.npz must hold classes as y or y_train"):
        load_classes(tmp_path / "no-classes.npz")
    with pytest.raises(ValueError, match=r"fractions.npz must hold one class 0, 1, … a sample"):
        load_classes(tmp_path / "fractions.npz")
    with pytest.raises(FileNotFoundError, match="`path` must be an existing file"):
        load_classes(Path(tmp_path) / "missing.npz")


@pytest.fixture(scope="module")
def stored():
    return stored_record(STORED)


def group(record, name, depth):
    groups = record.tables["groups"]
    return groups[(groups.group == name) & (groups.depth == depth)].set_index("mode")


def test_stored_tables_derive_from_the_stored_trials(stored):
    for name in ("", "groups", "families", "norms"):
        read = pd.read_csv(STORED / f"A-study{'_' + name if name else ''}.csv")
        pd.testing.assert_frame_equal(
            read, stored.tables[name].reset_index(drop=True), rtol=1e-8, check_dtype=False
        )
    trials = stored.tables["trials"]
    grid = pd.DataFrame(study_grid())
    key = ["architecture", "norm", "depth", "optimizer", "mode"]
    assert trials[key].to_numpy().tolist() == grid[key].to_numpy().tolist()


def test_a_cell_of_the_stored_study_comes_out_again(stored):
    protocol = Protocol(**stored.settings)
    grid = [
        config
        for config in study_grid()
        if config["architecture"] == "ffn-4" and config["depth"] == 4 and config["gain"] == 1
    ][:5]
    again = study(Request(n_jobs=1), protocol, grid).tables[""].set_index("mode")
    cells = stored.tables[""]
    part = cells[(cells.architecture == "ffn-4") & (cells.depth == 4) & (cells.gain == 1)]
    part = part[part.optimizer == "sgd"].set_index("mode")
    # another machine may round otherwise, and training amplifies it
    np.testing.assert_allclose(again.steps, part.steps, rtol=0.1)
    np.testing.assert_allclose(again.octaves, part.octaves, atol=0.6)


def test_findings_plain_stacks(stored):
    """What the page says: plain deep stacks need an average that is neutral from end to end."""
    deep = group(stored, "plain, gain √2", 16)
    assert (deep.octaves[["fan_avg", "fan_quad_avg"]] < deep.octaves.fan_geo_avg - 0.5).all()
    assert deep.octaves_difference_upper["fan_quad_avg"] < -2
    assert deep.octaves_difference_upper["fan_avg"] < 0
    assert deep.steps_ratio_lower["fan_quad_avg"] > 1.1
    for mode in ("fan_in", "fan_out"):
        assert deep.octaves_difference_lower[mode] < 0 < deep.octaves_difference_upper[mode]
        assert deep.trained[mode] == deep.trained["fan_geo_avg"]


def test_findings_normalised_stacks(stored):
    """What the page says: with normalisation no average is far from another."""
    groups = stored.tables["groups"]
    normed = groups[groups.group.str.contains("normalised")]
    assert normed.steps_ratio.dropna().between(0.9, 1.15).all()
    assert normed.octaves_difference.abs().max() < 0.4
    whole = stored.tables["norms"].query("norm == 'layer'").set_index("mode")
    assert (whole.settings == 38).all()
    assert whole.trained.between(35, 36).all()
    assert whole.steps_ratio_lower.gt(0.95).all()
    assert whole.steps_ratio_upper.lt(1.09).all()


def test_findings_residual_stacks(stored):
    """What the page says: without normalisation the smallest branch wins, whatever its mode."""
    for name in ("residual, gain √2", "residual, gain 1"):
        deep = group(stored, name, 16)
        assert deep.steps_ratio_upper["fan_quad_avg"] < 0.9
        assert deep.steps_ratio_upper["fan_avg"] < 0.9
    assert group(stored, "residual, gain √2", 64).trained.sum() == 1
    scaled = group(stored, "residual, gain √(2/blocks)", 64)
    assert (scaled.trained == scaled.settings).all()
    assert scaled.steps_ratio.between(0.89, 1.07).all()


def test_findings_single_fans(stored):
    """What the page says: fan_out is a little faster than fan_in."""
    steps = summarize(stored.tables["trials"]).pivot(
        index=["architecture", "norm", "gain", "depth", "optimizer"],
        columns="mode",
        values="log_steps",
    )
    logs = np.array(steps.fan_out.tolist()) - np.array(steps.fan_in.tolist())
    logs = logs[np.isfinite(logs).all(axis=1)]
    assert len(logs) == 97
    assert np.exp(logs.mean()) == pytest.approx(0.93, abs=0.005)
    assert (np.exp(logs.mean(axis=0)) < 0.97).all()


@pytest.mark.parametrize("depth", [2, 5])
def test_depth_must_close_its_pairs(depth):
    with pytest.raises(ValueError, match="`depth` must be an even number of at least 4"):
        ARCHITECTURES["expand-2"].matrices(depth, 64, 10)
