"""Trains six steps of a model, of which each of two ranks has a part, and keeps what WHAT says."""

import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import regroup.torch as hvd

WHAT = os.environ["WHAT"]

torch.set_num_threads(1)
torch.manual_seed(0)
hvd.follow("gloo")
outer = torch.nn.Linear(4, 4)
state = hvd.elastic.TorchState(steps=0, shard=None, full=None)
if WHAT in ("sharded in the function", "hybrid", "tensor parallel"):
    state = hvd.elastic.TorchState(model=outer, steps=0, full=None)


def full(model, offload=False):
    """The weights, whole."""
    return get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=offload)
    )


@hvd.elastic.run
def train(state):
    mesh = init_device_mesh("cpu", (2,))
    model = outer if "model" in state._handlers else torch.nn.Linear(4, 4)
    if WHAT == "tensor parallel":
        parallelize_module(model, mesh, ColwiseParallel())
    elif WHAT == "hybrid":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "parts")))
    elif WHAT != "zero":
        fully_shard(model, mesh=mesh)
    if state.full:
        set_model_state_dict(model, state.full, options=StateDictOptions(full_state_dict=True))
    if WHAT == "set later":
        state.model = model
    if WHAT == "attribute":
        state.shard = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    if WHAT == "in an attribute":
        state.shard = {"list": [distribute_tensor(torch.ones(4), mesh, [Shard(0)])]}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if WHAT == "zero":
        state.optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    say = f"rank={dist.get_rank()} steps={state.steps} sum={total(model)}"
    print("goes on" if state.steps else "begins", say, flush=True)
    while state.steps < 6:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.steps += 1
        if WHAT.startswith("full"):
            state.full = full(model, offload=WHAT != "full")
        state.commit()
        if WHAT == "full" and state.steps == 3:
            print(f"interrupts rank={dist.get_rank()} sum={total(model)}", flush=True)
            raise hvd.HostsUpdatedInterrupt()


def total(model):
    """The sum of all weights of all ranks."""
    sums = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return sum(t.double().sum().item() for t in sums)


train(state)
print(f"ends rank={hvd.rank()} steps={state.steps}", flush=True)
