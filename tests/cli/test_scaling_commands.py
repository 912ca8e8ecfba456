"""Commands on a user's own model file: plan, check and transfer."""

import json

import pandas as pd
import pytest


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "FILE", "--base", "16", "--target", "64x1"], "`base` must be WIDTHxDEPTH"),
        (["check", "nowhere.py"], "must be an existing Python file"),
        (["check", "WITHOUT_STEP"], "must define step"),
        (["transfer", "WITHOUT_STEP"], "must define step"),
        (["check", "FILE", "--width", "8", "--depth", "1"], "must have at least two sizes"),
    ],
)
def test_bad_input(run, model_file, file_without_step, tmp_path, arguments, message):
    files = {"FILE": model_file, "WITHOUT_STEP": file_without_step}
    result = run(*(files.get(a, a) for a in arguments), "--out", tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
