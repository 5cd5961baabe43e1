"""The transformer of train.py, sharded with fully_shard (FSDP2), which goes on without a checkpoint::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/fsdp/elastic.py

When a worker dies the others go on in their processes at once, with their parts of the model and the
copy of its part that another of them has kept. One that comes in its place gets a part again.

With --replicas 2 an even number of workers are two replicas of the model, each of which is sharded
(HSDP). Nothing is copied then: the other replica has what a worker has. If one dies, an odd number
shard one replica among themselves, until there are two again.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import regroup.torch as hvd
from train import Transformer, batch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--backend", default="gloo", help="nccl on GPUs")
args = parser.parse_args()

torch.manual_seed(1)
hvd.follow(args.backend)


def build(fresh):
    """This rank's part of model and optimizer, for the ranks that there are now."""
    size, replicas = dist.get_world_size(), args.replicas
    if replicas > 1 and size % replicas == 0:
        mesh = init_device_mesh(
            "cpu", (replicas, size // replicas), mesh_dim_names=("replicas", "parts")
        )
    else:
        mesh = init_device_mesh("cpu", (size,))
    if dist.get_rank() == 0:
        print(f"a mesh of {tuple(mesh.shape)}", flush=True)
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3)}


state = hvd.elastic.TorchState(build=build, copies=1, step=0, loss=0.0)


@hvd.elastic.run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size} goes on at step {state.step}", flush=True)
    while state.step < args.steps:
        x, y = batch(16, seed=state.step * 1000 + rank)
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(x).flatten(0, 1), y.flatten())
        loss.backward()
        state.optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        state.step, state.loss = state.step + 1, loss.item() / size
        state.commit()
        if rank == 0 and state.step % 10 == 0:
            print(f"step {state.step}: loss {state.loss:.3f}", flush=True)
    if rank == 0:
        print(f"done at step {state.step}: loss {state.loss:.5f}", flush=True)


train(state)
