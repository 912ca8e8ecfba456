"""A command run in this process, and model files as a user writes them."""

import sys
from dataclasses import dataclass

import pytest

from scalinglimits.cli import main

MODEL_FILE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = torch.tanh(self.embed(x))
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.head(x)


def build(width, depth):
    return Net(width, depth)


def step(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def batches():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        x = torch.randn(32, 8, generator=generator)
        yield x, x[:, :1] * x[:, 1:2]
"""
FILE_WITHOUT_STEP = "def build(width, depth):\n    ...\nbatches = []\n"


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process, which has imported torch already."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["scalinglimits", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = capsys.readouterr()
        return Result(code, output.out, output.err)

    return call


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODEL_FILE)
    return path


@pytest.fixture
def file_without_step(tmp_path):
    path = tmp_path / "without.py"
    path.write_text(FILE_WITHOUT_STEP)
    return path
