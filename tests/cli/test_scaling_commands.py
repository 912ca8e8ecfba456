"""Commands on a user's own model file: plan, check and transfer."""

import json

import pandas as pd
import pytest

from scalinglimits.cli.options import progress_bar


def test_plan_is_printed_explained_and_saved(run, model_file, tmp_path):
    result = run(
        "plan", model_file, "--base", "16x1", "--target", "64x1", "--optimizer", "adam",
        "--depth-rule", "none", "--explain", "hidden.0.weight", "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "hidden.0.weight (64, 64): hidden, adam" in result.stdout
    frame = pd.read_csv(tmp_path / "plan.csv", index_col=0)
    assert frame.loc["hidden.0.weight", ["init", "lr"]].tolist() == [0.5, 0.25]
    assert json.loads((tmp_path / "plan.json").read_text())


def test_check_passes_under_the_plan_and_fails_without(run, model_file, tmp_path):
    sizes = ["--width", 32, "--width", 64, "--width", 128, "--depth", 1, "--seeds", 3]
    held = run("check", model_file, *sizes, "--depth-rule", "none", "--out", tmp_path)
    assert held.returncode in (0, 3), held.stdout + held.stderr
    assert "scaling fails" not in held.stdout
    failed = run("check", model_file, *sizes, "--unscaled", "--json", "--out", tmp_path)
    assert failed.returncode == 1, failed.stderr
    assert json.loads(failed.stdout)["verdict"] == "fails"
    assert (tmp_path / "check.png").exists()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_transfer_writes_its_tables(run, model_file, tmp_path, n_jobs):
    result = run(
        "transfer", model_file, "--width", 16, "--width", 32, "--depth", 1, "--steps", 4,
        "--seeds", 2, "--depth-rule", "none", "--n-jobs", n_jobs, "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode in (0, 1, 3), result.stderr
    drifts = pd.read_csv(tmp_path / "transfer_drifts.csv")
    assert drifts.scaling.tolist() == ["plan", "standard"]
    assert "doublings for each doubling of width" in result.stdout


def test_transfer_with_rates_of_its_own(run, model_file, tmp_path):
    arguments = (
        "transfer", model_file, "--width", 16, "--width", 32, "--depth", 1, "--steps", 2,
        "--seeds", 2, "--depth-rule", "none", "--lr", "0.001:0.016:5", "--n-jobs", 1,
        "--out", tmp_path,
    )  # fmt: skip
    assert run(*arguments).returncode in (0, 1, 3)
    rates = pd.read_csv(tmp_path / "transfer_losses.csv").lr
    assert sorted(set(rates.round(6))) == [0.001, 0.002, 0.004, 0.008, 0.016]
    # Another model in the same file is measured anew.
    model_file.write_text(model_file.read_text() + "\n")
    assert run(*arguments).returncode in (0, 1, 3)
    assert len(list(tmp_path.glob("cells-*.sqlite"))) == 2


NAMED = """
from torch import nn


def build(*, width, layers, ffn):
    def block():
        return nn.Sequential(nn.Linear(width, ffn), nn.ReLU(), nn.Linear(ffn, width))

    blocks = [block() for _ in range(layers)]
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 1))


def step(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()
"""


@pytest.fixture
def named_file(tmp_path, model_file):
    path = tmp_path / "named.py"
    batches = model_file.read_text().partition("def batches")
    path.write_text(NAMED + "\nimport torch\n" + batches[1] + batches[2])
    return path


def test_plan_of_named_axes(run, named_file, tmp_path):
    result = run(
        "plan", named_file, "--base", "width=16,layers=1,ffn=32", "--target",
        "width=16, layers=1, ffn=128", "--optimizer", "adam", "--depth-rule", "none",
        "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    frame = pd.read_csv(tmp_path / "plan.csv", index_col=0)
    assert frame.loc["1.2.weight", "role"] == "readout"
    assert frame.loc["1.2.weight", ["init", "lr"]].tolist() == pytest.approx([0.25, 0.25])
    assert json.loads((tmp_path / "plan.json").read_text())["settings"]["base"]["ffn"] == 32


def test_check_along_named_axes(run, named_file, tmp_path):
    result = run(
        "check", named_file, "--axis", "ffn=32,64,128", "--axis", "width=32", "--axis", "layers=2",
        "--depth-axis", "layers", "--unscaled", "--seeds", 3, "--steps", 1, "--json",
        "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    found = json.loads(result.stdout)
    assert found["settings"]["axes"]["ffn"] == {"ffn": [32, 64, 128]}
    assert {finding["axis"] for finding in found["findings"]} == {"ffn"}
    assert found["suspects"]
    assert set(found["suspects"]) <= {"*.2.weight"}
    assert {"width", "layers", "ffn"} <= set(pd.read_csv(tmp_path / "check_record.csv").columns)
    assert (tmp_path / "check.png").exists()


def test_transfer_along_axes_that_grow_together(run, named_file, tmp_path):
    result = run(
        "transfer", named_file, "--axis", "width:ffn=8:16,16:32", "--axis", "layers=1",
        "--steps", 2, "--seeds", 2, "--depth-rule", "none", "--n-jobs", 1, "--out", tmp_path,
    )  # fmt: skip
    assert result.returncode in (0, 1, 3), result.stderr
    losses = pd.read_csv(tmp_path / "transfer_losses.csv")
    assert set(zip(losses.width, losses.ffn, strict=True)) == {(8, 16), (16, 32)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "FILE", "--base", "16", "--target", "64x1"], "`base` must be WIDTHxDEPTH"),
        (["plan", "FILE", "--base", "width=16,width=8", "--target", "64x1"], "each axis once"),
        (["plan", "FILE", "--base", "16x1", "--target", "width=8"], "must have the axes of `base`"),
        (["check", "FILE", "--axis", "heads"], "`--axis` must be a name and its numbers, such as"),
        (["check", "FILE", "--axis", "heads=4:8,x"], "got 'heads=4:8,x'"),
        (
            ["check", "FILE", "--axis", "a=1,2", "--axis", "a=1"],
            "must name each axis once; got 'a'",
        ),
        (["check", "FILE", "--axis", "width=8:9,16:9"], "must be positive integers"),
        (["transfer", "FILE", "--axis", "w=8,16", "--width", "8"], "`axes` must come without"),
        (["check", "FILE", "--depth-axis", "w"], "`depth_axis` must come with `axes`"),
        (["transfer", "FILE", "--lr", "1e-3:1e-1"], "`--lr` must be START:STOP:COUNT or numbers"),
        (["transfer", "FILE", "--lr", "1e-3,1e-2"], "must be five positive rates or more"),
        (["check", "FILE", "--device", "none"], "`device` must be one that works here; got 'none'"),
        (
            ["plan", "FILE", "--base", "8x1", "--target", "16x1", "--explain", "hidden.0.wight"],
            "`--explain` must be a parameter of the plan, such as hidden.0.weight",
        ),
        (["check", "nowhere.py"], "must be an existing Python file"),
        (["check", "WITHOUT_STEP"], "must define step"),
        (["transfer", "WITHOUT_STEP"], "must define step"),
        (["check", "FILE", "--width", "8", "--depth", "1"], "must have at least two sizes"),
        (["check", "FILE", "--width", "8", "--depth", "1", "--depth", "2"], "--depth-rule none"),
        (
            ["transfer", "FILE", "--steps", "5", "--depth", "1", "--depth", "2"],
            "--depth-rule none",
        ),
    ],
)
def test_bad_input(run, model_file, file_without_step, tmp_path, arguments, message):
    files = {"FILE": model_file, "WITHOUT_STEP": file_without_step}
    result = run(*(files.get(a, a) for a in arguments), "--out", tmp_path)
    assert result.returncode == 2
    assert message in result.stderr


def test_an_error_of_the_users_file_says_where(run, model_file, tmp_path):
    model_file.write_text(model_file.read_text().replace("model(x) - y", "model(x) - y[:, :0].T"))
    line = next(
        number
        for number, text in enumerate(model_file.read_text().splitlines(), 1)
        if "y[:, :0].T" in text
    )
    sizes = ["--width", 8, "--width", 16, "--depth", 1, "--out", tmp_path]
    result = run("check", model_file, *sizes, "--unscaled")
    # Status 1 would say that the scaling fails.
    assert result.returncode == 2
    first, *_, last = result.stderr.splitlines()
    assert first == f'  File "{model_file}", line {line}, in step'
    assert last.startswith(f"scalinglimits: {model_file}, line {line}, in step: RuntimeError: ")
    result = run("transfer", model_file, *sizes, "--steps", 2, "--seeds", 2, "--n-jobs", 1)
    assert result.returncode == 2
    assert "failed: " in result.stderr
    assert "Traceback" not in result.stderr


def test_a_plan_prints_equal_parameters_once(run, model_file, tmp_path):
    sizes = ["--base", "16x2", "--target", "64x4", "--depth-rule", "none", "--out", tmp_path]
    result = run("plan", model_file, *sizes, "--explain", "hidden.*.bias")
    assert result.returncode == 0, result.stderr
    assert "hidden.*.weight" in result.stdout
    assert "hidden.1.weight" not in result.stdout
    assert "12 parameters in 6 rows: * stands for every index." in result.stdout
    assert "hidden.0.bias (64,): bias, adamw" in result.stdout
    assert len(pd.read_csv(tmp_path / "plan.csv")) == 12


def test_check_draws_a_bar_on_a_terminal_only(monkeypatch, capsys):
    with progress_bar("check") as report:
        assert report is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_bar("check") as report:
        for done, total in ((1, 2), (2, 2), (1, 4)):
            report(done, total)
    output = capsys.readouterr()
    assert output.out == ""
    assert "check" in output.err
