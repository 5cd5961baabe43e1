"""Commits of a sharded state that copy its parts while the program goes on."""

import contextlib
import threading
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import regroup.torch as hvd
from regroup.errors import InvalidArgumentError, RegroupError, WorkerLostError
from regroup.torch.elastic import overlapped
from regroup.torch.elastic.bringing import Bringing
from regroup.torch.elastic.parts import Part
from regroup.torch.elastic.sharded import ShardedParts
from regroup.training import Training

from . import launch
from .jobs import some
from .test_sharded import Jobs

OVERLAPPED = "while the program goes on"


class Overlapped(Jobs):
    def test_a_rank_dies_at_each_line(self):
        """All begin again with a commit that was copied to its end."""
        for backend, line, kept in some(
            (
                ("gloo", "forward", {"COPIES": "1"}),
                ("regroup", "backward", {"COPIES": "1"}),
                ("regroup", "commit", {"PARITY": "2"}),
                ("regroup", "forward", {"PARITY": "2"}),
            )
        ):
            with self.subTest(backend=backend, line=line, **kept):
                how = {"BACKEND": backend, "LINE": line, "MODE": "overlapped", **kept}
                job = self.run_job("3:4", DIES="2@9", WAITS="4", **how)
                begun, ends = self.check(job)
                self.assertEqual({"3", "4"}, {e["size"] for e in begun}, job.output)
                self.assertLessEqual({int(e["step"]) for e in begun if e["size"] == "3"}, {8, 9}, job.output)
                self.assertEqual(4, len(ends), job.output)
                self.assertIn(OVERLAPPED, job.output)

    def test_parts_that_are_away(self):
        """They come to the memory from which commits are copied beside the next step, or before, if ranks leave."""
        for line in some(("backward", "commit")):
            with self.subTest(line=line):
                job = self.run_job("3:4", LINE=line, DIES="2@9", WAITS="4", MODE="overlapped", AWAY="1")
                begun, ends = self.check(job)
                self.assertEqual({"3", "4"}, {e["size"] for e in begun}, job.output)
                self.assertEqual(4, len(ends), job.output)
                self.assertIn(OVERLAPPED, job.output)

    def test_a_part_that_changes_while_it_may_be_copied(self):
        """The commit is none then, and those that follow are copied before they return."""
        for spoils, dies, begins in some((("9", "2@9", {8}), ("6", "2@9", {8, 9}))):
            with self.subTest(spoils=spoils):
                job = self.run_job("3:3", LINE="backward", DIES=dies, SPOILS=spoils, MODE="overlapped", REGROUP_LOG_LEVEL="info")
                begun, _ = self.check(job)
                self.assertLessEqual({int(e["step"]) for e in begun}, begins, job.output)
                self.assertIn("the program changes them between a commit and a step", job.output)


class Device(unittest.TestCase):
    """The order in which parts on a GPU are brought, on streams that note what they are asked for."""

    def setUp(self):
        self.done = []
        stream = mock.patch.multiple(
            torch.cuda, Stream=lambda device: self.stream("own"), current_stream=lambda device: self.stream("program's"), stream=self.on
        )
        stream.start()
        self.addCleanup(stream.stop)

    def note(self, what):
        self.done.append(what)

    def stream(self, name):
        event = mock.Mock(wait=lambda: self.note("program's stream waits"), synchronize=lambda: self.note("thread waits"))
        return mock.Mock(
            wait_stream=lambda other: self.note(f"{name} waits for {other.title}"), record_event=lambda: event, title=name
        )

    @contextlib.contextmanager
    def on(self, stream):
        self.note(f"begin {stream.title}")
        yield
        self.note(f"end {stream.title}")

    def test_a_stream_of_its_own_copies(self):
        used = mock.Mock(device=torch.device("cuda:0"))
        part = mock.Mock(used=lambda: used, bring=lambda: self.note("copy"))
        training = mock.Mock(brought=lambda ok: self.note(f"brought {ok}"))
        bringing = Bringing()
        self.addCleanup(bringing.end)
        bringing.begin(training, [part])
        bringing.release()
        bringing.join()
        first, rest = self.done[:4], self.done[4:]
        self.assertEqual(["own waits for program's", "begin own", "copy", "end own"], first)
        self.assertEqual(["brought True", "program's stream waits", "thread waits"], sorted(rest))
        self.assertLess(rest.index("thread waits"), rest.index("brought True"))


class Choice(unittest.TestCase):
    """Without a job: one process."""

    def setUp(self):
        launch.alone(self)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.between = lambda state: None  # called between a commit and the next step
        self.away = False  # the weights are not contiguous

    def build(self, fresh):
        if self.away:
            net = torch.nn.Linear(6, 4)
            net.weight = torch.nn.Parameter(torch.randn(6, 4).t())
            return {"net": net, "optimizer": torch.optim.AdamW(net.parameters())}
        net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))
        fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
        return {"net": net, "optimizer": torch.optim.AdamW(net.parameters())}

    def run_steps(self, steps=5, **how):
        """Trains, and returns the state."""
        state = hvd.elastic.TorchState(build=self.build, copies=0, steps=0, **how)
        self.assertIn("copied'" if how.get("commit_mode") == "copied" else "when elastic.run begins", state.describe())

        @hvd.elastic.run
        def train(state):
            while state.steps < steps:
                self.between(state)
                state.net(torch.randn(3, 6)).sum().backward()
                state.optimizer.step()
                state.steps += 1
                state.commit()
            self.said = state.describe()

        train(state)
        return state

    def commits(self, **how):
        """How often each way of a commit was taken."""
        with mock.patch.object(Training, "commit_live", autospec=True, side_effect=Training.commit_live) as live:
            with mock.patch.object(Training, "commit", autospec=True, side_effect=Training.commit) as copied:
                self.run_steps(**how)
        return live.call_count, copied.call_count

    def test_the_mode_that_is_asked_for(self):
        self.assertEqual((3, 2), self.commits(commit_mode="overlapped"))
        self.assertIn(OVERLAPPED, self.said)
        self.assertEqual((0, 5), self.commits(commit_mode="copied"))
        self.assertIn("the state was made with commit_mode='copied'", self.said)
        with self.assertRaisesRegex(InvalidArgumentError, "with parts of its own on each rank it is 'overlapped' or 'copied'"):
            hvd.elastic.TorchState(build=self.build, commit_mode="live")

    def test_a_copy_that_takes_long_is_overlapped(self):
        for share, said in ((0, OVERLAPPED), (1e9, "less than a tenth of a step")):
            with mock.patch.object(overlapped, "_WORTH", share):
                self.run_steps()
            self.assertIn(said, self.said)

    def test_parts_that_are_all_on_a_gpu(self):
        with mock.patch.object(ShardedParts, "lives", return_value=False):
            self.assertEqual((0, 5), self.commits())
        self.assertIn("on a GPU commit_mode='overlapped' asks for it", self.said)

    def test_parts_that_change_between(self):
        """In a way that PyTorch counts, and in one that it does not."""

        def counted(state):
            with torch.no_grad():
                state.net[0].weight.mul_(0.5)

        def uncounted(state):
            state.net[0].weight.to_local().data.mul_(0.5)

        for self.between, said in ((counted, "until a few steps"), (uncounted, "in a way that PyTorch does not count")):
            self.assertEqual((0, 5), self.commits(commit_mode="overlapped"))
            self.assertIn(said, self.said)

    def test_a_part_that_changes_later(self):
        """The commit is withdrawn, and the program cannot return to it."""

        def between(state):
            if state.steps == 4:
                with torch.no_grad():
                    state.net[0].weight.mul_(0.5)
                with self.assertRaisesRegex(RegroupError, "have changed while the last commit copied them"):
                    state.restore()

        self.between = between
        self.assertEqual((2, 3), self.commits(commit_mode="overlapped"))
        self.assertIn("between a commit and a step", self.said)

    def test_a_program_that_returns(self):
        """To the last commit, before a step and after it."""

        def weight(state):
            return (state.net.weight if self.away else state.net[0].weight.to_local()).clone()

        def between(state):
            if state.steps not in (3, 4):
                return
            before = weight(state)
            if state.steps == 4:
                state.net(torch.randn(3, 6)).sum().backward()
                state.optimizer.step()
                self.assertFalse(torch.equal(before, weight(state)))
            state.restore()
            self.assertTrue(torch.equal(before, weight(state)))

        self.between = between
        for self.away in (False, True):
            self.assertEqual((3, 2), self.commits(commit_mode="overlapped"))

    def test_a_loss_in_a_commit(self):
        """The commit before it stays what it was."""
        commit_live, calls = Training.commit_live, []

        def lost(training):
            calls.append(training)
            if len(calls) == 2:
                raise WorkerLostError("rank 1")
            commit_live(training)

        for self.away in (False, True):
            calls.clear()
            with mock.patch.object(Training, "commit_live", lost), mock.patch.object(Training, "withdraw") as withdraw:
                with self.assertRaisesRegex(WorkerLostError, "rank 1"):
                    self.run_steps(commit_mode="overlapped")
            withdraw.assert_not_called()

    def test_a_program_that_fails_meanwhile(self):
        """Its end waits for the parts, which come after it has left."""
        self.away = True
        left, bring, leave = threading.Event(), Part.bring, Training.leave

        def late(part):
            if threading.current_thread().name.startswith("regroup-brings"):
                left.wait()
            bring(part)

        def leaves(training, how, why=""):
            leave(training, how, why)
            if why:  # not from a session in which parts were registered
                left.set()

        def between(state):
            if state.steps == 3:
                raise ValueError("the program fails")

        self.between = between
        with mock.patch.object(Part, "bring", late), mock.patch.object(Training, "leave", leaves):
            with self.assertRaisesRegex(ValueError, "the program fails"):
                self.run_steps(commit_mode="overlapped")

    def test_a_part_that_cannot_be_brought(self):
        """The step after it fails, and does not wait forever for the commit."""
        self.away = True
        broken = mock.patch.object(Part, "bring", side_effect=RuntimeError("the GPU is gone"))
        self.addCleanup(mock.patch.stopall)

        def between(state):
            if state.steps == 3:  # the commit of the next step is the first that brings parts later
                broken.start()

        self.between = between
        with self.assertRaisesRegex(RuntimeError, "the GPU is gone"):
            self.run_steps(commit_mode="overlapped")


if __name__ == "__main__":
    unittest.main()
