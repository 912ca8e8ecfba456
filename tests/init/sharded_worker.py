"""One process of test_sharded.py: python sharded_worker.py RANK SIZE STORE OUTPUT.

It initialises sharded models and tensors, gathers them, and saves what it sees.
"""

import sys

import torch
from torch import distributed, nn

from scalinglimits.init import _draws, depth_stack_, initialize_, variance_scaling_
from scalinglimits.laws import FractionalIncrements

DISTRIBUTIONS = ("normal", "truncated_normal", "uniform", "rademacher", "orthogonal")


def network():
    return nn.Sequential(
        nn.Embedding(11, 6, padding_idx=7),
        nn.Linear(6, 9),
        nn.LayerNorm(9),
        nn.Conv1d(9, 8, 3),
        nn.Linear(8, 5, dtype=torch.bfloat16),
    )


def stack():
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))


def draws(shard, place):
    """Yield names and tensors; `shard` splits a model, `place` an axis of a tensor."""
    for distribution in DISTRIBUTIONS:
        model = shard(network())
        table = initialize_(model, "fan_geo_avg", distribution, seed=3)
        assert table["shape"].tolist() == [tuple(p.shape) for p in model.parameters()]
        for name, parameter in model.named_parameters():
            yield f"{distribution} {name}", parameter.detach()
        for axis in (0, 1):
            tensor = place(torch.zeros(7, 10), axis)
            variance_scaling_(tensor, 2.0, "fan_avg", distribution, seed=4)
            yield f"{distribution} along axis {axis}", tensor
    generator = torch.Generator().manual_seed(5)
    yield "generator", variance_scaling_(place(torch.zeros(3, 10), 0), generator=generator)
    blocks = shard(stack())
    nn.init.zeros_(blocks[0].bias)
    depth_stack_(blocks, FractionalIncrements(0.8), seed=6)
    for depth, layer in enumerate(blocks):
        yield f"depth {depth}", layer.weight.detach()


def main(rank, size, store, output):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    _draws.BLOCK = 32
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size
    )
    mesh = init_device_mesh("cpu", (size,))

    def shard(model):
        return fully_shard(model, mesh=mesh)

    def place(tensor, axis):
        return distribute_tensor(tensor, mesh, [Shard(axis)])

    seen = {}
    for name, tensor in draws(shard, place):
        assert isinstance(tensor, DTensor)
        seen[name] = tensor.full_tensor()
    try:
        variance_scaling_(place(torch.zeros(4, 4), 0))
    except ValueError as error:
        seen["error"] = str(error)
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    seen["ddp names"] = initialize_(wrapped, seed=0)["name"].tolist()
    seen["ddp"] = wrapped.module.weight.detach()
    if rank == 0:
        torch.save(seen, output)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
