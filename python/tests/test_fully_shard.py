"""Models of fully_shard whose only rank has all of them: what programs do with them."""

import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

import regroup.torch as hvd
from regroup.errors import UnsupportedError

from . import launch


class OneRank(unittest.TestCase):
    def setUp(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        launch.alone(self)

    def train(self, prepare=lambda net: net, after=lambda net: None, **options):
        """Trains, goes back to a commit, and trains on: as without a state, to the bit. after is called
        before each commit, and before the return."""

        def build(fresh):
            torch.manual_seed(0)
            net, mesh = prepare(Tied()), init_device_mesh("cpu", (1,))
            fully_shard(net.inner, mesh=mesh, **options)
            fully_shard(net, mesh=mesh, **options)
            optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
            return {"model": net, "optimizer": optimizer, "schedule": schedule}

        def step(model, optimizer, schedule, number):
            x = torch.randint(11, (4, 5), generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            schedule.step()

        def all_of(model, optimizer, schedule):
            tensors = [
                *model.parameters(),
                *(v for p in model.parameters() for _, v in sorted(optimizer.state[p].items())),
            ]
            whole = [(t.full_tensor() if isinstance(t, DTensor) else t).clone() for t in tensors]
            return whole, schedule.state_dict(), optimizer.param_groups[0]["lr"]

        made = build(True).values()
        for number in range(5):
            step(*made, number)
        state = hvd.elastic.TorchState(build=build, steps=0)

        @hvd.elastic.run
        def train(state):
            parts = state.model, state.optimizer, state.schedule
            for number in range(3):
                step(*parts, number)
                after(state.model)
                state.steps += 1
                state.commit()
            at_commit = all_of(*parts)
            step(*parts, 50)
            after(state.model)
            state.restore()
            self.assertTrue(same(at_commit, all_of(*parts)))
            for number in range(3, 5):
                step(*parts, number)
            self.assertTrue(same(all_of(*made), all_of(*parts)))

        train(state)

    def test_an_evaluation_before_a_commit(self):
        """A forward pass that no backward pass follows leaves whole parameters in the module."""

        def evaluate(net):
            net.eval()
            with torch.no_grad():
                net(torch.zeros(1, 1, dtype=torch.int64))
            net.train()

        self.train(after=evaluate)
        self.train(after=evaluate, reshard_after_forward=False)

    def test_the_first_fsdp_is_refused(self):
        """Its parameters look like whole ones."""
        from torch.distributed.fsdp import FullyShardedDataParallel

        for use_orig_params in (False, True):

            def build(fresh):
                options = {"device_id": torch.device("cpu"), "use_orig_params": use_orig_params}
                return {"model": FullyShardedDataParallel(torch.nn.Linear(4, 4), **options)}

            train = hvd.elastic.run(lambda state: None)
            with self.assertRaisesRegex(
                UnsupportedError, "model is sharded by FullyShardedDataParallel, .*: use fully_shard"
            ):
                train(hvd.elastic.TorchState(build=build))

    def test_models(self):
        """Frozen parameters, another type to compute with, half the bits in memory, activations that are
        computed again, and a compiled model."""

        def frozen(net):
            net.inner.requires_grad_(False)
            return net

        def again(net):
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

            net.inner = checkpoint_wrapper(net.inner)
            return net

        def compiled(net):
            net.compile(backend="eager")
            return net

        self.train(frozen)
        self.train(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        self.train(lambda net: net.to(torch.bfloat16))
        self.train(again)
        self.train(compiled)


class Tied(torch.nn.Module):
    """A model that uses a parameter twice."""

    def __init__(self):
        super().__init__()
        self.words, self.inner = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 8)
        self.norm, self.head = torch.nn.LayerNorm(8), torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.norm(self.inner(self.words(x)).relu()))


def same(a, b):
    """Whether two trees of tensors and numbers are equal, bit by bit."""
    if torch.is_tensor(a):
        return torch.is_tensor(b) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


if __name__ == "__main__":
    unittest.main()
