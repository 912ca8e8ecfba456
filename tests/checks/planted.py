"""Faults planted into a right plan."""

import functools
import importlib.util
import re
from pathlib import Path

import torch

from scalinglimits.checks.setups import make_setup
from scalinglimits.scaling.sizes import parse_size

FOLDER = Path(__file__).parents[2] / "examples"


def load_example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def right(build, base):
    return make_setup(build, "mup", base=parse_size("base", base), optimizer="adam", lr=1e-3)


class Planted:
    """A plan's values and groups, some of them multiplied by powers of width and depth ratios.

    Args:
        build: the model.
        base: width and depth.
        faults: pattern of a parameter to powers: `init`, `lr`, `eps` in the width ratio m, and
            `init_depth`, `lr_depth` in the depth ratio.
        eps: of Adam at the base size.
        unscale_eps: leave ε as it is at every size.
    """

    def __init__(self, build, base, faults=None, *, eps=1e-8, unscale_eps=False):
        self.setup, self.plan = right(build, base)
        self.base, self.faults = base, faults or {}
        self.eps, self.unscale_eps = eps, unscale_eps

    def __call__(self, model, width, depth, seed):
        groups = list(self.setup(model, parse_size("size", (width, depth)), seed))
        plan = self.plan.retarget((width, depth))
        rates = {id(p): group["lr"] for group in groups for p in group["params"]}
        m, ell = width / self.base[0], depth / self.base[1]
        chosen = []
        for name, p in model.named_parameters():
            powers = self.faults.get(re.sub(r"\b(blocks|stage\d)\.\d+", r"\1.*", name), {})
            with torch.no_grad():
                p *= m ** powers.get("init", 0) * ell ** powers.get("init_depth", 0)
            lr = rates[id(p)] * m ** powers.get("lr", 0) * ell ** powers.get("lr_depth", 0)
            eps = self.eps * (1.0 if self.unscale_eps else plan.entries[name].eps)
            chosen.append({"params": [p], "lr": lr, "eps": eps})
        return chosen
