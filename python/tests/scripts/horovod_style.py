"""A script as one writes it for Horovod Elastic (docs/elastic.rst): the test changes nothing but
the line of the import."""

import os
import sys
import time

import torch
import torch.nn.functional as F
import torch.utils.data

import horovod.torch as hvd

hvd.init()
torch.manual_seed(7)
torch.set_num_threads(1)

samples, epochs, batch_size, lr = 900, 4, 10, 0.01
generator = torch.Generator().manual_seed(3)
dataset = torch.utils.data.TensorDataset(
    torch.randn(samples, 16, generator=generator),
    torch.randint(0, 4, (samples,), generator=generator),
)
sampler = hvd.elastic.ElasticSampler(dataset)
loader = torch.utils.data.DataLoader(
    dataset, batch_size=batch_size, sampler=sampler, num_workers=int(os.environ.get("LOADERS", "0"))
)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 4)
)
optimizer = torch.optim.SGD(model.parameters(), lr=lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = lr * hvd.size()


@hvd.elastic.run
def train(state):
    print(
        f"enters pid={os.getpid()} rank={hvd.rank()} size={hvd.size()} epoch={state.epoch}",
        flush=True,
    )
    for state.epoch in range(state.epoch, epochs):
        for batch_idx, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            state.sampler.record_batch(batch_idx, batch_size)
            state.batch += 1
            if state.batch % 5 == 0:
                state.commit()
            else:
                state.check_host_updates()
            fault(state, batch_idx)
            time.sleep(float(os.environ.get("STEP", "0")))  # what a larger model would take
            if hvd.size() < int(os.environ.get("FULL", "0")):
                time.sleep(1)  # so that who comes again finds the others in training
        state.sampler.set_epoch(state.epoch + 1)
        state.commit()


def fault(state, batch_idx):
    """What goes wrong here: the words of FAULT are for the worker in slot 1, in its first life, in
    epoch 1."""
    how = os.environ.get("FAULT", "")
    mine = os.environ.get("REGROUP_SLOT") == "1" and os.environ.get("REGROUP_ATTEMPT") == "1"
    if not mine or state.epoch != 1 or batch_idx != 7:
        return
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise KeyError("a mistake in the script")


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)
state.register_reset_callbacks([on_state_reset])
train(state)
checksum = sum(p.double().abs().sum().item() for p in model.parameters())
print(
    f"ends pid={os.getpid()} rank={hvd.rank()} size={hvd.size()} checksum={checksum:.15g}",
    flush=True,
)
