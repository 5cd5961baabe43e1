"""A sharded model of which there are two: HSDP, on a mesh of two times two ranks."""

import importlib.util

import torch.distributed as dist

from regroup.errors import UnsupportedError
from regroup.torch.reproducible import GradientAccumulator

from ..histories import digest, digest_of
from ..trainings import DEALT, TRAININGS

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
ALONE = dist.new_group([0])
SHARDS = importlib.util.find_spec("torch.distributed.fsdp._fully_shard") is not None  # since torch 2.6


def not_applicable(name):
    return "" if SHARDS else "there is no fully_shard"


def build(name, shape):
    from torch.distributed.fsdp import fully_shard

    training = TRAININGS[name]
    mesh = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    net = training.model()
    for child in net.children():
        if len(list(child.parameters())):
            fully_shard(child, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return training, net, training.optimizer(net.parameters())


def train(training, net, optimizer, group=None, witness=0):
    how = {"seed": 2, "group": group, "optimizer": optimizer, "witness": witness}
    accumulator = GradientAccumulator(net, training.micro_batches, **how)
    norms = []
    for step in range(5):
        for m in accumulator.micro_batches(step):
            training.loss(net, step, m).backward()
        norms.append(accumulator.clip_grad_norm_(0.5))
        optimizer.step()
    return accumulator.state_hash().hash, norms


def case_the_bits_are_those_of_one_rank_alone():
    for name in DEALT:
        alone = [None]
        if RANK == 0:
            net, optimizer = TRAININGS[name].make()
            alone = [(train(TRAININGS[name], net, optimizer, ALONE), digest(net, optimizer))]
        dist.broadcast_object_list(alone)
        for witness in 0, 1, TRAININGS[name].micro_batches:
            training, net, optimizer = build(name, (2, 2))
            found = train(training, net, optimizer, witness=witness)
            tensors = list(net.state_dict().values())
            tensors += [v for p in net.parameters() for _, v in sorted(optimizer.state[p].items())]
            whole = digest_of(t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors)
            assert (found, whole) == alone[0], (name, witness, found, whole, alone[0])


def case_without_parts():
    training, net, _ = build("convolutional", (SIZE, 1))
    try:
        GradientAccumulator(net, training.micro_batches)
    except UnsupportedError as e:
        assert "is whole on each rank" in str(e), e
    else:
        raise AssertionError("no error")
