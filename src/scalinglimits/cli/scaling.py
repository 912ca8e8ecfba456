"""Commands on a user's own model: its scaling plan, the check with a verdict, the transfer."""

from __future__ import annotations

__all__ = ["check", "plan", "transfer"]

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalinglimits.cli.options import Jobs, Out, number_list, progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scalinglimits.checks import ModelFile
    from scalinglimits.scaling import ScalingPlan

_INDEX = re.compile(r"(?<![^.])(?:\d+|\*)(?![^.])")
"""A part of a parameter's name that is a number, or stands for all of them."""

File = Annotated[Path, typer.Argument(help="Python file that defines build, step and batches.")]
Optimizer = Annotated[str, typer.Option(help="sgd, adam, adamw, muon, ...")]
WidthRule = Annotated[str, typer.Option(help="mup, spectral, standard or ntk.")]
DepthRule = Annotated[str, typer.Option(help="completep, depth-mup, none, or the exponent alpha.")]
Json = Annotated[bool, typer.Option("--json", help="Print the record as JSON instead.")]
Widths = Annotated[list[int] | None, typer.Option("--width", help="Width to measure. Repeat.")]
Depths = Annotated[list[int] | None, typer.Option("--depth", help="Depth to measure. Repeat.")]
AxisOption = Annotated[
    list[str] | None,
    typer.Option(
        "--axis",
        help="Instead of --width and --depth, an axis that build takes by name: heads=4,8,16; axes "
        "that grow together: width:heads=32:4,64:8,128:16. Repeat.",
    ),
]
DepthAxis = Annotated[
    str | None, typer.Option(help="Which of the named axes is the depth, if its name does not say.")
]
Unscaled = Annotated[
    bool, typer.Option("--unscaled", help="Take the model as built, with one learning rate.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]


def plan(
    file: File,
    base: Annotated[
        str,
        typer.Option(
            help="Base size, where you tuned: 64x4 is width and depth; width=64,depth=4,heads=8 "
            "are axes that build takes by name."
        ),
    ],
    target: Annotated[str, typer.Option(help="Target size, in the same way.")],
    optimizer: Optimizer = "adamw",
    width_rule: WidthRule = "mup",
    depth_rule: DepthRule = "completep",
    weights_across_depth: Annotated[
        str | None, typer.Option(help="Law across depth, such as fractional:0.7 or smooth.")
    ] = None,
    depth_axis: DepthAxis = None,
    explain: Annotated[
        list[str] | None, typer.Option(help="Parameter to explain step by step. Repeat.")
    ] = None,
    as_json: Json = False,
    out: Out = Path("results/plan"),
) -> None:
    """Plan initialisation, learning rate and weight decay of every parameter of your model."""
    from scalinglimits.checks import load_model_file
    from scalinglimits.laws.names import depth_law
    from scalinglimits.scaling import make_plan

    out.mkdir(parents=True, exist_ok=True)
    model = load_model_file(file, needed=("build",))
    made = make_plan(
        model.build,
        _size("base", base),
        _size("target", target),
        optimizer=optimizer,
        width_rule=width_rule,
        depth_rule=_depth_rule(depth_rule),
        weights_across_depth=(
            None if weights_across_depth is None else depth_law(weights_across_depth)
        ),
        example=_example(model),
        depth_axis=depth_axis,
    )
    derivations = [_explain(made, name) for name in explain or []]
    if as_json:
        typer.echo(made.to_json())
    else:
        typer.echo(_short(made))
    for derivation in derivations:
        typer.echo(f"\n{derivation}")
    (out / "plan.json").write_text(made.to_json(), "utf-8")
    made.to_frame().to_csv(out / "plan.csv")
    typer.echo(f"Written: {out / 'plan.json'}, {out / 'plan.csv'}", err=as_json)


def check(
    file: File,
    width: Widths = None,
    depth: Depths = None,
    axis: AxisOption = None,
    depth_axis: DepthAxis = None,
    optimizer: Optimizer = "adam",
    width_rule: WidthRule = "mup",
    depth_rule: DepthRule = "completep",
    unscaled: Unscaled = False,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate at the smallest size; else the file's.")
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Weight decay at the smallest size.")] = 0.0,
    seeds: Annotated[int, typer.Option(help="Replicates, at least 2.", min=2)] = 4,
    steps: Annotated[int, typer.Option(help="Updates.", min=1)] = 3,
    device: Device = "cpu",
    as_json: Json = False,
    out: Out = Path("results/check"),
) -> None:
    """Check that signal and updates keep their size as your model grows: a verdict, in numbers.

    Exit status: 0 the scaling holds, 1 it fails, 3 undecided.
    """
    from scalinglimits.checks import load_model_file, scaling_check
    from scalinglimits.figures.check_plots import draw_check

    model = load_model_file(file)
    assert model.step is not None
    assert model.batches is not None
    rules: dict[str, Any] = {} if unscaled else {"depth_rule": _depth_rule(depth_rule)}
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar("check") as progress:
        result = scaling_check(
            model.build,
            model.step,
            model.batches,
            widths=width,
            depths=depth,
            axes=_axes(axis),
            depth_axis=depth_axis,
            plan=None if unscaled else width_rule,
            optimizer=optimizer,
            lr=lr if lr is not None else model.learning_rate or 1e-3,
            weight_decay=weight_decay,
            seeds=seeds,
            steps=steps,
            device=_device(device),
            progress=progress,
            **rules,
        )
    typer.echo(json.dumps(result.to_dict(), indent=2) if as_json else str(result))
    result.to_frame().to_csv(out / "check.csv", index=False)
    result.record.to_csv(out / "check_record.csv", index=False)
    _save(draw_check(result), "check", out, ["check.csv", "check_record.csv"], quiet=as_json)
    raise typer.Exit(result.exit_code)


def transfer(
    file: File,
    width: Widths = None,
    depth: Depths = None,
    axis: AxisOption = None,
    depth_axis: DepthAxis = None,
    optimizer: Optimizer = "adam",
    width_rule: WidthRule = "mup",
    depth_rule: DepthRule = "completep",
    steps: Annotated[int, typer.Option(help="Updates of each run.", min=1)] = 50,
    warmup: Annotated[int, typer.Option(help="First steps with a growing rate.", min=0)] = 0,
    schedule: Annotated[str, typer.Option(help="constant, linear or cosine.")] = "constant",
    lr: Annotated[
        str | None,
        typer.Option(
            help="Learning rates at the smallest size: START:STOP:COUNT, with a constant ratio, or "
            "numbers with commas; else 1/4096 to 1/4 by factors of 2."
        ),
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Weight decay at the smallest size.")] = 0.0,
    seeds: Annotated[int, typer.Option(help="Replicates, at least 2.", min=2)] = 3,
    device: Device = "cpu",
    n_jobs: Jobs = None,
    as_json: Json = False,
    out: Out = Path("results/transfer"),
) -> None:
    """Follow the best learning rate of your model as it grows, with and without the plan.

    Exit status: 0 it transfers under the plan, 1 it does not, 3 undecided. An interrupted run goes
    on where it stopped, as long as FILE is the same.
    """
    from hashlib import sha256

    from scalinglimits.checks import LEARNING_RATES, learning_rate_transfer, load_model_file
    from scalinglimits.figures.check_plots import draw_transfer

    model = load_model_file(file)
    assert model.step is not None
    assert model.batches is not None
    out.mkdir(parents=True, exist_ok=True)
    result = learning_rate_transfer(
        model.build,
        model.step,
        model.batches,  # type: ignore[arg-type]
        widths=width,
        depths=depth,
        axes=_axes(axis),
        depth_axis=depth_axis,
        learning_rates=LEARNING_RATES if lr is None else number_list("--lr", lr, geometric=True),
        plans={"plan": width_rule, "standard": None},
        optimizer=optimizer,
        weight_decay=weight_decay,
        steps=steps,
        warmup=warmup,
        schedule=schedule,
        seeds=seeds,
        device=_device(device),
        store=out / f"cells-{file.stem}-{sha256(file.read_bytes()).hexdigest()[:8]}.sqlite",
        executor="joblib",
        n_jobs=n_jobs,
        progress=True,
        depth_rule=_depth_rule(depth_rule),
    )
    typer.echo(json.dumps(result.to_dict(), indent=2) if as_json else str(result))
    tables = {"losses": result.losses, "optima": result.optima, "drifts": result.drifts}
    for name, table in tables.items():
        table.to_csv(out / f"transfer_{name}.csv", index=False)
    names = [f"transfer_{name}.csv" for name in tables]
    _save(draw_transfer(result), "transfer", out, names, quiet=as_json)
    raise typer.Exit(result.exit_code)


def _short(plan: ScalingPlan) -> str:
    """Print a plan with one row for all parameters that differ in an index only."""
    import pandas as pd

    frame = plan.to_frame()
    rows: dict[str, list[Any]] = {str(name): list(row) for name, row in frame.T.items()}
    for position in range(max((len(_INDEX.findall(name)) for name in rows), default=0)):
        groups: dict[str, list[str]] = {}
        for name in rows:
            groups.setdefault(_starred(name, position), []).append(name)
        new = {
            star: names
            for star, names in groups.items()
            if len(names) > 1 and all(rows[name] == rows[names[0]] for name in names)
        }
        merged = {name: star for star, names in new.items() for name in names}
        rows = {merged.get(name, name): row for name, row in rows.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=frame.columns)
    settings = ", ".join(f"{key}={value}" for key, value in plan.settings.items())
    lines = [f"ScalingPlan({settings})", table.to_string(float_format="{:.4g}".format)]
    if len(rows) < len(frame):
        lines.append(f"{len(frame)} parameters in {len(rows)} rows: * stands for every index.")
    return "\n".join([*lines, *(f"note: {note}" for note in plan.notes)])


def _starred(name: str, position: int) -> str:
    """Replace one index of a name, by its position among them, by a star."""
    places = [match.span() for match in _INDEX.finditer(name)]
    if position >= len(places):
        return name
    start, stop = places[position]
    return f"{name[:start]}*{name[stop:]}"


def _explain(plan: ScalingPlan, name: str) -> str:
    """Explain a parameter, or the first one of a name with stars, as `_short` prints it."""
    from difflib import get_close_matches

    name = next((n for n in plan.entries if _matches(n, name)), name)
    try:
        return plan.explain(name)
    except KeyError:
        close = get_close_matches(name, list(plan.entries), n=1, cutoff=0.0)
        raise ValueError(
            f"`--explain` must be a parameter of the plan, such as {close[0]}; got {name!r}"
        ) from None


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        a == b or (b == "*" and a.isdigit()) for a, b in zip(parts, wanted, strict=True)
    )


def _device(text: str) -> str:
    """Return the device, if it can be used here."""
    import torch

    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:  # what torch raises for an absent device
        said = str(error).splitlines()[0]
        raise ValueError(f"`device` must be one that works here; got {text!r}: {said}") from None
    return text


def _size(name: str, text: str) -> tuple[int, int] | dict[str, int]:
    try:
        if "=" in text:
            pairs = [part.split("=") for part in text.split(",")]
            size = {axis.strip(): int(number) for axis, number in pairs}
            if len(size) == len(pairs):
                return size
        width, depth = (int(part) for part in text.split("x"))
    except ValueError:
        raise ValueError(
            f"`{name}` must be WIDTHxDEPTH, such as 256x8, or each axis once, such as "
            f"width=256,depth=8,heads=4; got {text!r}"
        ) from None
    return width, depth


def _axes(texts: list[str] | None) -> dict[str | tuple[str, ...], list[Any]] | None:
    """Read axes such as heads=4,8,16, or width:heads=32:4,64:8 where axes grow together."""
    axes: dict[str | tuple[str, ...], list[Any]] = {}
    for text in texts or []:
        try:
            left, right = text.split("=")
            names = tuple(name.strip() for name in left.split(":"))
            rows = [tuple(int(number) for number in size.split(":")) for size in right.split(",")]
        except ValueError:
            raise ValueError(
                "`--axis` must be a name and its numbers, such as heads=4,8,16, or several that "
                f"grow together, such as width:heads=32:4,64:8; got {text!r}"
            ) from None
        key = names if len(names) > 1 else names[0]
        if key in axes:
            raise ValueError(f"`--axis` must name each axis once; got {left!r} twice")
        single = len(names) == 1 and all(len(row) == 1 for row in rows)
        axes[key] = [row[0] for row in rows] if single else rows
    return axes or None


def _depth_rule(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _example(model: ModelFile) -> Any:
    """Return a run of the model on the file's first batch, None if the file defines none."""
    if model.step is None or model.batches is None:
        return None
    batches = model.batches() if callable(model.batches) else model.batches
    first, step = next(iter(batches), None), model.step
    if isinstance(first, tuple | list) and len(first):
        return first[0]
    return (lambda module: step(module, first)) if first is not None else None


def _save(drawing: Figure, name: str, out: Path, tables: list[str], *, quiet: bool) -> None:
    from scalinglimits.figures import save_drawing

    paths = [*(out / table for table in tables), *save_drawing(drawing, name, out)]
    typer.echo("Written: " + ", ".join(map(str, paths)), err=quiet)
