"""Each example: short, learns, reads the user's own file, and scales under its plan."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from scalinglimits.checks import load_model_file, scaling_check

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))
WIDTHS = {"resnet": (16, 32, 64)}


def load(path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_is_short_and_learns(path):
    assert len(path.read_text().splitlines()) < 150
    file = load_model_file(path)
    assert file.learning_rate > 0
    torch.manual_seed(0)
    model = file.build(32, 2)
    optimizer = torch.optim.Adam(model.parameters(), file.learning_rate)
    losses = []
    for _, batch in zip(range(40), file.batches(), strict=False):
        optimizer.zero_grad()
        loss = file.step(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.05


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_does_not_fail_under_its_plan(path):
    file = load_model_file(path)
    check = scaling_check(
        file.build,
        file.step,
        file.batches,
        widths=WIDTHS.get(path.stem, (32, 64, 128))[: 2 if path.stem == "resnet" else 3],
        depths=(2, 4),
        seeds=2,
        max_seeds=2,
        steps=1,
    )
    assert not check.failures, str(check)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_holds_under_its_plan(path):
    file = load_model_file(path)
    check = scaling_check(
        file.build,
        file.step,
        file.batches,
        widths=WIDTHS.get(path.stem, (32, 64, 128)),
        depths=(2, 4, 8),
        steps=2,
    )
    assert check.verdict == "holds", str(check)


@pytest.mark.slow
def test_tied_gpt_holds_under_its_plan():
    gpt = load(FOLDER / "gpt.py")
    check = scaling_check(
        lambda width, depth: gpt.build(width, depth, tied=True), gpt.step, gpt.batches, steps=2
    )
    assert check.verdict == "holds", str(check)


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_own_text(name, tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("ab" * 100)
    monkeypatch.setenv("TEXT_FILE", str(path))
    batch = next(load(FOLDER / f"{name}.py").batches())
    assert set(batch.flatten().tolist()) == {ord("a"), ord("b")}


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_own_images(name, tmp_path, monkeypatch):
    path = tmp_path / "images.npz"
    x = np.random.default_rng(0).random((20, 3, 12, 12))
    np.savez(path, x=x, y=np.arange(20) % 10)
    monkeypatch.setenv("IMAGE_FILE", str(path))
    example = load(FOLDER / f"{name}.py")
    images, labels = next(example.batches())
    assert images.shape == (32, 3, 12, 12)
    options = {"channels": 3} if name == "resnet" else {"channels": 3, "size": 12}
    assert torch.isfinite(example.step(example.build(16, 1, **options), (images, labels)))


@pytest.mark.parametrize(("name", "multiple"), [("gpt", 8), ("vit", 8)])
def test_width_that_heads_do_not_divide(name, multiple):
    with pytest.raises(ValueError, match=f"`width` must be a multiple of {multiple}; got 12"):
        load(FOLDER / f"{name}.py").build(12, 1)
