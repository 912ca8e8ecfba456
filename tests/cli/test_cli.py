"""The command line as a user types it, in a process of its own where that matters."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest


def test_module_runs_as_a_command():
    command = [sys.executable, "-m", "scalinglimits", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("scalinglimits 0.")


def test_import_and_help_need_neither_torch_nor_matplotlib():
    code = (
        "import sys, json, scalinglimits\n"
        "import scalinglimits.cli\n"
        "print(json.dumps([m for m in ('torch', 'matplotlib', 'pandas', 'scipy')"
        " if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(result.stdout) == []


def test_lazy_subpackages():
    code = "import scalinglimits as s; print(s.laws.Normal(), s.residual.BRANCHES[0], dir(s))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.startswith("Normal() res-1")
    assert "sweeps" in result.stdout


def test_help_lists_the_commands(run):
    text = run("--help").stdout
    for command in ("propagate", "phase", "figure", "demo"):
        assert command in text


def test_propagate_on_a_users_file(run, tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.standard_normal((20, 6)), columns=list("abcdef")).to_csv(
        tmp_path / "mine.csv", index=False
    )
    arguments = ["propagate", "--data", tmp_path / "mine.csv", "--weights", "fractional:0.9"]
    arguments += ["--weights", "independent:rademacher", "--beta", "0.2", "--beta", "1.6"]
    arguments += ["--depth", "20", "--depth", "80", "--networks", "2", "--inputs", "4"]
    arguments += ["--n-jobs", "1", "--out", tmp_path / "out"]
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    assert "identity" in result.stdout
    assert "explosion" in result.stdout
    verdicts = pd.read_csv(tmp_path / "out" / "propagate_verdict.csv")
    assert verdicts.verdict.tolist() == ["explosion", "identity", "explosion", "identity"]
    assert verdicts.predicted.tolist()[1::2] == ["identity", "identity"]
    for ending in ("csv", "png", "svg", "txt"):
        assert (tmp_path / "out" / f"propagate.{ending}").stat().st_size > 0
    before = pd.read_csv(tmp_path / "out" / "propagate.csv")
    again = run(*arguments)  # resumes: all cells are there
    assert again.returncode == 0
    pd.testing.assert_frame_equal(before, pd.read_csv(tmp_path / "out" / "propagate.csv"))


def test_phase_and_figure(run, tmp_path):
    result = run(
        "phase", "--hurst", "0.3,0.8", "--beta", "0.1:1.5:8", "--depth", 32, "--draws", 2,
        "--width", 8, "--n-jobs", 1, "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    critical = pd.read_csv(tmp_path / "phase_critical.csv")
    assert critical.hurst.tolist() == [0.3, 0.3, 0.8, 0.8]
    assert (tmp_path / "phase.svg").exists()
    result = run("figure", "R6", "--quick", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "R6_estimates.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["propagate", "--data", "nowhere.csv"], "`path` must be an existing file"),
        (["propagate", "--data", "gaussian:x"], "`data` must give the dimension"),
        (["propagate", "--weights", "rough"], "`weights` must be one of independent"),
        (["propagate", "--weights", "fractional:1"], "must"),
        (["propagate", "--weights", "fractional"], "must give a Hurst index"),
        (["propagate", "--branch", "res-9"], "`branch` must be one of"),
        (["propagate", "--activation", "tanh"], "must be 'relu'"),
        (["propagate", "--beta", "nan"], "must be finite"),
        (["propagate", "--depth", "0"], "must be positive integers"),
        (["phase", "--hurst", "0.5:1"], "`hurst` must be START:STOP:COUNT"),
        (["phase", "--hurst", "1.0"], "must"),
        (["figure", "R99"], "`names` must be among A-study"),
        (["figure", "R6", "--setting", "guess"], "`setting` must be 'text' or 'code'"),
    ],
)
def test_bad_input_is_one_clear_line(run, tmp_path, arguments, message):
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_zero_width_is_refused_by_the_parser(run, tmp_path):
    assert run("propagate", "--width", "0", "--out", tmp_path).returncode == 2


def test_an_interrupted_run_says_how_to_go_on(run, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("scalinglimits.figures.profile.sweep", interrupt)
    result = run("propagate", "--data", "gaussian:4", "--out", tmp_path)
    assert result.returncode == 130
    assert "run the same command again to go on where it stopped" in result.stderr


def test_an_interrupted_run_that_keeps_nothing_promises_nothing(run, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("scalinglimits.checks.load_model_file", interrupt)
    result = run("check", "mine.py", "--out", tmp_path)
    assert result.returncode == 130
    assert result.stderr.splitlines()[-1] == "scalinglimits: interrupted"


def test_a_results_folder_that_is_a_file(run, tmp_path):
    (tmp_path / "taken").touch()
    result = run("propagate", "--data", "gaussian:4", "--out", tmp_path / "taken")
    assert result.returncode == 2
    assert result.stderr.strip() == f"scalinglimits: {tmp_path / 'taken'}: File exists"


@pytest.mark.parametrize("kind", ["sde", "ode", "young"])
def test_limit_reports_an_order(run, tmp_path, kind):
    result = run(
        "limit", kind, "--width", 6, "--depth", 16, "--depth", 64, "--replicates", 2,
        "--activation", "tanh" if kind != "ode" else "relu", "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "fitted order" in result.stdout
    table = pd.read_csv(tmp_path / f"limit-{kind}.csv")
    assert table.depth.tolist() == [16, 64, 16, 64]
    states = table[table.quantity == "states"].error
    assert states.iloc[1] < states.iloc[0]
    assert (tmp_path / f"limit-{kind}.png").exists()


def test_limit_norm(run, tmp_path):
    result = run("limit", "norm", "--width", 100, "--depth", 1000, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(tmp_path / "limit-norm.csv").set_index("depth")
    assert table.loc["1000", ["q25", "q75"]].tolist() == pytest.approx([1.218, 1.340], abs=1e-3)
    bounds = table.loc["1000", ["norm_lower", "norm_upper"]].tolist()
    assert bounds == pytest.approx([0.866, 2.062], abs=1e-3)


def test_init_on_shapes_and_on_a_file(run, tmp_path):
    out = ["--draws", 2, "--out", tmp_path]
    result = run("init", "--shapes", "32x128,128x32", "--mode", "fan_geo_avg", *out)
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(tmp_path / "init.csv")
    end = table[table.layer == "end to end"]
    assert end.forward_predicted.item() == pytest.approx(1)
    assert end.forward.item() == pytest.approx(1, abs=0.3)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def wide(width, depth):\n"
        "    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 8))\n"
    )
    file = f"{tmp_path / 'mine.py'}:wide"
    result = run("init", file, "--input-shape", "8", "--width", "40", *out)
    assert result.returncode == 0, result.stderr
    assert pd.read_csv(tmp_path / "init.csv")["mode"].nunique() == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["limit", "pde"], "`kind` must be sde, ode, young or norm"),
        (["limit", "sde", "--depth", "8"], "two different depths"),
        (["limit", "young", "--hurst", "0.4"], "`hurst` must be strictly between"),
        (["limit", "norm", "--delta", "2"], "`delta` must be strictly between 0 and 1"),
        (["init"], "`MODEL` or `--shapes` must be given"),
        (["init", "--shapes", "3by4"], "`shapes` must be INxOUT"),
        (["init", "--shapes", "3x4", "--activation", "Relu"], "module of torch.nn"),
        (["init", "nowhere.py"], "must be an existing Python file"),
    ],
)
def test_bad_input_of_limit_and_init(run, tmp_path, arguments, message):
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 2
    assert message in result.stderr


def test_linear_on_a_users_file(run, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 4))
    np.savez(tmp_path / "mine.npz", X=X, y=X @ [1.0, -1.0, 0.5, 0.0])
    result = run(
        "linear", tmp_path / "mine.npz", "--width", "inf", "--width", "1e12", "--replicates", 1,
        "--steps", 400, "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(tmp_path / "linear.csv")
    assert table.width.tolist() == [np.inf, 1e12]
    np.testing.assert_allclose(table.final_loss[0], table.final_loss[1], rtol=1e-3)
    assert (table.final_loss < 0.1 * table.first_loss).all()
    assert (tmp_path / "linear.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["linear", "nowhere.csv"], "must be an existing file"),
        (["linear", "x.csv", "--width", "2.5"], "`width` must be a positive integer"),
        (["linear", "x.csv", "--width", "wide"], "`width` must be a positive integer"),
        (["linear", "x.csv", "--loss", "hinge"], "`loss` must be one of"),
        (["linear", "x.csv", "--step-size", "-1"], "`step_size` must be positive"),
    ],
)
def test_bad_input_of_linear(run, tmp_path, arguments, message):
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
