"""A script that does much before elastic.run and after it, as those for Horovod do: a load that
rank 0 makes alone, broadcasts, samplers for the world's size; training with torch's own sampler; a
test with an average over the ranks.

AT=place kills the worker in slot 1 (or on node b; with ALL each one) in its first life at a place;
STEP is how long a step takes.
"""

import atexit
import os
import re
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data.distributed import DistributedSampler

import regroup.torch as hvd

NODE, SLOT, ATTEMPT = (os.environ[f"REGROUP_{n}"] for n in ("NODE", "SLOT", "ATTEMPT"))
MARKED = NODE == "b" or SLOT == "1" or "ALL" in os.environ


def say(what, **values):
    says = " ".join(f"{k}={v}" for k, v in values.items())
    print(f"{what} pid={os.getpid()} slot={SLOT} attempt={ATTEMPT} {says}", flush=True)


atexit.register(lambda: say("goes", nice=os.nice(0)))


BATCHES = 6  # as many as there are in a world of four


def of_the_second_epoch():
    """Whether a checkpoint of a commit in it is written."""
    folder = os.environ.get("REGROUP_CHECKPOINT_DIR") or os.environ["REGROUP_CHECKPOINT_DEFAULT_DIR"]
    steps = re.findall(r"step-(\d+)\.checkpoint\b(?!\.)", " ".join(os.listdir(folder)))
    return any(int(step) > BATCHES for step in steps)


def place(name):
    if os.environ.get("AT") == name and MARKED and ATTEMPT == "1":
        while "ALL" in os.environ and not of_the_second_epoch():
            time.sleep(0.01)  # rank 0 writes them beside its steps
        say("dies", at=name)
        os.kill(os.getpid(), signal.SIGKILL)


hvd.init()
torch.manual_seed(hvd.rank())  # every worker would start elsewhere
torch.set_num_threads(1)
say("inits", rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank())
place("init")
if hvd.rank() == 0:
    say("loads")
hvd.barrier()
place("barrier")
told = hvd.broadcast_object({"rank": hvd.rank(), "seed": 17}, root_rank=0)
place("object")
total = hvd.allreduce(torch.tensor([1.0, hvd.rank()]), name="total", op=hvd.Sum)
parts = hvd.allgather(torch.tensor([hvd.rank()]), name="parts")
say("told", told=told["seed"], root=told["rank"], total=total[0].item(), parts=",".join(map(str, parts.tolist())))

train_set = torch.utils.data.TensorDataset(torch.randn(240, 8, generator=torch.Generator().manual_seed(1)), torch.arange(240) % 4)
train_sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
loader = torch.utils.data.DataLoader(train_set, batch_size=10, sampler=train_sampler)
say("deals", first=next(iter(train_sampler)), samples=len(train_sampler))

model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
say("weights", sum=f"{model.weight.double().sum().item():.12f}")
place("parameters")
if os.environ.get("EXTRA") and ATTEMPT != "1":
    hvd.barrier()  # the others have never called it

state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)


def goes_on():
    """Whether the test has more to do: it makes the file UNTIL when it has seen enough."""
    if "UNTIL" not in os.environ:
        return False
    there = torch.tensor(float(os.path.exists(os.environ["UNTIL"])))
    return hvd.allreduce(there, name="until", op=hvd.Max).item() == 0


@hvd.elastic.run
def train(state):
    say("enters", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, batch=state.batch)
    while state.epoch < 2 or goes_on():
        train_sampler.set_epoch(state.epoch)
        for i, (x, y) in enumerate(loader):
            if i < state.batch:
                continue
            if i == BATCHES:
                break
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            state.batch += 1
            if state.epoch == 1 and i == 3:
                place("train")
            time.sleep(float(os.environ.get("STEP", "0")))
            state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
    return "trained"


say("returns", value=train(state))
place("after")
average = hvd.allreduce(torch.tensor(float(hvd.rank())), name="average").item()
say("ends", rank=hvd.rank(), size=hvd.size(), average=average, weights=f"{model.weight.double().sum().item():.9f}")
if hvd.rank() == 0 and os.environ.get("SAVE"):
    time.sleep(float(os.environ["SAVE"]))  # as long as a large model takes
    say("saved")
if os.environ.get("AGAIN"):
    try:
        train(state)
    except hvd.RegroupError as e:
        say("refused", why=str(e).split(":")[0].replace(" ", "_"))
sys.stdout.flush()
