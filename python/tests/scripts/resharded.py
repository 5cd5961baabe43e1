"""Trains a model of which each rank has a part (FSDP2, with AdamW), and writes what each rank of three
has of the state into files, by its name in a state dict: when three go on (OUT/begun-RANK), and some steps
later (OUT/ended-RANK).

In a job, rank VICTIM of four dies after STEPS steps, and the others go on. With a launcher, four ranks make
STEPS steps and write a checkpoint with torch.distributed.checkpoint, with which a world of three goes on.
"""

import os
import signal

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import regroup.torch as hvd

BACKEND, OUT = os.environ["BACKEND"], os.environ["OUT"]
STEPS, MORE = int(os.environ["STEPS"]), 3
DIED = os.path.join(OUT, "died")

torch.set_num_threads(1)


def build(fresh):
    torch.manual_seed(3)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = torch.nn.Sequential(torch.nn.Linear(10, 33), torch.nn.GELU(), torch.nn.LayerNorm(33), torch.nn.Linear(33, 7))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    decayed = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return {"model": net, "optimizer": torch.optim.AdamW(groups, lr=0.01, amsgrad=True)}


def step(model, optimizer, number):
    generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
    optimizer.zero_grad()
    model(torch.randn(8, 10, generator=generator)).square().mean().backward()
    optimizer.step()


def write(name, model, optimizer, steps):
    """Writes what this rank has, and where in the tensors it is."""
    found = {"steps": steps}

    def note(path, value):
        if isinstance(value, dict):
            for key in value:
                note(f"{path}.{key}", value[key])
        elif isinstance(value, (list, tuple)):
            note(path, dict(enumerate(value)))
        elif isinstance(value, DTensor):
            local = value.to_local().clone()
            chunk = value.__create_chunk_list__()[0]
            found[path] = (local, list(chunk.offsets) if local.numel() else None, list(value.shape))
        else:
            found[path] = value.clone() if torch.is_tensor(value) else value

    note("", get_state_dict(model, optimizer))
    torch.save(found, os.path.join(OUT, f"{name}-{dist.get_rank()}"))


def in_job():
    if os.path.exists(DIED):
        signal.pause()  # the others go on without one in the place of the dead
    hvd.follow(BACKEND)
    state = hvd.elastic.TorchState(build=build, copies=1, steps=0)

    @hvd.elastic.run
    def train(state):
        begun = state.steps
        if begun:
            write("begun", state.model, state.optimizer, state.steps)
        while state.steps < (begun + MORE if begun else STEPS + 1):
            step(state.model, state.optimizer, state.steps)
            if not begun and state.steps == STEPS and dist.get_rank() == int(os.environ["VICTIM"]):
                open(DIED, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            state.steps += 1
            state.commit()
        write("ended", state.model, state.optimizer, state.steps)

    train(state)


def with_checkpoint():
    if BACKEND == "regroup":
        import regroup.torch.distributed  # noqa: F401

    checkpoint = os.path.join(OUT, "checkpoint")
    dist.init_process_group(BACKEND)
    model, optimizer = build(True).values()
    for number in range(STEPS):
        step(model, optimizer, number)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=checkpoint)
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank == 3:
        return
    dist.init_process_group(BACKEND, init_method=f"file://{OUT}/store", rank=rank, world_size=3)
    model, optimizer = build(True).values()
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    write("begun", model, optimizer, STEPS)
    for number in range(STEPS, STEPS + MORE):
        step(model, optimizer, number)
    write("ended", model, optimizer, STEPS + MORE)
    dist.destroy_process_group()


if "VICTIM" in os.environ:
    in_job()
else:
    with_checkpoint()
    os._exit(0)  # an interpreter that ends beside threads of gloo may abort
