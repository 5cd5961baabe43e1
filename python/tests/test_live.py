"""Commits that copy nothing: whichever line of a step a rank dies at, no step is lost or made twice."""

import os
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import regroup.torch as hvd
from regroup.errors import InvalidArgumentError, WorkerLostError
from regroup.torch.elastic import live

from . import launch
from .jobs import Job, script, some

MOMENT = 20


class Live(unittest.TestCase):
    def run_job(self, line, **env):
        job = Job(
            *("--recovery", "in-process", "--workers", "2:3", "--", *script("live.py")),
            env={"DIES": f"1@{MOMENT}:{line}", **env},
        )
        self.addCleanup(job.close)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        made = {(r["step"], r["hash"]) for r in job.lines(r"\bsteps size=")}
        again = [r for r in job.lines(r"\benters size=") if int(r["step"]) > 0]
        self.assertTrue(any(r["size"] == "2" for r in again), job.output)
        for r in again:
            self.assertIn((r["step"], r["hash"]), made, job.output)
        self.assertEqual(1, len({r["hash"] for r in job.lines(r"\bends size=")}), job.output)
        if env.get("WITHOUT") != "sampler":
            samples = job.summary["samples"]
            self.assertEqual((3, 0, 0), (samples["epochs"], samples["missing"], samples["repeated"]), job.output)
        return job, {int(r["step"]) for r in again if r["size"] == "2"}

    def test_a_rank_dies_at_each_line(self):
        """Before the optimizer's step the tensors are the last commit; after it they are the next one."""
        lines = {"forward": [0], "backward": [0, 1], "optimizer": [0], "stepped": [0], "save": [0], "committed": [0]}
        for line, later in some(lines.items()):
            with self.subTest(line=line):
                job, begun = self.run_job(line)
                self.assertEqual(1, len(begun), job.output)
                self.assertIn(begun.pop() - MOMENT, later, job.output)
                self.assertEqual(0, job.summary["incidents"][0]["steps_lost"], job.output)
                self.assertIn("commits copy nothing that only optimizers change;", job.output)

    def test_tensors_that_are_elsewhere(self):
        """They are brought to the registered memory when something is to be copied from there."""
        cases = ("backward", ""), ("optimizer", "sampler"), ("stepped", ""), ("committed", "sampler")
        for line, without in some(cases):
            with self.subTest(line=line, without=without):
                job, begun = self.run_job(line, WITHOUT=without, ELSEWHERE="1")
                self.assertEqual(1, len(begun), job.output)
                self.assertIn(begun.pop() - MOMENT, [0, 1] if line == "backward" else [0], job.output)
                self.assertIn("commits copy nothing that only optimizers change;", job.output)

    def test_without_a_sampler(self):
        """Ranks agree on a commit before the optimizer's step, and none of it is lost."""
        for line in some(("forward", "optimizer", "stepped", "committed")):
            with self.subTest(line=line):
                job, begun = self.run_job(line, WITHOUT="sampler")
                self.assertEqual({MOMENT}, begun, job.output)

    def test_a_commit_waits_for_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            job, _ = self.run_job("stepped", WITHOUT="sampler", COMMITTED=os.path.join(folder, "committed"))
        self.assertIn("was first: rank 0", job.output)

    def test_what_live_commits_cannot_bear(self):
        """Then they are copies, and what a job does is the same."""
        lost = {"data": 1, "between": 1, "rarely": 2}  # steps after the last commit
        for spoils, steps in some(lost.items()):
            with self.subTest(spoils=spoils):
                job, begun = self.run_job("stepped", SPOILS=spoils)
                self.assertEqual({MOMENT - steps}, begun, job.output)
                said = "changes them in a way that PyTorch does not count" in job.output
                self.assertEqual(spoils == "data", said, job.output)

    def test_a_program_that_restores(self):
        """Without a sampler: it would have to begin its pass over the samples again."""
        job, _ = self.run_job("stepped", SPOILS="restores", WITHOUT="sampler")
        self.assertIn("the program restores the state", job.output)


class Choice(unittest.TestCase):
    """Without a job: one process."""

    def setUp(self):
        launch.alone(self)

    def why(self, mode=None, **more):
        """What the state says of its commits, when elastic.run has begun."""
        model = torch.nn.Linear(8, 8)
        state = hvd.elastic.TorchState(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), commit_mode=mode, **more
        )
        self.assertIn("copied'" if mode == "copied" else "when elastic.run begins", state.describe())
        return hvd.elastic.run(lambda state: state.describe())(state)

    def test_no_step_with_gradients_that_a_loss_has_cut_off(self):
        """A device says that they are there. Weights that are not contiguous are treated as on a device."""
        weight = torch.nn.Parameter(torch.randn(8, 4).t())
        optimizer = torch.optim.SGD([weight], lr=0.1)
        module = torch.nn.Module()
        module.weight = weight
        state = hvd.elastic.TorchState(model=module, optimizer=optimizer, commit_mode="live")

        @hvd.elastic.run
        def train(state):
            for step in range(4):
                weight.grad = torch.ones_like(weight)
                optimizer.step()
                state.commit()
            before = weight.detach().clone()
            with mock.patch.object(hvd.world.world, "failed", return_value=WorkerLostError("rank 1")):
                with self.assertRaisesRegex(WorkerLostError, "while gradients were reduced"):
                    optimizer.step()
            self.assertTrue(torch.equal(before, weight))
            state.restore()  # to what is there, not to the last copy
            self.assertTrue(torch.equal(before, weight))
            return state.describe()

        self.assertIn("commits copy nothing", train(state))

    def test_the_reason_is_told(self):
        self.assertIn("until a few steps", self.why("live"))
        self.assertIn("costs nothing", self.why())
        self.assertIn("commit_mode='copied'", self.why("copied"))
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        with mock.patch.object(live, "_WORTH", 1):
            self.assertIn("operations of the backend gloo", self.why())
        self.assertIn("until a few steps", self.why("live"))
        with self.assertRaisesRegex(InvalidArgumentError, "commit_mode='lively': for a state that is the same on all ranks it is 'live' or 'copied'"):
            self.why("lively")


if __name__ == "__main__":
    unittest.main()
