"""MNIST with DistributedDataParallel and a checkpoint; it knows nothing of Regroup::

    regroup run --workers 2 -- python3 examples/ddp/mnist.py
    torchrun --nproc-per-node 2 examples/ddp/mnist.py

When a worker dies all are started again, and continue from the last checkpoint.
"""

import argparse
import gzip
import os
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mnist", "data")


def digits(folder):
    """Pictures and labels of 10,000 digits, in the IDX format."""

    def content(name, head):
        with gzip.open(os.path.join(folder, f"train-{name}-ubyte.gz")) as f:
            return torch.frombuffer(bytearray(f.read()[head:]), dtype=torch.uint8)

    labels = content("labels-idx1", 8).long()
    return TensorDataset(content("images-idx3", 16).reshape(-1, 1, 28, 28) / 255, labels)


def save(state, path):
    """Writes a file that is whole or not there: a worker may die while it writes."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", default="mnist.pt")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    args = parser.parse_args()

    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(
            *(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(8 * 12 * 12, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    dataset = digits(DATA)
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)

    epoch = batch = 0  # where to begin
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch, batch = saved["epoch"], saved["batch"]
        if rank == 0:
            print(f"resumes at step {epoch * len(loader) + batch}", flush=True)

    for epoch in range(epoch, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in islice(loader, batch, None):  # without the batches that were done
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            batch += 1
            step = epoch * len(loader) + batch
            if rank == 0 and step % args.every == 0:
                saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                save({"epoch": epoch, "batch": batch, **saved}, args.checkpoint)
            if rank == 0 and step % 10 == 0:
                print(f"step {step}", flush=True)
        batch = 0

    if rank == 0:
        with torch.no_grad():
            x, y = dataset.tensors
            print(f"loss {nn.functional.cross_entropy(model.module(x), y).item():.8f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
