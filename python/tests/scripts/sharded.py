"""Trains a model of which each rank has a part (FSDP2, with AdamW), and says what all ranks together
have, at each commit and whenever it begins again.

BACKEND is that of torch.distributed whose default group follows the job; COPIES those of each part, or
PARITY in place of them.
DIES="rank,rank@step" has ranks of the first generation kill themselves in a step. STEPS is how many
are made at least: there are more until WAITS ranks have come. With HSDP four ranks are two replicas of
two parts each. With CHECKPOINTS, a folder, the ranks die in the first step from that one on in which
there is a checkpoint, and the others go on for STEPS.
"""

import glob
import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import regroup.torch as hvd

BACKEND = os.environ.get("BACKEND", "gloo")
COPIES, PARITY = int(os.environ.get("COPIES", "1")), int(os.environ.get("PARITY", "0"))
KEPT = {"parity": PARITY} if PARITY else {"copies": COPIES}
STEPS, WAITS = int(os.environ.get("STEPS", "30")), int(os.environ.get("WAITS", "1"))
HSDP, CHECKPOINTS = "HSDP" in os.environ, os.environ.get("CHECKPOINTS")
victims, _, moment = os.environ.get("DIES", "@-1").partition("@")
VICTIMS, MOMENT = [int(v) for v in victims.split(",") if v], int(moment)

torch.set_num_threads(1)
hvd.follow(BACKEND)


def build(fresh):
    torch.manual_seed(os.getpid())  # ranks, and those that come later, would begin with weights of their own
    if HSDP and dist.get_world_size() == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = torch.nn.Sequential(torch.nn.Linear(10, 33), torch.nn.GELU(), torch.nn.Linear(33, 7, bias=False))
    net.register_buffer("seen", torch.zeros((), dtype=torch.int64))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return {"model": net, "optimizer": torch.optim.AdamW(net.parameters(), lr=0.01)}


state = hvd.elastic.TorchState(build=build, steps=0, **KEPT)


def say(what, **values):
    says = " ".join(f"{k}={v}" for k, v in values.items())
    print(f"{what} at={time.time():.6f} pid={os.getpid()} {says}", flush=True)


def whole():
    """A hash of all tensors of the model and the optimizer."""
    tensors = [*state.model.parameters(), *state.model.buffers()]
    for p in state.model.parameters():
        tensors += [v for _, v in sorted(state.optimizer.state[p].items())]
    full = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in full)).hexdigest()[:16]


def dying(state):
    """Whether those that shall die do so in this step."""
    if hvd.size() != 4 or not VICTIMS or state.steps < MOMENT:
        return False
    if not CHECKPOINTS:
        return state.steps == MOMENT
    there = torch.tensor(len(glob.glob(f"{CHECKPOINTS}/*.parts")))
    dist.broadcast(there, 0)
    return there.item() > 0


@hvd.elastic.run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    say("enters", step=state.steps, rank=rank, size=size, hash=whole(), lr=state.optimizer.param_groups[0]["lr"])
    while state.steps < STEPS or size < WAITS or CHECKPOINTS and size == 4:
        if dying(state) and rank in VICTIMS:
            say("dies", step=state.steps, rank=rank)
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(100 * state.steps + rank)
        x = torch.randn(8, 10, generator=generator)
        state.optimizer.zero_grad()
        state.model(x).square().mean().backward()
        state.optimizer.step()
        state.model.seen += 8
        for group in state.optimizer.param_groups:
            group["lr"] *= 0.99
        state.steps += 1
        time.sleep(0.01)  # so that a newcomer can come
        say("commits", step=state.steps, rank=rank, hash=whole())
        state.commit()
    say("ends", step=state.steps, rank=rank, hash=whole(), seen=state.model.seen.item())


train(state)
