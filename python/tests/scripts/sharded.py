"""Trains a model of which each rank has a part (FSDP2, with AdamW), and says what all ranks together
have, at each commit and whenever it begins again.

BACKEND is that of torch.distributed whose default group follows the job; COPIES those of each part, or
PARITY in place of them.
DIES="rank,rank@step" has ranks of the first generation kill themselves in a step, before LINE: forward, where
others may not have made the commit before yet, backward, or commit. STEPS is how many
are made at least: there are more until WAITS ranks have come. With HSDP four ranks are two replicas of
two parts each. With TP=2 each two ranks are tensor parallel, if their number is even, and the others
shard what each of the two has. With CHECKPOINTS, a folder, the ranks die in the first step from that one on in which
there is a checkpoint, and the others go on for STEPS. With HOLDS, a file, all wait in the second
generation before their first commit until it is there. MODE is the commit_mode; SPOILS is a step before
which rank 0 of the first generation changes a weight. AWAY=1 has a second model, the same on all ranks,
whose weights are not contiguous, and so not in the memory from which commits are copied, as on a GPU.
"""

import glob
import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import regroup
import regroup.torch as hvd

BACKEND = os.environ.get("BACKEND", "gloo")
COPIES, PARITY = int(os.environ.get("COPIES", "1")), int(os.environ.get("PARITY", "0"))
KEPT = {"parity": PARITY} if PARITY else {"copies": COPIES}
STEPS, WAITS = int(os.environ.get("STEPS", "30")), int(os.environ.get("WAITS", "1"))
HSDP, TP = "HSDP" in os.environ, int(os.environ.get("TP", "1"))
CHECKPOINTS = os.environ.get("CHECKPOINTS")
HOLDS = os.environ.get("HOLDS")
SPOILS = int(os.environ.get("SPOILS", "-1"))
AWAY = os.environ.get("AWAY", "") == "1"
victims, _, moment = os.environ.get("DIES", "@-1").partition("@")
LINE = os.environ.get("LINE", "forward")
VICTIMS, MOMENT = [int(v) for v in victims.split(",") if v], int(moment)

torch.set_num_threads(1)
hvd.follow(BACKEND)


def tensor_parallel():
    """How many ranks compute a layer together."""
    return TP if dist.get_world_size() % TP == 0 else 1


def build(fresh):
    torch.manual_seed(os.getpid())  # ranks, and those that come later, would begin with weights of their own
    size, tp = dist.get_world_size(), tensor_parallel()
    width = 33 if TP == 1 else 34  # tensor parallel layers must divide evenly, and fully_shard has 17 left
    net = torch.nn.Sequential(torch.nn.Linear(10, width), torch.nn.GELU(), torch.nn.Linear(width, 7, bias=False))
    net.register_buffer("seen", torch.zeros((), dtype=torch.int64))
    if HSDP and size == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    elif tp > 1:
        both = init_device_mesh("cpu", (size // tp, tp), mesh_dim_names=("shard", "tensor"))
        parallelize_module(net, both["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        mesh = both["shard"]
    else:
        mesh = init_device_mesh("cpu", (size,))
    if size > tp or TP == 1:
        for layer in net:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
    made = {"model": net}
    if AWAY:
        made["second"] = torch.nn.Linear(5, 3)
        made["second"].weight = torch.nn.Parameter(torch.linspace(-1, 1, 15).view(5, 3).t())
    parameters = [p for module in made.values() for p in module.parameters()]
    return {**made, "optimizer": torch.optim.AdamW(parameters, lr=0.01)}


state = hvd.elastic.TorchState(build=build, steps=0, commit_mode=os.environ.get("MODE"), **KEPT)


def say(what, **values):
    says = " ".join(f"{k}={v}" for k, v in values.items())
    print(f"{what} at={time.time():.6f} pid={os.getpid()} {says}", flush=True)


def whole():
    """A hash of all tensors of the model and the optimizer."""
    second = [*state.second.parameters()] if AWAY else []
    moments = [v for p in [*state.model.parameters(), *second] for _, v in sorted(state.optimizer.state[p].items())]
    found = [content(t) for t in [*state.model.buffers(), *moments]]
    sharded = [m for m in state.model.modules() if isinstance(m, FSDPModule)]
    for module in sharded:  # what they compute with, whatever they say of their parts
        module.unshard()
    found += [content(p) for p in [*state.model.parameters(), *second]]
    for module in sharded:
        module.reshard()
    return hashlib.sha256(b"".join(found)).hexdigest()[:16]


def content(tensor):
    if isinstance(tensor, DTensor):
        strided = any(type(placement).__name__ == "_StridedShard" for placement in tensor.placements)
        tensor = put_together(tensor) if strided else tensor.full_tensor()
    return tensor.detach().clone().numpy().tobytes()  # numpy keeps memory from being freed


def put_together(tensor):
    """What full_tensor returns. That of torch 2.9 mixes up rows if they do not divide evenly."""
    parts = [None] * dist.get_world_size()
    at = [(list(chunk.offsets), list(chunk.sizes)) for chunk in tensor.__create_chunk_list__()]
    dist.all_gather_object(parts, (at, tensor.to_local().detach()))
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    for ((offsets, sizes),), part in parts:
        whole[tuple(slice(o, o + n) for o, n in zip(offsets, sizes))] = part
    return whole


def dying(state):
    """Whether those that shall die do so in this step."""
    if not CHECKPOINTS:
        return regroup.generation() == 1 and state.steps == MOMENT
    if hvd.size() != 4 or not VICTIMS or state.steps < MOMENT:
        return False
    there = torch.tensor(len(glob.glob(f"{CHECKPOINTS}/*.parts")))
    dist.broadcast(there, 0)
    return there.item() > 0


def die_if(doomed):
    if doomed:
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    say("enters", step=state.steps, rank=rank, size=size, hash=whole(), lr=state.optimizer.param_groups[0]["lr"])
    while state.steps < STEPS or size < WAITS or CHECKPOINTS and size == 4:
        if (regroup.generation(), state.steps, rank) == (1, SPOILS, 0):
            with torch.no_grad():
                next(state.model.parameters()).mul_(1.5)
        doomed = dying(state) and rank in VICTIMS
        die_if(doomed and LINE == "forward")
        generator = torch.Generator().manual_seed(100 * state.steps + rank // tensor_parallel())
        x = torch.randn(8, 10, generator=generator)
        state.optimizer.zero_grad()
        loss = state.model(x).square().mean()
        if AWAY:
            loss = loss + state.second(torch.ones(2, 5)).square().mean()
        die_if(doomed and LINE == "backward")
        loss.backward()
        state.optimizer.step()
        die_if(doomed)
        state.model.seen += 8
        for group in state.optimizer.param_groups:
            group["lr"] *= 0.99
        state.steps += 1
        time.sleep(0.01)  # so that a newcomer can come
        while HOLDS and regroup.generation() == 2 and not os.path.exists(HOLDS):
            time.sleep(0.01)  # other processes give no other sign
        say("commits", step=state.steps, rank=rank, size=size, hash=whole())
        state.commit()
    print(f"says: {state.describe()}")
    say("ends", step=state.steps, rank=rank, hash=whole(), seen=state.model.seen.item())


train(state)
