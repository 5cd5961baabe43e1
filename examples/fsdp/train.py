"""A small transformer, sharded with fully_shard (FSDP2), and a distributed checkpoint; it knows
nothing of Regroup::

    regroup run --workers 2 -- python3 examples/fsdp/train.py
    torchrun --nproc-per-node 2 examples/fsdp/train.py

When a worker dies all are started again, and each loads its shards of the last whole checkpoint.
"""

import argparse
import glob
import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS, LENGTH = 61, 32


class Transformer(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.positions = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(layers)
        )
        self.head = nn.Linear(width, WORDS)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        x = self.words(x) + self.positions
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.head(x)


class Training(Stateful):
    """What a checkpoint holds; dcp asks each rank for its shards of it."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(
            *(self.model, self.optimizer),
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def checkpoints(folder):
    """The whole checkpoints, oldest first: dcp writes .metadata when all shards are written."""
    return sorted(map(os.path.dirname, glob.glob(f"{folder}/step-*/.metadata")))


def batch(size, seed):
    """Sequences to be learnt: each number is the one before plus a constant."""
    g = torch.Generator().manual_seed(seed)
    start, constant = torch.randint(WORDS, (2, size, 1), generator=g)
    rows = (start + (constant % 5 + 1) * torch.arange(LENGTH + 1)) % WORDS
    return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--backend", default="gloo", help="nccl on GPUs")
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    args = parser.parse_args()

    if args.backend == "regroup":
        import regroup.torch.distributed  # noqa: F401  not needed where its wheel is installed
    dist.init_process_group(args.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    training = Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3))

    found = checkpoints(args.out)
    if found:
        dcp.load({"training": training}, checkpoint_id=found[-1])
        if rank == 0:
            print(f"resumes at step {training.step}", flush=True)

    def loss_of(x, y):
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    while training.step < args.steps:
        step = training.step + 1
        training.optimizer.zero_grad()
        loss_of(*batch(16, seed=step * size + rank)).backward()
        training.optimizer.step()
        training.step = step
        if step % args.every == 0:
            folder = f"{args.out}/step-{step:06}"
            if rank == 0:  # a start that died here may have left shards
                shutil.rmtree(folder, ignore_errors=True)
            dist.barrier()
            dcp.save({"training": training}, checkpoint_id=folder)
            if rank == 0:
                for old in checkpoints(args.out)[:-2]:
                    shutil.rmtree(old)
        if rank == 0 and step % 5 == 0:
            print(f"step {step}", flush=True)

    with torch.no_grad():
        loss = loss_of(*batch(256, seed=0))  # all ranks: each has only a part of the model
    if rank == 0:
        print(f"loss {loss.item():.8f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
