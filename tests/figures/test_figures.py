"""Each figure in its quick size: the record's numbers agree with the theory drawn beside them."""

import math

import numpy as np
import pandas as pd
import pytest

from scalinglimits.figures import FIGURES, FigureRecord, Request, save_drawing, save_record
from scalinglimits.figures.profile import ProfileRequest, draw_profiles, profile_record

SERIAL = Request(quick=True, n_jobs=1)
QUICK = [f"R{i}" for i in range(1, 8)]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    request = Request(quick=True, n_jobs=1, store=tmp_path_factory.mktemp("store") / "cells.sqlite")
    return {name: spec.compute(request) for name, spec in FIGURES.items() if name in QUICK}


def test_every_figure_of_the_document_up_to_7_is_there():
    assert [f"R{i}" for i in range(1, 8)] == [name for name in FIGURES if name.startswith("R")][:7]


@pytest.mark.parametrize("name", [f"R{i}" for i in range(1, 8)])
def test_record_is_saved_and_drawn(records, tmp_path, name):
    record = records[name]
    paths = save_record(record, tmp_path) + save_drawing(FIGURES[name].draw(record), name, tmp_path)
    assert all(path.stat().st_size > 0 for path in paths)
    assert {path.suffix for path in paths} == {".csv", ".txt", ".png", ".svg"}
    read = pd.read_csv(tmp_path / f"{name}.csv")
    assert list(read.columns) == list(record.tables[""].columns)
    assert not any(word in record.caption for word in ("nan", "None"))


@pytest.mark.parametrize(
    ("name", "identity", "critical", "explosion"),
    [("R1", 1.0, 0.5, 0.25), ("R3", 1.0, 0.5, 0.25), ("R4", 2.0, 1.0, 0.5), ("R5", 2.0, 1.0, 0.5)],
)
def test_three_regimes_against_depth(records, name, identity, critical, explosion):
    median = records[name].tables[""].pivot(index="depth", columns="beta", values="median")
    slope = np.polyfit(np.log(median.index), np.log(median), 1)[0]
    slopes = dict(zip(median.columns, slope, strict=True))
    assert slopes[identity] == pytest.approx(
        (1 - 2 * identity) / 2 if name in ("R1", "R3") else -1, abs=0.12
    )
    assert slopes[critical] == pytest.approx(0, abs=0.12)
    assert slopes[explosion] > 0.7


@pytest.mark.parametrize("name", ["R1", "R3", "R4", "R5"])
def test_small_changes_match_the_theory(records, name):
    table = records[name].tables[""]
    small = table[table.theory_root_mean_square < 0.2]
    ratio = small.root_mean_square / small.theory_root_mean_square
    # 12 networks a point: a mean square of about 40 degrees of freedom each
    assert np.abs(np.log(ratio)).max() < 0.35
    assert abs(np.log(ratio).mean()) < 0.1


def test_norm_law_quartiles(records):
    table = records["R2"].tables[""].set_index("sample")
    assert table.loc["exact law", "lower_quartile"] == pytest.approx(1.218, abs=0.006)
    assert table.loc["exact law", "upper_quartile"] == pytest.approx(1.340, abs=0.006)
    assert table.loc["exact law", "p_value_limit_law"] > 1e-5
    assert table.loc["networks, signal", "p_value_limit_law"] > 1e-5


def test_phase_boundary_follows_theory(records):
    critical = records["R7"].tables["critical"]
    deviation = (critical.beta_c - critical.theory_depth) / critical.standard_error
    # Student's t with 2 degrees of freedom: half the values lie within 0.82
    assert deviation.abs().median() < 3
    assert (critical.beta_c - critical.theory_depth).abs().mean() < 0.05


@pytest.mark.slow
def test_shift_with_depth_follows_theory():
    table = FIGURES["R7-depths"].compute(SERIAL).tables[""]
    deviation = (table.beta_c - table.theory_depth) / table.standard_error
    assert np.sqrt((deviation**2).mean()) < 2
    signal = table[table.quantity == "hidden_change"]
    assert (signal.extrapolated - signal.theory_limit).abs().mean() < 0.05


def test_public_code_setting_uses_increments():
    record = FIGURES["R4"].compute(Request(quick=True, setting="code", n_jobs=1))
    assert record.settings["weights"] == "smooth increments"


def test_profiles_hold_verdicts_and_theory():
    wanted = ProfileRequest(
        data="gaussian:8", weights=("independent",), betas=(0.5, 1.5), depths=(16, 64), networks=3,
        inputs=4, width=20,
    )  # fmt: skip
    record = profile_record(wanted, SERIAL)
    assert isinstance(record, FigureRecord)
    verdicts = record.tables["verdict"]
    assert verdicts.verdict.tolist() == ["non-trivial", "identity"]
    assert verdicts.suggested_beta.tolist() == pytest.approx([0.5, 0.5])
    profile = record.tables["profile"]
    end = profile[(profile.beta == 1.5) & (profile.layer == 64)]
    exact = 0.5 * math.log10(math.expm1(64 * math.log1p(64**-3.0 / 2)))
    assert end.log10_hidden_theory.item() == pytest.approx(exact)
    assert end.log10_hidden.item() == pytest.approx(exact, abs=0.15)
    assert draw_profiles(record).axes


def test_profile_without_theory_for_other_activations():
    wanted = ProfileRequest(
        data="gaussian:8", branch="res-2", activation="tanh", depths=(16,), networks=2, width=10
    )
    record = profile_record(wanted, SERIAL)
    assert record.tables["profile"].log10_hidden_theory.isna().all()
    assert record.tables["verdict"].predicted.tolist() == [""]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": ()}, "`weights` must hold at least one"),
        ({"betas": (math.nan,)}, "`betas` must be finite"),
        ({"depths": (0,)}, "`depths` must be positive"),
        ({"inputs": 0}, "`inputs` must be a positive integer"),
    ],
)
def test_wrong_profile_requests(options, message):
    with pytest.raises(ValueError, match=message):
        ProfileRequest(**options)
