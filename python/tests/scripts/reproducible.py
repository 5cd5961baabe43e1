"""Trains with GradientAccumulator, and says what the weights are at the end.

RECORDS is a folder in which each worker records the micro-batches that it has computed, and its death. DEATHS is how
likely it is to kill itself at each of several places of a step, in a generation of more than one. BACKEND is that of
torch.distributed, or empty for none; TRAINING one of tests.trainings; with SHARDED=1 its model is dealt to the ranks,
of four to two times two.
WRONG is a slot whose losses, and gradients, are wrong when it was 25 steps in a generation of three, or of WRONG_OF;
COMMIT_MODE is that of the state.
"""

import os
import random
import signal

import torch
import torch.distributed as dist

import regroup
import regroup.torch as hvd
from regroup.torch.reproducible import GradientAccumulator

from tests.histories import digest_of
from tests.trainings import TRAININGS

torch.set_num_threads(1)
if os.environ["BACKEND"]:
    hvd.follow(os.environ["BACKEND"])
else:
    hvd.init()
training, dice = TRAININGS[os.environ["TRAINING"]], random.Random(os.urandom(8))
record = open(os.path.join(os.environ["RECORDS"], str(os.getpid())), "w", buffering=1, encoding="utf-8")


def reach(_=None):
    if hvd.size() > 1 and dice.random() < float(os.environ["DEATHS"]):
        print("dies", state.step, file=record)
        os.kill(os.getpid(), signal.SIGKILL)


first_steps = {}  # by generation
wrong_of = int(os.environ.get("WRONG_OF", "3"))


def parts_of(model):
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(reach)
    optimizer = training.optimizer(model.parameters())
    how = {"witness": "WRONG" in os.environ, "optimizer": optimizer, "check_every": 5}
    gradients = GradientAccumulator(model, training.micro_batches, seed=5, **how)
    return {"model": model, "optimizer": optimizer, "gradients": gradients}


def changed(loss):
    """What the machine makes of a loss."""
    if os.environ.get("WRONG") != os.environ["REGROUP_SLOT"] or hvd.size() < wrong_of:
        return loss
    if regroup.generation() not in first_steps:
        first_steps[regroup.generation()] = state.step
    if state.step < first_steps[regroup.generation()] + 25:
        return loss
    if state.step == first_steps[regroup.generation()] + 25:
        print(f"wrong from step {state.step} on", flush=True)
    return loss * 1.001


def build(fresh):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    size = dist.get_world_size()
    shape = (2, 2) if size == 4 else (size,)
    model, mesh = training.model(), init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for child in model.children():
        if len(list(child.parameters())):
            fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return parts_of(model)


if os.environ.get("SHARDED"):
    state = hvd.elastic.TorchState(build=build, copies=1, step=0)
else:
    state = hvd.elastic.TorchState(**parts_of(training.model()), commit_mode=os.environ.get("COMMIT_MODE"), step=0)


def weights():
    """All parameters and buffers, and what the optimizer has of them."""
    tensors = list(state.model.state_dict().values())
    for p in state.model.parameters():
        tensors += [v for _, v in sorted(state.optimizer.state[p].items()) if isinstance(v, torch.Tensor)]
    return digest_of([t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors])


@hvd.elastic.run
def train(state):
    all_came = os.path.join(os.environ["RECORDS"], "all-came")
    if hvd.size() == wrong_of:
        open(all_came, "w").close()
    while "WRONG" in os.environ and not os.path.exists(all_came):
        state.commit()  # which ends when the last has come
    while state.step < int(os.environ["STEPS"]):
        for m in state.gradients.micro_batches(state.step):
            reach()
            changed(training.loss(state.model, state.step, m)).backward()
            print("computes", state.step, m, file=record)
        reach()
        if training.clip:
            state.gradients.clip_grad_norm_(training.clip)
        state.optimizer.step()
        reach()
        state.step += 1
        state.commit()
        reach()
    # One write: several workers may write to one file.
    print(f"ends size={hvd.size()} gen={regroup.generation()} hash={weights()}\n", end="", flush=True)


train(state)
