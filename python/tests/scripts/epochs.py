"""The loop that most articles show: train an epoch, validate, commit at the end of each. The worker
in slot 1 dies in each of its lives at another line of it, in the order in which they come; what it
trained on is counted in the state.

FORM is where set_epoch stands: end (Horovod's advice) or begin. RECORD is how samples are recorded:
batch or indices.
"""

import os
import signal
import sys

import torch

import regroup.torch as hvd

EPOCHS, SAMPLES, BATCH = int(os.environ.get("EPOCHS", "12")), 37, 4
FORM, RECORD = os.environ.get("FORM", "end"), os.environ.get("RECORD", "batch")

hvd.init()
torch.manual_seed(3)
dataset = torch.utils.data.TensorDataset(torch.arange(SAMPLES))
sampler = hvd.elastic.ElasticSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=sampler)
model = torch.nn.Linear(1, 1)
model.register_buffer("seen", torch.zeros(SAMPLES))  # visits of each sample
state = hvd.elastic.TorchState(model, sampler=sampler, epoch=0)


def train_epoch(state):
    for batch_idx, (x,) in enumerate(loader):
        counted = torch.zeros(SAMPLES)
        counted[x] = 1.0 if sampler.weight() > 0 else 0.0
        counted = hvd.allreduce(counted, op=hvd.Sum, name="counted")
        mine = sampler.get_indices(batch_idx, BATCH)
        model.seen += counted
        if RECORD == "batch":
            sampler.record_batch(batch_idx, BATCH)
        else:
            sampler.record_indices(mine)
        if batch_idx == 2:
            state.commit()
    state.commit()


def validate(state):
    total = hvd.allreduce(model.seen.sum(), op=hvd.Average, name="total")
    assert total == model.seen.sum(), "the ranks differ"


@hvd.elastic.run
def train(state):
    print(f"enters pid={os.getpid()} rank={hvd.rank()} epoch={state.epoch} sampler={sampler.epoch}", flush=True)
    while state.epoch < EPOCHS:
        if FORM == "begin":
            sampler.set_epoch(state.epoch)
        train_epoch(state)
        validate(state)
        state.epoch += 1
        if FORM == "end":
            sampler.set_epoch(state.epoch)
        state.commit()


def die_at_every_line():
    """In each of its lives this worker dies at the first line that it has not died at, an epoch
    later than in the one before; DIED is a file of those lines."""
    loop = {f.__code__ for f in (train.__wrapped__, train_epoch, validate)}
    with open(os.environ["DIED"], "a+", encoding="utf-8") as f:
        f.seek(0)
        died = set(f.read().split())

    def line(frame, event, _):
        here = f"{frame.f_code.co_name}:{frame.f_lineno}"
        if event == "line" and here not in died and state.epoch > len(died):
            with open(os.environ["DIED"], "a", encoding="utf-8") as f:
                f.write(f"{here}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return line

    sys.settrace(lambda frame, event, _: line if frame.f_code in loop else None)


if os.environ["REGROUP_SLOT"] == os.environ["VICTIM"]:
    die_at_every_line()
train(state)
print(
    f"ends rank={hvd.rank()} epoch={state.epoch} sampler={sampler.epoch} least={int(model.seen.min())} most={int(model.seen.max())}",
    flush=True,
)
