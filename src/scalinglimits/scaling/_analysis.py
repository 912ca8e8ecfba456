"""What a user's `build` reveals, once for all targets: structure, operations, initial laws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from scalinglimits.scaling._attention import HeadSize, find_queries, head_sizes
from scalinglimits.scaling._bench import Bench, guess_example, runner
from scalinglimits.scaling._branches import find_branch_outputs, last_affine
from scalinglimits.scaling._builds import Builder, Snapshot
from scalinglimits.scaling._stacks import Stacks, find_stacks
from scalinglimits.scaling._trace import Trace
from scalinglimits.scaling.entry import InitLaw
from scalinglimits.scaling.sizes import Size

__all__ = ["Analysis", "depth_stacks"]

_LARGEST = 300_000_000  # parameters of a model that is built with memory


@dataclass
class Analysis:
    """Facts about one `build`, found when they are first needed.

    Args:
        builder: Calls `build`.
        base: The base size.
        moving: The width axes that grow.
        example: The user's example; None to guess one.
        run: Runs the model if no inputs were given and none can be guessed.
        others: The analyses of the same model along other axes.
    """

    builder: Builder
    base: Size
    moving: tuple[str, ...]
    example: Any = None
    run: Any = None
    others: dict[tuple[str, ...], Analysis] = field(default_factory=dict, repr=False)
    _guessed: Any = field(default=None, init=False, repr=False)

    def along(self, moving: tuple[str, ...]) -> Analysis:
        """Return what the same model reveals as other axes grow."""
        self.others.setdefault(self.moving, self)
        if moving not in self.others:
            self.others[moving] = replace(self, moving=moving)
        return self.others[moving]

    @cached_property
    def small(self) -> Size:
        """A small size whose model has the parameters of the base model, and runs if any does."""
        return self._smallest[0]

    @cached_property
    def _smallest(self) -> tuple[Size, Bench | None]:
        built = []
        for size in self._small_sizes():
            try:
                bench = self._bench_at(size)
            except ValueError:
                failing = size
                continue
            if bench is not None:
                return size, bench
            built.append(size)
        size = built[0] if built else failing
        return size, self._bench_at(size)

    def _small_sizes(self) -> list[Size]:
        # Three blocks: the first may differ, and the last has no successor.
        depth = None if self.base.depth is None else 3
        wanted = self._templates(self.base.at_depth(depth))
        sizes = []
        for divisor in (16, 8, 4, 2):
            widths = {key: self.base.widths[key] for key in self.moving}
            if any(value % divisor or value // divisor < 4 for value in widths.values()):
                continue
            values = {k: v // divisor for k, v in widths.items()}
            size = self.base.with_values(values).at_depth(depth)
            try:
                shapes = self.builder.meta(size).shapes.values()
                # As wide as its inputs, a first layer could not be told from those that repeat.
                alike = self._templates(size) == wanted
            except (ValueError, TypeError):
                continue
            if alike and all(min(shape, default=1) for shape in shapes):
                sizes.append(size)
        return [*sizes, self.base.at_depth(depth)]

    def _templates(self, size: Size) -> set[str]:
        stacks = depth_stacks(self.builder, size)
        return {stacks.template(name) for name in self.builder.meta(size).shapes}

    @cached_property
    def bench(self) -> Bench | None:
        """A small model that runs; None when no inputs were given and none could be guessed."""
        return self._smallest[1]

    def need_bench(self, why: str) -> Bench:
        """Return the bench.

        Raises:
            ValueError: If there are no inputs for it.
        """
        if self.bench is None:
            raise ValueError(
                f"`example` must be inputs of the model, or a function that runs it, {why}; "
                "none were given and none could be guessed"
            )
        return self.bench

    @cached_property
    def small_stacks(self) -> Stacks:
        return depth_stacks(self.builder, self.small)

    @cached_property
    def trace(self) -> Trace | None:
        return self.bench.trace() if self.bench is not None else None

    @cached_property
    def branch_outputs(self) -> set[tuple[str, str]]:
        return find_branch_outputs(self.need_bench("to find branches"), self.small_stacks)

    @cached_property
    def queries(self) -> dict[str, float] | None:
        """Small-model parameters that take a multiplier of the logits, and by which power."""
        return find_queries(self.need_bench("to find queries"), self.small_stacks)

    @cached_property
    def scale_exponent(self) -> float:
        """The κ of d_head^−κ by which the model shrinks products of queries and keys."""
        import math

        small = head_sizes(self.need_bench("to examine attention"))[0]
        wide = head_sizes(self._wide_bench)[0]
        if small.dim == wide.dim:
            return 0.5
        kappa = -math.log(wide.scale / small.scale) / math.log(wide.dim / small.dim)
        return round(kappa, 9)  # one half to the last digit

    @cached_property
    def _wide_bench(self) -> Bench:
        widths = {key: 2 * self.small.widths[key] for key in self.moving}
        bench = self._bench_at(self.small.with_values(widths))
        assert bench is not None
        return bench

    def head_growth(self, target: Size) -> float:
        """Return the ratio of head dimensions, target over base; 1 without attention."""
        if self.bench is None or self.trace is None or not self.trace.attention:
            return 1.0
        depth = self.small.depth
        try:
            base, wide = (self._meta_heads(size.at_depth(depth)) for size in (self.base, target))
        except Exception:  # the model does not run without data: compare small ones
            base, wide = head_sizes(self.bench), head_sizes(self._wide_bench)
            if base[0].dim == wide[0].dim:
                return 1.0
            ratios = {target.widths[key] / self.base.widths[key] for key in self.moving}
            if len(ratios) != 1:
                raise ValueError(
                    "`attention` must be 'ignore' or 'explicit' for this model: it does not run "
                    "on the meta device, and its head dimension follows from no one width"
                ) from None
            return ratios.pop()
        found = {w.dim / b.dim for b, w in zip(base, wide, strict=True)}
        if len(found) != 1:
            raise ValueError(f"`build` must let all heads grow alike; they grow by {sorted(found)}")
        return found.pop()

    def _meta_heads(self, size: Size) -> list[HeadSize]:
        example = self.example if self.example is not None else self._guessed
        if callable(example) and not isinstance(example, torch.Tensor):
            raise TypeError("a function runs on its own device")
        model = self.builder.meta(size).model.eval()
        inputs = tree_map(lambda v: v.float().to("meta") if _floating(v) else _to_meta(v), example)
        trace = Trace(dict(model.named_parameters()))
        with trace:
            _call(model, inputs)
        return [HeadSize(call.queries.shape[-1], call.scale) for call in trace.attention]

    @cached_property
    def tied_names(self) -> set[str]:
        """Embeddings of the small model that are also multiplied as a matrix."""
        products = {"mm", "addmm", "bmm"}
        operations = self.trace.operations if self.trace is not None else {}
        return {n for n, ops in operations.items() if "embedding" in ops and ops & products}

    def readout_gains(self, tied: str, readout: str | None) -> set[str] | None:
        """Return small-model parameters that a tied readout's multiplier can move to.

        A bias that is added behind the readout needs none.
        """
        bench = self.need_bench("to find what feeds the tied readout")

        def logits(factors: dict[str, float]) -> torch.Tensor:
            with bench.scaled(factors):
                return bench.output_of(readout or "").double()

        stacks = self.small_stacks
        names = [n for n in bench.parameters if n != tied and stacks.locate(n) is None]
        order = bench.trace().last_use
        picked = last_affine(logits, names, order)
        silent = logits({tied: 0.0})
        behind = {n for n in picked if not torch.equal(logits({tied: 0.0, n: 2.0}), silent)}
        ahead, off = set(picked) - behind, dict.fromkeys(behind, 0.0)
        whole, double = logits(off), logits({**off, **dict.fromkeys(ahead, 2.0)})
        if not ahead or (double - 2 * whole).abs().max() > 1e-9 * whole.abs().max():
            return None
        return ahead

    @cached_property
    def meta_laws_hold(self) -> bool:
        """Whether the model draws with memory as it does without; some libraries do not."""
        small = self.builder.meta(self.small)
        real = self._concrete(self.small)
        return all(small.laws[name] == real.laws[name] for name in small.shapes)

    @cached_property
    def base_laws(self) -> dict[str, InitLaw | None]:
        if self.meta_laws_hold:
            laws = self.builder.meta(self.base).laws
        else:
            laws = self._concrete(self.base).laws
        unread = [name for name, law in laws.items() if law is None or law.kind == "kept"]
        return {**laws, **self._measured(unread)} if unread else laws

    def _measured(self, names: list[str]) -> dict[str, InitLaw | None]:
        """Laws of draws whose operations could not be read; what seeds do not change is kept."""
        first, second = (self._concrete(self.base, seed).model for seed in (0, 1))
        laws: dict[str, InitLaw | None] = {}
        for name in names:
            a, b = (m.get_parameter(name).detach().double() for m in (first, second))
            values = torch.stack([a, b])
            if torch.equal(a, b):
                constant = bool((a == a.flatten()[0]).all()) if a.numel() else False
                law = InitLaw("constant", float(a.flatten()[0])) if constant else InitLaw("kept")
            elif abs(values.mean()) > 8 * values.std() / values.numel() ** 0.5:
                law = InitLaw("kept")
            else:
                law = InitLaw("normal", 0.0, float(values.std()))
            laws[name] = law
        return laws

    def natural_laws(self, snapshot: Snapshot) -> Mapping[str, InitLaw | None]:
        """Return how a model draws its own weights."""
        if self.meta_laws_hold:
            return snapshot.laws
        faked = self.builder.fake(snapshot.size)
        return faked.laws if faked is not None else dict.fromkeys(snapshot.shapes)

    def _concrete(self, size: Size, seed: int = 0) -> Snapshot:
        count = self.builder.meta(size).parameters
        if count > _LARGEST:
            raise ValueError(
                f"`base` must be small enough to build; {size} has {count:,} parameters, "
                f"more than {_LARGEST:,}"
            )
        return self.builder.concrete(size, seed)

    def _bench_at(self, size: Size) -> Bench | None:
        model: nn.Module = self._concrete(size).model.double().eval()
        example = self.example
        if example is None:
            if self._guessed is None:
                self._guessed = guess_example(model)
            example = self._guessed if self._guessed is not None else self.run
        if example is None:
            return None
        if callable(example) and not isinstance(example, torch.Tensor):
            _cast(model)
        bench = Bench(model, runner(example))
        try:
            bench.run()
        except Exception as error:
            raise ValueError(
                f"`example` must run at {size}; it raised {type(error).__name__}: {error}"
            ) from error
        return bench


def depth_stacks(builder: Builder, size: Size) -> Stacks:
    """Return the stacks of the model of that size, compared with another depth."""
    if size.depth is None:
        return Stacks(())
    here = builder.meta(size)
    for depth in (size.depth + 1, 2 * size.depth):
        try:
            other = builder.meta(size.at_depth(depth))
        except ValueError:
            continue
        return find_stacks(here, other)[0]
    return Stacks(())


def _cast(model: nn.Module) -> None:
    """Let a function feed single precision to a model in double, and read single precision."""

    def to(dtype: torch.dtype) -> Any:
        return lambda v: v.to(dtype) if _floating(v) else v

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map(to(torch.float64), args), tree_map(to(torch.float64), kwargs)

    for module in model.modules():  # the function may call parts of the model by themselves
        module.register_forward_pre_hook(before, with_kwargs=True)
    model.register_forward_hook(lambda module, args, out: tree_map(to(torch.float32), out))


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)
