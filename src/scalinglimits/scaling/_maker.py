"""Plans of one base model, one a target."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from scalinglimits.laws.depth import DepthLaw
from scalinglimits.scaling._analysis import Analysis
from scalinglimits.scaling._builds import Snapshot
from scalinglimits.scaling._derive import Facts, Rules, derive
from scalinglimits.scaling._fans import Use
from scalinglimits.scaling._options import check_axes, law_name
from scalinglimits.scaling._probes import PROBES, moving_axes, probe_depth, probe_width
from scalinglimits.scaling._roles import check_overrides, override_of, role_of, uses_of
from scalinglimits.scaling._stacks import Stacks, correspond, find_stacks
from scalinglimits.scaling.plan import ScalingPlan
from scalinglimits.scaling.rules import WIDTH_RULES, Growth
from scalinglimits.scaling.sizes import Size, parse_size

__all__ = ["Maker"]


@dataclass(frozen=True)
class Maker:
    """Makes the plans of one base model, one a target."""

    analysis: Analysis
    rules: Rules
    across: DepthLaw | None
    outputs: tuple[str, ...] | None
    fans: dict[str, Any]
    attention: str
    depth_rule: str | float
    depth_axis: str | None

    def __call__(self, target: Any) -> ScalingPlan:
        size = parse_size("target", target, self.depth_axis)
        base = self.analysis.base
        check_axes(base, size)
        if size.widths == base.widths:
            return self.plan(size)
        analysis = self.analysis.along(moving_axes(base, size))
        return replace(self, analysis=analysis).plan(size)

    def plan(self, target: Size) -> ScalingPlan:
        builder, base = self.analysis.builder, self.analysis.base
        notes: list[str] = []
        wide, narrow = builder.meta(target), builder.meta(base.at_depth(target.depth))
        probe, factor = self._probe(target)
        _check_same_names(narrow, wide)
        _check_same_names(narrow, probe)
        if narrow.shapes == probe.shapes:
            raise ValueError("`build` must use its width; no parameter grows with it")
        stacks, base_stacks = self._stacks(target, narrow)
        basis = builder.meta(base)
        partner = correspond(narrow.shapes, stacks, basis.shapes, base_stacks)
        templates = {name: stacks.template(name) for name in wide.shapes}
        small = self.analysis.builder.meta(self.analysis.small)
        twin = correspond(narrow.shapes, stacks, small.shapes, self.analysis.small_stacks)
        check_overrides("fans", self.fans, templates)
        facts = []
        for name in wide.shapes:
            axis = _blocks_axis(name, narrow, self._other_depth(target), stacks)
            uses = uses_of(
                name,
                (narrow, wide, probe),
                override_of(name, templates[name], self.fans),
                self._traced(twin[name]),
                axis,
            )
            notes += self._report(name, uses, self._ratio(target), factor)
            facts.append(
                self._facts(name, twin[name], uses, wide, narrow, stacks, base_stacks, axis)
            )
        laws, natural = self.analysis.base_laws, self.analysis.natural_laws(wide)
        facts = [
            replace(f, law=laws.get(partner[f.name]), natural=natural.get(f.name)) for f in facts
        ]
        facts = self._with_branches(facts, templates)
        facts = self._with_queries(facts, twin, target, notes)
        facts = self._with_tied(facts, twin, wide)
        entries = {f.name: derive(f, self.rules) for f in facts}
        return ScalingPlan(entries, self._settings(target), tuple(dict.fromkeys(notes)), self)

    def _probe(self, target: Size) -> tuple[Snapshot, int]:
        """A model wider than base and target, and by how much."""
        for factor in PROBES:
            try:
                size = probe_width(self.analysis.base, target, self.analysis.moving, factor)
                return self.analysis.builder.meta(size), factor
            except ValueError:
                if factor == PROBES[-1]:
                    raise
        raise AssertionError("unreachable")

    def _ratio(self, target: Size) -> float:
        """The growth of the width, 1 where several axes grow by different ratios."""
        base = self.analysis.base.widths
        ratios = {target.widths[key] / base[key] for key in self.analysis.moving}
        return ratios.pop() if len(ratios) == 1 else 1.0

    def _other_depth(self, target: Size) -> Snapshot | None:
        depth = probe_depth(self.analysis.base, target)
        if depth is None:
            return None
        try:
            return self.analysis.builder.meta(self.analysis.base.at_depth(depth))
        except ValueError:
            if depth == self.analysis.base.depth:
                raise
            return None  # only a probe: this build may refuse that depth

    def _stacks(self, target: Size, narrow: Snapshot) -> tuple[Stacks, Stacks]:
        base, other = self.analysis.base, self._other_depth(target)
        if other is None:
            return Stacks(()), Stacks(())
        stacks, other_stacks = find_stacks(narrow, other)
        if base.depth == target.depth:
            return stacks, stacks
        if narrow.shapes == other.shapes:
            raise ValueError("`build` must use its depth; its parameters do not change with it")
        return stacks, other_stacks

    def _traced(self, twin: str) -> Any:
        trace = self.analysis.trace
        return None if trace is None else trace.axes.get(twin)

    def _facts(
        self,
        name: str,
        twin: str,
        uses: list[Use],
        wide: Snapshot,
        narrow: Snapshot,
        stacks: Stacks,
        base_stacks: Stacks,
        axis: int | None,
    ) -> Facts:
        small, large = uses[0], uses[1]
        growth = Growth(
            large.fan_in / small.fan_in,
            large.fan_out / small.fan_out,
            (small.fan_in, small.fan_out),
            (large.fan_in, large.fan_out),
        )
        shape = wide.shapes[name]
        tied = _is_tied(wide, name) or twin in self.analysis.tied_names
        located = stacks.locate(name)
        place: dict[str, Any] = {}
        if located is not None:
            stack, position, _ = located
            match = base_stacks.get(stack.prefix)
            if match is None or not match.indices:
                raise ValueError(f"`base` must have blocks in `{stack.prefix}`; it has none")
            ell = len(stack.indices) / len(match.indices)
            place = {"stack": stack.prefix or ".", "block": position}
            place |= {"blocks": len(stack.indices), "ell": ell}
        elif axis is not None:
            before = self.analysis.builder.meta(self.analysis.base).shapes[name][axis]
            place = {"stack": name, "blocks": shape[axis], "blocks_axis": axis}
            place["ell"] = shape[axis] / before
        return Facts(
            name=name,
            shape=shape,
            base_shape=narrow.shapes[name],
            role=role_of(name, uses, tied),
            growth=growth,
            law=None,
            natural=None,
            part=uses[0].part,
            aliases=wide.aliases[name],
            **place,
        )

    def _report(self, name: str, uses: list[Use], ratio: float, factor: int) -> list[str]:
        """Note fans that do not grow as one power of the width."""
        notes: list[str] = []
        if ratio == 1.0:
            return notes
        for what in ("fan_in", "fan_out"):
            small, large, probe = (getattr(use, what) for use in uses)
            here = math.log(large / small) / math.log(ratio)
            beyond = math.log(probe / large) / math.log(factor / min(ratio, 1.0))
            if here == 0.0 and beyond != 0.0:
                notes.append(
                    f"`{name}`: its {what} grows with width, but by coincidence base and target "
                    f"both have {small:g}"
                )
            elif abs(here - beyond) > 0.15:
                notes.append(
                    f"`{name}`: its {what} grows from {small:g} to {large:g}, as width^{here:.2f}, "
                    f"but beyond the target as width^{beyond:.2f}: is it rounded?"
                )
        return notes

    def _with_branches(self, facts: list[Facts], templates: dict[str, str]) -> list[Facts]:
        grown = any(f.ell != 1.0 for f in facts)
        if self.rules.alpha is None or not any(f.stack for f in facts):
            return facts
        if self.outputs is not None:
            check_overrides("branch_outputs", self.outputs, templates)
            chosen = dict.fromkeys(self.outputs, True)
            return [
                replace(f, branch_output=override_of(f.name, templates[f.name], chosen) is True)
                for f in facts
            ]
        if not grown:
            return facts
        found = self.analysis.branch_outputs
        ends = {".".join(p for p in (prefix, "*", rest) if p) for prefix, rest in found}
        if not ends:
            raise ValueError(
                "`depth_rule` must be 'none' for a model without residual branches: pass "
                'depth_rule="none", on the command line --depth-rule none (or name what ends '
                f"branches in `branch_outputs`); got {self.depth_rule!r}, but no parameter of the "
                "blocks ends a residual branch"
            )
        return [replace(f, branch_output=templates[f.name] in ends) for f in facts]

    def _with_queries(
        self, facts: list[Facts], twin: dict[str, str], target: Size, notes: list[str]
    ) -> list[Facts]:
        wanted = WIDTH_RULES[self.rules.width].attention
        if wanted is None or self.attention == "ignore":
            return facts
        ratio = self.analysis.head_growth(target)
        if ratio == 1.0:
            return facts
        c = ratio ** (self.analysis.scale_exponent - wanted)
        if math.isclose(c, 1.0, rel_tol=1e-9):
            return facts
        if self.attention == "explicit":
            notes.append(f"heads grow: the model itself must multiply its queries by {c:.6g}")
            return facts
        powers = self.analysis.queries
        if powers is None:
            raise ValueError(
                "`attention` must be 'explicit' or 'ignore': heads grow, and no parameters make "
                "queries alone, or queries, keys and values with a weight behind the attention "
                f"that can undo it; so the model itself must multiply its queries by {c:.6g}"
            )
        return [replace(f, logits=c, power=powers.get(twin[f.name], 0.0)) for f in facts]

    def _with_tied(self, facts: list[Facts], twin: dict[str, str], wide: Snapshot) -> list[Facts]:
        for fact in [f for f in facts if f.role == "tied"]:
            c = WIDTH_RULES[self.rules.width].readout(fact.growth.fan_out)
            if c == 1.0 or not self.rules.absorb:
                continue
            names = [n.rpartition(".")[0] for n in (fact.name, *wide.aliases[fact.name])]
            heads = [name for name in names if _is_matrix(wide, name)]
            gains = self.analysis.readout_gains(twin[fact.name], heads[0] if heads else None)
            if not gains:
                raise ValueError(
                    f"`absorb` must be False: no gain ahead of the tied readout `{fact.name}` can "
                    f"take its multiplier {c:.6g}, so the model itself must apply it"
                )
            facts = [replace(f, tied_gain=c) if twin[f.name] in gains else f for f in facts]
        return facts

    def _settings(self, target: Size) -> dict[str, Any]:
        return {
            "base": self.analysis.base.plain(),
            "target": target.plain(),
            "optimizer": self.rules.optimizer,
            "width_rule": self.rules.width,
            "depth_rule": self.depth_rule,
            "alpha": self.rules.alpha,
            "weights_across_depth": law_name(self.across),
            "weight_decay_rule": self.rules.decay,
            "eps_rule": self.rules.eps,
            "absorb": self.rules.absorb,
        }


def _check_same_names(narrow: Snapshot, wide: Snapshot) -> None:
    if list(narrow.shapes) != list(wide.shapes):
        odd = set(narrow.shapes) ^ set(wide.shapes)
        example = min(odd) if odd else next(iter(narrow.shapes))
        raise ValueError(
            f"`build` must name parameters alike at every width; `{example}` differs between "
            f"{narrow.size} and {wide.size}"
        )


def _blocks_axis(name: str, narrow: Snapshot, other: Snapshot | None, stacks: Stacks) -> int | None:
    """The axis that grows with depth in a parameter of the same name."""
    if other is None or name not in other.shapes or stacks.numbers(name):
        return None
    here, there = narrow.shapes[name], other.shapes[name]
    if len(here) != len(there):
        return None
    axes = [i for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b]
    return axes[0] if len(axes) == 1 else None


def _is_tied(snapshot: Snapshot, name: str) -> bool:
    names = (name, *snapshot.aliases[name])
    return len(names) > 1 and any(_is_matrix(snapshot, n.rpartition(".")[0]) for n in names)


def _is_matrix(snapshot: Snapshot, path: str) -> bool:
    module = snapshot.model.get_submodule(path)
    return not isinstance(module, (nn.Embedding, nn.EmbeddingBag))
