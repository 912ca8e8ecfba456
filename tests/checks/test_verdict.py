"""Verdicts: their error rates, what they say, and what would decide them."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scalinglimits.checks.hints import hint
from scalinglimits.checks.quantities import TOLERANCE, expected_exponent
from scalinglimits.checks.result import ScalingCheck
from scalinglimits.checks.verdict import judge, overall, seeds_needed

ABOUT = {
    "axis": "width",
    "kind": "contribution",
    "name": "head.weight",
    "use": "head:linear",
    "step": 3,
    "role": "readout",
    "parameters": ("head.weight",),
}
SIZES = np.repeat([32.0, 64, 128], 4)


def finding(exponent, noise=0.0, seed=0, expected=(0.0, 0.0), tests=1, **options):
    rng = np.random.default_rng(seed)
    y = SIZES**exponent * np.exp(noise * rng.standard_normal(len(SIZES)))
    return judge(SIZES, y, expected=expected, tests=tests, **{**ABOUT, **options})


@pytest.mark.parametrize(
    ("exponent", "verdict"),
    [(0.0, "holds"), (0.24, "holds"), (-0.24, "holds"), (0.26, "fails"), (-1.0, "fails")],
)
def test_exact_powers(exponent, verdict):
    assert finding(exponent).verdict == verdict


def test_one_sided_range():
    assert finding(-3.0, expected=(-math.inf, 0.0)).verdict == "holds"
    assert finding(0.5, expected=(-math.inf, 0.0)).verdict == "fails"
    assert finding(-0.5, expected=(-0.5, 0.0)).verdict == "holds"
    assert finding(5.0, expected=None).verdict == ""


def test_noise_is_undecided_and_more_seeds_decide():
    found = finding(0.1, noise=0.4, seed=3)
    assert found.verdict == "undecided"
    assert seeds_needed(found, 4) > 4


def test_false_alarms_on_the_border_of_the_tolerance():
    # The worst case: the exponent lies on the border, one test, level 0.01 two-sided. n = 2000;
    # failures are binomial with p <= 0.005 up to the level of Student's interval; α = 1e-5.
    failures = sum(
        finding(TOLERANCE, noise=0.2, seed=seed).verdict == "fails" for seed in range(2000)
    )
    assert failures <= stats.binom.ppf(1 - 1e-5, 2000, 0.005)
    wrong = sum(finding(TOLERANCE, noise=0.2, seed=seed).verdict == "holds" for seed in range(500))
    assert wrong <= stats.binom.ppf(1 - 1e-5, 500, 0.05)


def test_zero_everywhere_is_no_finding_and_zero_somewhere_fails():
    assert judge(SIZES, np.zeros(12), expected=(0.0, 0.0), tests=1, **ABOUT) is None
    found = judge(SIZES, np.where(SIZES > 100, 0.0, 1.0), expected=(0.0, 0.0), tests=1, **ABOUT)
    assert found.verdict == "fails"
    assert "exactly zero at width 128 only" in found.text


def test_words():
    found = finding(-0.94, hint="learning rate scaled twice?")
    assert found.text == (
        "head.weight (readout): its update's contribution falls as width^−0.94 [−0.94, −0.94] "
        "(expected 0): learning rate scaled twice?"
    )
    assert found.excess == pytest.approx(-0.94)
    assert finding(0.0, hint="learning rate scaled twice?").text.endswith("(expected 0)")


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [("", "holds"), ("h", "holds"), ("hu", "undecided"), ("huf", "fails")],
)
def test_overall(verdicts, whole):
    made = {
        "h": finding(0.0),
        "u": finding(0.1, noise=0.4, seed=3),
        "f": finding(1.0),
    }
    assert overall([made[v] for v in verdicts]) == whole


def check_of(*findings):
    settings = {"seeds": 4, "axes": {"width": {"width": [32, 64, 128]}}}
    return ScalingCheck(findings, pd.DataFrame(), settings, notes=("a note",))


def test_record_of_a_check():
    check = check_of(finding(1.0), finding(0.1, noise=0.4, seed=3, name="x"), finding(0.0))
    assert (check.verdict, check.exit_code) == ("fails", 1)
    assert check.suspects == ("head.weight",)
    assert "width 256 added" in check.advice()
    plain = json.loads(json.dumps(check.to_dict(), allow_nan=False))
    assert plain["verdict"] == "fails"
    assert len(plain["findings"]) == 3
    assert list(check.to_frame().verdict) == ["fails", "undecided", "holds"]
    assert "suspects: head.weight" in str(check)
    assert "a note" in check._repr_html_()
    assert check_of(finding(0.0)).exit_code == 0
    assert check_of(finding(0.0)).advice() == ""
    assert check_of(finding(0.1, noise=0.4, seed=3)).exit_code == 3


def test_expected_exponents():
    def width(kind, **about):
        return expected_exponent(kind, "width", **about)

    def depth(kind, **about):
        return expected_exponent(kind, "depth", **about)

    for role in ("input", "hidden", "readout", "vector"):
        assert width("contribution", role=role) == (0.0, 0.0)
    assert width("contribution", role="hidden", growing_head=True) == (-0.5, 0.0)
    assert width("contribution", role="vector", gain=True) == (-1.0, 0.0)
    assert width("share", role="readout") == (-math.inf, -0.5)
    assert width("share", role="readout", tied=True) == (-math.inf, 0.0)
    assert width("logits", growing_head=True) == (-0.5, -0.5)
    assert width("activation") is None
    assert depth("block_share", alpha=0.5) == (-0.5, -0.5)
    assert depth("block_share") == (-1.0, -0.5)
    assert depth("block_contribution", alpha=0.5) == (-1.0, -1.0)
    assert depth("block_contribution", residual=False) is None
    assert depth("contribution", in_block=True) is None
    assert depth("contribution") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (("contribution", "width", "readout", -1.0), "learning rate scaled twice?"),
        (("contribution", "width", "hidden", 1.0), "learning rate not scaled with width?"),
        (("contribution", "width", "input", -1.0), "learning rate scaled as that of a hidden"),
        (("share", "width", "input", -0.5), "fans swapped"),
        (("share", "width", "readout", 0.5), "standard initialisation of a readout?"),
        (("logits", "width", "", 0.5), "It must be 1/d"),
        (("block_share", "depth", "", 1.0), "branch scale forgotten?"),
        (("block_share", "depth", "", -0.5), r"1/√\(2L\)"),
        (("gradient_ratio", "depth", "", 0.5), "gradient explodes"),
    ],
)
def test_hints(about, words):
    import re

    assert re.search(words, hint(*about, frozen=False, tied=False))
    assert hint("contribution", "width", "readout", -1.0, frozen=False, tied=True).startswith(
        "tied"
    )
    assert "ε" in hint("contribution", "width", "hidden", -1.0, frozen=True, tied=False)
