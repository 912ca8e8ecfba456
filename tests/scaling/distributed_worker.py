"""One of two processes: sharded and replicated models train as a single one does.

Usage: distributed_worker.py RANK FILE
"""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from scaling_models import Residual
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from scalinglimits.scaling import make_plan

SIZE = (16, 3)
X = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))


def train(plan, model, x, make=torch.optim.AdamW):
    optimizer = make(plan.param_groups(model, lr=1e-2, weight_decay=0.1))
    assert plan.audit(optimizer), str(plan.audit(optimizer))
    schedule = plan.schedule(
        optimizer, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=5)
    )
    for _ in range(3):
        optimizer.zero_grad()
        (model(x) - x[:, :3]).square().mean().backward()
        optimizer.step()
        schedule.step()
    return model(X).detach()


def full(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def main(rank: int, file: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    plan = make_plan(Residual, (8, 2), SIZE)
    for kind in ("ddp", "fsdp", "tensor", "zero"):
        check(kind, rank, mesh, plan)
        sys.stdout.write(f"{kind}: as one process\n")
    dist.barrier()
    dist.destroy_process_group()


def check(kind: str, rank: int, mesh, plan) -> None:
    torch.manual_seed(rank)  # each process draws otherwise, unless the plan draws
    reference = plan.initialize_(Residual(*SIZE), seed=0)
    initial = {name: p.detach().clone() for name, p in reference.named_parameters()}
    rows = X.chunk(2)[rank]
    model, make, data = Residual(*SIZE), torch.optim.AdamW, X
    if kind == "ddp":
        model, data = DistributedDataParallel(model), rows
        plan.initialize_(model, seed=0)
    elif kind == "fsdp":
        with torch.device("meta"):
            model = Residual(*SIZE)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.to_empty(device="cpu")
        plan.initialize_(model, seed=0)
        data = rows
    elif kind == "tensor":
        parallelize_module(
            model,
            mesh,
            {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()},
        )
        plan.initialize_(model, seed=0)
    elif kind == "zero":

        def make(groups):
            return ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=1.0)

        model, data = DistributedDataParallel(model), rows
        plan.initialize_(model, seed=0)
    plain = {name.removeprefix("module."): p for name, p in model.named_parameters()}
    for name, parameter in plain.items():
        assert torch.equal(full(parameter), initial[name]), name
    if kind == "fsdp":  # rescaling measures all shards
        fresh = Residual(*SIZE)
        fully_shard(fresh, mesh=mesh)
        before = full(fresh.head.weight.detach()).clone()
        plan.rescale_(fresh)
        factor = plan["head.weight"].law.std * plan["head.weight"].init
        factor /= plan["head.weight"].natural.std
        torch.testing.assert_close(full(fresh.head.weight.detach()), before * factor)
        with pytest.raises(ValueError, match="it was rescaled before"):
            plan.rescale_(fresh)
    found = full(train(plan, model, data, make))
    wanted = train(plan, reference, X)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
