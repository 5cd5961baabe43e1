"""What workers are answered that come to operations before elastic.run later than others: played
with a list in the place of the job."""

import unittest
from unittest import mock

import torch

import regroup.torch as hvd
from regroup import _library as lib
from regroup import membership
from regroup.torch.elastic import prologue
from regroup.torch.world import world


class Job:
    """As much of a job as a prologue needs. Losses are the numbers of operations in which a worker
    is lost once."""

    def __init__(self, losses=()):
        self.entries, self.losses, self.left = [], list(losses), []

    def add_prologue(self, entry):
        self.entries.append(entry)

    def prologue_entry(self, index):
        return self.entries[index] if index < len(self.entries) else None

    def leave(self, how, why=""):
        self.left.append((how, why))


class PrologueTest(unittest.TestCase):
    def setUp(self):
        self.job = Job()
        hvd.init()
        self.addCleanup(hvd.shutdown)
        self.worker()
        self.addCleanup(lambda: setattr(world, "recording", False))
        self.addCleanup(lambda: setattr(world, "prologue", None))
        self.addCleanup(lambda: setattr(world, "job", None))
        self.addCleanup(lambda: setattr(world, "stage", None))

    def worker(self, stage=lib.TOGETHER, job=None):
        """This process is now a worker that has nothing behind it."""
        world.job = self.job if job is None else job
        world.stage, world.recording, world.prologue = stage, True, prologue.Prologue(world)

    def late(self):
        """One that comes when the others are past, so that nobody would answer."""
        self.worker(lib.LATE)
        patch = mock.patch.object(world, "mode", membership.ELASTIC)
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_same_results(self):
        def script(seed):
            torch.manual_seed(seed)
            model = torch.nn.Linear(2, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + seed, momentum=0.9)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            x = torch.rand(4)
            inplace = torch.rand(2)
            got = [
                hvd.allreduce(x, name="x"),
                hvd.allreduce_(inplace, name="y"),
                inplace,
                *hvd.grouped_allreduce([x, x + 1]),
                hvd.allgather(x),
                hvd.broadcast(x, 0),
                hvd.broadcast_(torch.rand(3), 0),
                torch.tensor(hvd.broadcast_object({"n": seed})["n"]),
                torch.tensor(hvd.allgather_object(seed)),
            ]
            hvd.barrier()
            hvd.broadcast_parameters(model.named_parameters(), 0)  # an iterator
            hvd.broadcast_optimizer_state(optimizer, 0)
            momentum = [s["momentum_buffer"] for s in optimizer.state.values()]
            rate = torch.tensor(optimizer.param_groups[0]["lr"])
            return [t.detach().clone() for t in (*got, *model.parameters(), *momentum, rate)]

        first = script(1)
        self.late()
        second = script(2)
        self.assertEqual(len(first), len(second))
        for k, (a, b) in enumerate(zip(first, second)):
            self.assertTrue(torch.equal(a, b), f"{k}: {a} and {b}")

    def test_nobody_to_answer(self):
        hvd.barrier()
        self.late()
        hvd.barrier()
        with self.assertRaisesRegex(hvd.RegroupError, "would not answer"):
            hvd.allreduce(torch.ones(1))

    def test_other_operations(self):
        hvd.allreduce(torch.ones(2, 3), name="a")
        for operation in (
            lambda: hvd.allreduce(torch.ones(2, 4), name="a"),
            lambda: hvd.allreduce(torch.ones(2, 3), name="b"),
            lambda: hvd.allreduce(torch.ones(3, 3), name="a"),
            lambda: hvd.allreduce(torch.ones(2, 3), name="a", op=hvd.Sum),
            lambda: hvd.broadcast(torch.ones(2, 3), 0, name="a"),
            hvd.barrier,
        ):
            self.late()
            with self.assertRaisesRegex(hvd.DivergedError, "the same operations in the same order"):
                operation()

    def test_a_loss_repeats_the_operation(self):
        """The tensor is given again as it was."""
        calls = []

        def allreduce_(tensor):
            calls.append(tensor.clone())
            tensor.add_(1)
            if len(calls) == 1:
                raise hvd.HorovodInternalError("lost")
            return tensor

        with mock.patch.object(type(world), "next_generation", lambda self: True):
            got = prologue.recorded(allreduce_)(torch.zeros(2))
        self.assertEqual([2.0, [0.0, 0.0], [0.0, 0.0]], [got.sum().item(), *(c.tolist() for c in calls)])
        self.assertEqual([lib.PEER_LOST], [how for how, _ in self.job.left])
        self.assertEqual(1, len(self.job.entries))

    def test_what_is_too_large(self):
        model = torch.nn.Linear(40, 40)
        with mock.patch.object(prologue, "LIMIT", 1000):
            hvd.broadcast_parameters(model.state_dict(), 0)
            hvd.allgather(torch.ones(400))
        self.assertLess(sum(map(len, self.job.entries)), 4000)
        with mock.patch.object(prologue, "TOTAL", 4 << 20):
            self.worker(job=Job())
            for k in range(5):
                hvd.broadcast(torch.zeros(1 << 18), 0)  # 1 MiB each
            sizes = [len(e) > 1 << 20 for e in world.job.entries]
        self.assertEqual([True, True, True, True, False], sizes)
        self.late()
        fresh = torch.nn.Linear(40, 40)
        hvd.broadcast_parameters(fresh.state_dict(), 0)
        world.prologue.check(hvd.elastic.TorchState(model=fresh))
        with self.assertRaisesRegex(hvd.RegroupError, "not part of the state"):
            world.prologue.check(hvd.elastic.TorchState(model=torch.nn.Linear(40, 40)))
        with self.assertRaisesRegex(hvd.RegroupError, "too large to be kept"):
            hvd.allgather(torch.ones(400))


if __name__ == "__main__":
    unittest.main()
