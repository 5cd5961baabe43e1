"""Trains to the same weights, to the bit, with any number of workers, and whichever of them are killed.

    python3 train.py
    torchrun --nproc-per-node 3 train.py
    regroup run --workers 1:4 --recovery in-process -- python3 train.py

Each says the same hash at the end. See docs/reproducible.md.
"""

import argparse
import hashlib

import torch
from torch import nn

import regroup
import regroup.torch as hvd
from regroup.torch.reproducible import GradientAccumulator

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--micro-batches", type=int, default=12, help="of a step; at least the largest number of workers")
arguments = parser.parse_args()

torch.set_num_threads(1)  # the order in which threads add numbers up depends on how many there are
torch.use_deterministic_algorithms(True)
hvd.follow("gloo")

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
gradients = GradientAccumulator(model, arguments.micro_batches, seed=1, optimizer=optimizer)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, gradients=gradients, step=0)

samples = torch.randn(4096, 20, generator=torch.Generator().manual_seed(2))
labels = (samples[:, :5] * samples[:, 5:10]).argmax(1)


def batch(step, micro_batch, size=16):
    """The samples of a micro-batch, on any rank."""
    first = (step * arguments.micro_batches + micro_batch) * size
    places = torch.arange(first, first + size) % len(samples)
    return samples[places], labels[places]


@hvd.elastic.run
def train(state):
    while state.step < arguments.steps:
        for micro_batch in gradients.micro_batches(state.step):
            x, y = batch(state.step, micro_batch)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        gradients.clip_grad_norm_(1.0)
        optimizer.step()
        state.step += 1
        state.commit()
        regroup.report(step=state.step, loss=loss.item())
    weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    print(f"rank {hvd.rank()} of {hvd.size()}: sha256 {hashlib.sha256(weights).hexdigest()}", flush=True)


train(state)
