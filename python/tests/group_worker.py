"""A process that trains with GradientAccumulator in the generations of test_reproducible_groups. It may die anywhere:
in the middle of a backward pass, or beside an operation that has started.
"""

import functools
import itertools
import os
import pickle
import random
import traceback

import torch
import torch.distributed as dist

from regroup.errors import RegroupError, WorkerLostError
from regroup.membership import STATIC, Membership

from .trainings import TRAININGS


class Worker:
    """A process that trains in the generations that it is let into."""

    def __init__(self, pipe, store):
        from regroup.torch.follower import meshes

        meshes.record()
        self.pipe, self.store = pipe, store
        self.chance, self.dice, self.size = 0.0, random.Random(), 1
        for name in (
            "all_reduce",
            "all_to_all_single",
            "all_gather",
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
        ):
            setattr(dist, name, self.and_dies(getattr(dist, name)))

    def and_dies(self, operation):
        @functools.wraps(operation)
        def started(*args, **kwargs):
            result = operation(*args, **kwargs)
            self.reach()
            return result

        return started

    def reach(self, _=None):
        """A place where this process may die."""
        if self.size > 1 and self.dice.random() < self.chance:
            os._exit(3)

    def generation(self, kind, number, rank, size, chance, seed, new, commit, until):
        """Trains until a step, unless others are lost before."""
        from regroup.torch.follower import connections, meshes

        before = connections.sockets()
        self.size, self.chance, self.dice = size, chance, random.Random(seed)
        self.pipe.send(("begins", None))
        try:
            self.connect(kind.backend, dist.PrefixStore(str(number), self.store), rank, size)
            meshes.forget()  # those of the generation before
            if new or kind.sharded:
                self.build(kind, size)
            self.load(commit, rank, size)
            self.train(until)
        except RuntimeError as e:
            if isinstance(e, RegroupError) and not isinstance(e, WorkerLostError):
                raise
            self.pipe.send(("lost", str(e)))
            connections.Mesh(list(connections.connected_since(before))).shut_down()
        else:
            self.pipe.send(("waits", None))
            self.pipe.recv()  # until no other one needs this one's connections
        self.disconnect(kind.backend)
        self.pipe.send(("out", None))

    def connect(self, backend, store, rank, size):
        from regroup.torch import rendezvous
        from regroup.torch.world import world

        if backend == "gloo":
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
            world.entries += 1  # as hvd.follow does
            return
        comm = rendezvous.connect(store, rank, size, host="127.0.0.1") if size > 1 else None
        world.mode = STATIC
        world._set(Membership(1, rank, size), comm, owned=True)

    def disconnect(self, backend):
        from regroup.torch.world import world

        if backend != "gloo":
            world._drop()
        elif dist.is_initialized():
            dist.destroy_process_group()

    def build(self, kind, size):
        from regroup.torch.reproducible import GradientAccumulator, ranks

        ranks._accumulators = itertools.count()  # as in a new process
        self.training = TRAININGS[kind.training]
        self.model = self.training.model()
        if kind.sharded:
            from torch.distributed.fsdp import fully_shard

            mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
            for child in self.model.children():
                if len(list(child.parameters())):
                    fully_shard(child, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.optimizer = self.training.optimizer(self.model.parameters())
        for p in self.model.parameters():
            p.register_post_accumulate_grad_hook(self.reach)
        self.gradients = GradientAccumulator(self.model, self.training.micro_batches, 5, bucket_bytes=4096)

    def state(self):
        """What this process has of weights, buffers and the optimizer's state, and what belongs to them."""
        weights = [(own(p), {k: own(v) for k, v in self.optimizer.state[p].items()}) for p in self.model.parameters()]
        return weights, list(self.model.buffers()), self.gradients.state_dict()

    def load(self, commit, rank, size):
        self.step, whole = commit
        if whole is None:
            return
        weights, buffers, gradients = pickle.loads(whole)
        for p, (value, state) in zip(self.model.parameters(), weights):
            put(p, value, rank, size)
            for key, part in state.items():
                one = self.optimizer.state[p].setdefault(key, torch.zeros_like(p) if part.dim() else part.clone())
                put(one, part, rank, size)
        for buffer, value in zip(self.model.buffers(), buffers):
            buffer.copy_(value)
        self.gradients.load_state_dict(gradients)

    def train(self, until):
        while self.step < until:
            for m in self.gradients.micro_batches(self.step):
                self.reach()
                self.training.loss(self.model, self.step, m).backward()
                self.pipe.send(("computed", (self.step, m)))
            self.reach()
            if self.training.clip:
                self.gradients.clip_grad_norm_(self.training.clip)
            self.optimizer.step()
            self.reach()
            self.step += 1
            self.pipe.send(("commits", (self.step, pickle.dumps(self.state()))))  # not a name of its memory
            self.reach()


def own(tensor):
    """What this process has of a tensor."""
    return tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor.detach()


def put(tensor, whole, rank, size):
    """Gives a tensor its value, or its part of it."""
    if hasattr(tensor, "to_local") and whole.dim():
        parts = whole.chunk(size)
        whole = parts[rank] if rank < len(parts) else whole[:0]
    own(tensor).copy_(whole)


def start_worker(pipe, port, env):
    os.environ.update(env)
    torch.set_num_threads(1)
    worker = Worker(pipe, dist.TCPStore("127.0.0.1", port, is_master=False))
    while True:
        order = pipe.recv()
        try:
            worker.generation(*order)
        except BaseException:
            pipe.send(("failed", traceback.format_exc()))
