"""The command that shows what each average of the fans does to a model."""

from __future__ import annotations

__all__ = ["init"]

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalinglimits.cli.options import Out, Seed, print_table, rich_table

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from scalinglimits.checks.model_file import ModelFile


def init(
    model: Annotated[
        str | None,
        typer.Argument(
            help="FILE.py, whose build returns a module; FILE.py:NAME for another name."
        ),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(help="Instead of a file: dense layers in a chain, such as 128x512,512x128."),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            help="fan_in, fan_out, fan_avg, fan_geo_avg or fan_quad_avg; all by default. Repeat."
        ),
    ] = None,
    gain: Annotated[float, typer.Option(help="Factor of all deviations, such as 1.414.")] = 1.0,
    activation: Annotated[
        str | None, typer.Option(help="For --shapes: module of torch.nn between layers: ReLU, ...")
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(help="Shape of one input, such as 3x32x32; else the file's first batch."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Number of random inputs.", min=1)] = 256,
    draws: Annotated[int, typer.Option(help="Initialisations to average over.", min=1)] = 8,
    width: Annotated[int, typer.Option(help="Width that build is called with.", min=1)] = 64,
    depth: Annotated[int, typer.Option(help="Depth that build is called with.", min=1)] = 4,
    seed: Seed = 0,
    out: Out = Path("results/init"),
) -> None:
    """Show forward and backward gains of each layer for each average of the fans."""
    from scalinglimits.init import END_TO_END, signal_table
    from scalinglimits.laws.fans import MODES

    if (model is None) == (shapes is None):
        raise ValueError("`MODEL` or `--shapes` must be given, and not both")
    options: dict[str, Any] = {
        "modes": mode or list(MODES),
        "gains": gain,
        "draws": draws,
        "seed": seed,
    }
    if shapes is not None:
        table = signal_table(
            _shapes(shapes), activation=_module(activation), batch=batch, **options
        )
    else:
        assert model is not None
        if activation is not None:
            raise ValueError("`--activation` must be left out for a model, which has its own")
        path, _, name = model.partition(":")
        module, file = _build(path, name or "build", width, depth)
        table = signal_table(module, _inputs(file, input_shape, batch, seed), **options)
    columns = ["mode", "forward_predicted", "forward", "backward_predicted", "backward"]
    layers = table[table.layer != END_TO_END]
    print_table(
        rich_table("Gain of each layer, of the mean square", _rounded(layers), ["layer", *columns])
    )
    ends = table[table.layer == END_TO_END]
    print_table(rich_table("Gain from end to end", _rounded(ends), columns))
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "init.csv", index=False)
    typer.echo(f"Written: {out / 'init.csv'}")


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    numbers = table.select_dtypes("number").columns
    return table.assign(**{name: table[name].map("{:.4g}".format) for name in numbers})


def _shapes(text: str) -> list[tuple[int, int]]:
    try:
        pairs = [tuple(int(size) for size in part.split("x")) for part in text.split(",")]
        return [(inputs, outputs) for inputs, outputs in pairs]
    except ValueError:
        raise ValueError(
            f"`shapes` must be INxOUT with commas, such as 128x512,512x128; got {text!r}"
        ) from None


def _module(name: str | None) -> Any:
    from torch import nn

    if name is None:
        return None
    kind = getattr(nn, name, None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"`activation` must be a module of torch.nn, such as ReLU; got {name!r}")
    return kind()


def _build(path: str, name: str, width: int, depth: int) -> tuple[Any, ModelFile]:
    """Call the file's function, with width and depth if it takes them."""
    from torch import nn

    from scalinglimits.checks.model_file import load_model_file

    file = load_model_file(path, needed=())
    build = file.function(name)
    takes = inspect.signature(build).parameters
    module = build(width, depth) if len(takes) >= 2 else build(width) if takes else build()
    if not isinstance(module, nn.Module):
        raise ValueError(f"`{name}` of {path} must return a torch.nn.Module; got {type(module)}")
    return module, file


def _inputs(file: ModelFile, shape: str | None, batch: int, seed: int) -> Tensor:
    """Return random inputs of the given shape, or the inputs of the file's first batch."""
    import torch

    from scalinglimits.laws.streams import substream

    if shape is not None:
        try:
            sizes = [int(size) for size in shape.split("x")]
        except ValueError:
            raise ValueError(f"`input_shape` must be like 3x32x32; got {shape!r}") from None
        return torch.randn(batch, *sizes, generator=substream(seed, "inputs"))
    if file.batches is None:
        raise ValueError(f"`--input-shape` must be given, since {file.path} defines no batches")
    batches = file.batches() if callable(file.batches) else file.batches
    first = next(iter(batches), None)
    if isinstance(first, tuple | list) and len(first):
        first = first[0]
    if not isinstance(first, torch.Tensor):
        raise ValueError(f"the first batch of {file.path} must hold a tensor; got {type(first)}")
    return first
