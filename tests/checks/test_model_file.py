"""Files that define a model for the command line."""

import pytest

from scalinglimits.checks import load_model_file

GOOD = """
import helper
from dataclasses import dataclass
LEARNING_RATE = 0.1
@dataclass
class Batch:
    x: int
def build(width, depth): return helper.VALUE
def step(model, batch): return 0
batches = [Batch(1)]
"""


def test_good_file(tmp_path):
    (tmp_path / "helper.py").write_text("VALUE = 3")
    (tmp_path / "model.py").write_text(GOOD)
    file = load_model_file(tmp_path / "model.py")
    assert file.build(1, 2) == 3
    assert file.batches[0].x == 1
    assert file.learning_rate == 0.1


def test_only_build_is_needed_for_a_plan(tmp_path):
    (tmp_path / "model.py").write_text("def build(width, depth): return None")
    file = load_model_file(tmp_path / "model.py", needed=["build"])
    assert file.step is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("build = step = len", r"must define batches\(\), which returns an iterable"),
        ("def step(m, b): 0", r"must define build\(width, depth\), .* and batches\(\)"),
        ("build, step, batches = 1, len, []", r"must define build\(width, depth\).*; got int"),
        ("def build(:", r"model.py, line 1: invalid syntax"),
    ],
)
def test_bad_file(tmp_path, text, message):
    (tmp_path / "model.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_model_file(tmp_path / "model.py")


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="`FILE` must be an existing Python file"):
        load_model_file(tmp_path / "none.py")
    (tmp_path / "model.txt").write_text("")
    with pytest.raises(ValueError, match="`FILE` must be a Python file"):
        load_model_file(tmp_path / "model.txt")
