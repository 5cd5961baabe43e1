"""DistributedDataParallel on gloo that goes on when workers come and go::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/ddp/train.py
    python3 examples/ddp/train.py                            # alone, without Regroup

A plain training loop of PyTorch: the lines with an arrow are what makes it elastic. One worker that
is killed costs the others a step; its successor gets the weights from them.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import regroup.torch  # <- 1
from regroup.torch.elastic import ElasticSampler, TorchState, run

EPOCHS, BATCH = 20, 16


def waves(samples):
    """A sine, to be learnt."""
    x = torch.linspace(-3, 3, samples).reshape(-1, 1)
    return TensorDataset(x, torch.sin(x))


regroup.torch.follow("gloo")  # <- 2, for dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = waves(2048)
net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
sampler = ElasticSampler(dataset)  # for DistributedSampler
state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)  # <- 3


@run  # <- 4: called again, with the newest state, when the members have changed
def train(state):
    for state.epoch in range(state.epoch, EPOCHS):
        sampler.set_epoch(state.epoch)
        for i, (x, y) in enumerate(DataLoader(dataset, BATCH, sampler=sampler)):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            (sampler.weight() * loss).backward()  # the last batches of an epoch differ in length
            optimizer.step()
            time.sleep(0.02)  # the work of a larger model
            sampler.record_batch(i, BATCH)
            state.commit()  # <- 5: what was done up to here is never done again
        if dist.get_rank() == 0:
            print(f"epoch {state.epoch}: {dist.get_world_size()} workers", flush=True)


train(state)
if dist.get_rank() == 0:
    x, y = dataset.tensors
    print(f"loss {torch.nn.functional.mse_loss(net(x), y).item():.5f}")
