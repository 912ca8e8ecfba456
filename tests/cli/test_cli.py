"""The command line as a user types it, in a process of its own where that matters."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

COMMAND = [sys.executable, "-m", "scalinglimits"]


def run(*arguments, cwd=None):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_import_and_help_need_neither_torch_nor_matplotlib():
    code = (
        "import sys, json, scalinglimits\n"
        "import scalinglimits.cli\n"
        "print(json.dumps([m for m in ('torch', 'matplotlib', 'pandas', 'scipy')"
        " if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(result.stdout) == []


def test_import_is_quick():
    # 0.3 s is the promise; the bare interpreter's start is measured beside it, on the same machine
    def best(code):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best("import scalinglimits") - best("pass") < 0.3


def test_lazy_subpackages():
    code = "import scalinglimits as s; print(s.laws.Normal(), s.residual.BRANCHES[0], dir(s))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.startswith("Normal() res-1")
    assert "sweeps" in result.stdout


def test_version_and_help():
    assert run("--version").stdout.startswith("scalinglimits 0.")
    text = run("--help").stdout
    for command in ("propagate", "phase", "figure", "demo"):
        assert command in text


def test_propagate_on_a_users_file(tmp_path):
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


def test_phase_and_figure(tmp_path):
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
        (["figure", "R99"], "`names` must be among R1"),
        (["figure", "R6", "--setting", "guess"], "`setting` must be 'text' or 'code'"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, arguments, message):
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_zero_width_is_refused_by_the_parser(tmp_path):
    assert run("propagate", "--width", "0", "--out", tmp_path).returncode == 2
