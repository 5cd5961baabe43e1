"""Trains with the members that the job has, and says each step. BACKEND is that of
torch.distributed whose default group follows the job; "horovod": Horovod's interface instead.

STEP is how long a step lasts, EPOCHS how many are trained, unless STOP names a file: then until it
is there. DIES=step has rank 1 of three kill itself in this step, before its commit; with HANGS it
stops instead, and gives no sign of life; with WAITS the others wait for messages that never come.
VICTIM names a file: the process whose ID it holds kills itself when its step is over.
ENDS is how long a group may take to end. At the end a process says which of the threads that end groups there are.
"""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regroup.torch as hvd
from regroup.torch.follower import ending
from regroup.torch.world import world

BACKEND = os.environ.get("BACKEND", "gloo")
STEP = float(os.environ.get("STEP", "0.01"))
EPOCHS, STOP = int(os.environ.get("EPOCHS", "2")), os.environ.get("STOP", "")
DIES, VICTIM = int(os.environ.get("DIES", "-1")), os.environ.get("VICTIM", "")
SAMPLES, BATCH = 480, 8

if BACKEND == "fakenccl":
    from tests import fake_nccl  # noqa: F401  registers it
ending.LIMIT = float(os.environ.get("ENDS", str(ending.LIMIT)))

torch.set_num_threads(1)
torch.manual_seed(os.getpid())  # each worker would begin with weights of its own
x = torch.arange(float(SAMPLES)).reshape(-1, 1) / SAMPLES
dataset = torch.utils.data.TensorDataset(x, 2 * x + 1)
net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
if BACKEND == "horovod":
    hvd.init()
    model = net
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
else:
    hvd.follow(BACKEND)
    model = DistributedDataParallel(net)
sampler = hvd.elastic.ElasticSampler(dataset)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, steps=0)


def say(what, **values):
    says = " ".join(f"{k}={v}" for k, v in values.items())
    print(f"{what} at={time.time():.6f} pid={os.getpid()} {says}", flush=True)


def members():
    """This process's rank, and the number of ranks, as the interface in use says."""
    if BACKEND == "horovod":
        return hvd.rank(), hvd.size()
    assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
    return dist.get_rank(), dist.get_world_size()


def gathered(tensor):
    """What the ranks have for this tensor."""
    if BACKEND == "horovod":
        return list(hvd.allgather(tensor[None]))
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts


def check_weights():
    """All ranks have the same weights and momenta."""
    mine = [p.detach().flatten() for p in net.parameters()]
    mine += [optimizer.state[p]["momentum_buffer"].flatten() for p in net.parameters()]
    own = torch.cat(mine)
    assert all(torch.equal(part, own) for part in gathered(own)), "the ranks differ"
    return own.double().sum().item()


def check_new_group():
    """A group that is made in the function has the same name on survivors and newcomers."""
    if BACKEND != "horovod":
        ones = torch.ones(1)
        dist.all_reduce(ones, group=dist.new_group(list(range(dist.get_world_size()))))
        assert ones.item() == dist.get_world_size(), ones


def check_communicator():
    """The group of our backend is connected by the communicator of the job, and none beside it."""
    if BACKEND == "regroup":
        group = dist.group.WORLD
        if not hasattr(group, "communicator"):
            group = group._get_backend(torch.device("cpu"))
        own = group.communicator.describe(), world.communicator.describe()
        assert own[0] == own[1], own


def fault():
    if os.path.exists(VICTIM):
        with open(VICTIM, encoding="utf-8") as f:
            if f.read() == str(os.getpid()):
                say("dies")
                os.kill(os.getpid(), signal.SIGKILL)
    rank, size = members()
    if state.steps != DIES or size != 3:
        return
    if rank == 1:
        say("dies")
        os.kill(os.getpid(), signal.SIGSTOP if "HANGS" in os.environ else signal.SIGKILL)
    elif "WAITS" in os.environ:  # rank 0 for the survivor, which waits for the dead one
        dist.recv(torch.zeros(1), src={0: 2, 2: 1}[rank])


@hvd.elastic.run
def train(state):
    checked = False
    check_communicator()
    while not stopped():
        sampler.set_epoch(state.epoch)
        loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=sampler)
        for i, (xs, ys) in enumerate(loader):
            optimizer.zero_grad()
            weight = 1.0 if BACKEND == "horovod" else sampler.weight()
            (weight * torch.nn.functional.mse_loss(model(xs), ys)).backward()
            optimizer.step()
            time.sleep(STEP)  # the work of a larger model
            sampler.record_batch(i, BATCH)
            state.steps += 1
            fault()
            state.commit()
            say("steps", rank=members()[0], size=members()[1], step=state.steps)
            check_weights()
            if not checked:  # after the first step, for which others wait
                check_new_group()
                checked = True
        state.epoch += 1


def stopped():
    """Whether the training is over, on all ranks alike."""
    if not STOP:
        return state.epoch >= EPOCHS
    return any(gathered(torch.tensor([float(os.path.exists(STOP))])))


train(state)
left = [t.name for t in threading.enumerate() if t.name == "regroup-ending"]
say("ends", rank=members()[0], size=members()[1], epoch=state.epoch, checksum=check_weights(), left=len(left))
