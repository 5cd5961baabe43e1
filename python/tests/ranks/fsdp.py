"""FSDP2 and tensor parallel layers on our backend, beside gloo's."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from .distributed import GLOO, RANK, SIZE, same


class Network(torch.nn.Module):
    """Of layers whose rows do not divide evenly among three ranks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.LayerNorm(24)
        self.up, self.down = torch.nn.Linear(24, 100), torch.nn.Linear(100, 24)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def sharded(mesh):
    net = torch.nn.Sequential(Network(), Network())
    for block in net:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def mixed(mesh):
    net = torch.nn.Sequential(Network(), Network())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return fully_shard(net, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def parallel(mesh):
    net = Network()
    net.up, net.down = torch.nn.Linear(24, 96), torch.nn.Linear(96, 24)
    return parallelize_module(net, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def sequence(mesh):
    from torch.distributed.tensor import Shard

    net = Network()
    net.up, net.down = torch.nn.Linear(24, 96), torch.nn.Linear(96, 24)
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(net, mesh, plan)
    inner = net.forward

    def forward(x):
        mine = x.chunk(SIZE, dim=1)[RANK].contiguous()  # this rank's part of the sequence
        out = inner(mine)
        return out.to_local() if isinstance(out, DTensor) else out

    net.forward = forward
    return net


def train(build, group):
    """The parameters of this rank after some steps, and the last output."""
    net = build(DeviceMesh.from_group(group, "cpu"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    shards = build in (sharded, mixed)  # each rank has data of its own
    data = torch.Generator().manual_seed(7 + RANK * shards)
    for _ in range(4):
        x = torch.randn(4, 2 * SIZE, 24, generator=data)
        optimizer.zero_grad()
        out = net(x)
        out.float().square().mean().backward()
        if shards:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    local = [p.to_local() if isinstance(p, DTensor) else p for p in net.parameters()]
    return [*(p.detach().clone() for p in local), out.detach()]


def compare(build):
    """Two ranks: the same bits as gloo's, for a + b is b + a. More add up in another order."""
    for i, (got, want) in enumerate(zip(train(build, dist.group.WORLD), train(build, GLOO))):
        if SIZE <= 2:
            same(got, want, f"{build.__name__} {i}")
        elif want.numel():
            assert torch.allclose(got, want, rtol=1e-3, atol=1e-4), f"{build.__name__} {i}: {got} and {want}"


def case_sharded():
    compare(sharded)


def case_mixed():
    compare(mixed)


def case_tensor_parallel():
    compare(parallel)


def case_sequence_parallel():
    compare(sequence)
