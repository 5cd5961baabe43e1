"""A rank is killed; what the others see, and after how long. Arguments: how, the rank that dies,
where to write."""

import faulthandler
import json
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

import regroup.torch as hvd
import regroup.torch.distributed  # noqa: F401

from tests import launch

faulthandler.dump_traceback_later(launch.PATIENCE, exit=True)
how, victim, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hvd.init()
rank = hvd.rank()
if how.startswith("c10d") or how == "ddp":
    dist.init_process_group("regroup")


def small():
    hvd.allreduce(torch.ones(8))


def large():
    hvd.synchronize(hvd.allreduce_async(torch.ones(1 << 20)))


def c10d_small():
    dist.all_reduce(torch.ones(8))


def c10d_large():
    dist.all_reduce(torch.ones(1 << 20))


def c10d_broadcast():
    dist.broadcast(torch.ones(8), victim)


def optimizer():
    optimizer.zero_grad()
    model(torch.ones(4, 300)).sum().backward()
    optimizer.step()


def ddp():
    model(torch.ones(4, 600)).sum().backward()


def abort():
    hvd.allreduce(torch.ones(8))


call = globals()[how]
if how == "optimizer":
    model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    inner = optimizer

    def call():
        inner.zero_grad()
        model(torch.ones(4, 300)).sum().backward()
        inner.step()


if how == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(600, 600) for _ in range(4)])
    )
for _ in range(20):
    call()


def die():
    with open(os.path.join(folder, "died"), "w") as f:
        f.write(repr(time.time()))
    if how == "abort":
        from regroup.torch.world import world

        world.communicator.abort("as the test wants it")
    else:
        os.kill(os.getpid(), signal.SIGKILL)


if rank == victim:
    threading.Timer(0.3, die).start()
says = {}
try:
    while True:
        call()
except RuntimeError as e:
    says = {
        "at": time.time(),
        "type": type(e).__name__,
        "text": str(e),
        "rank": getattr(e, "rank", None),
        "lost": isinstance(e, hvd.HorovodInternalError),
    }
try:
    call()
except RuntimeError as e:
    says["again"] = type(e).__name__
with open(os.path.join(folder, f"{rank}"), "w") as f:
    json.dump(says, f)
