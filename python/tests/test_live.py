"""Commits that copy nothing: whichever line of a step a rank dies at, no step is lost or made twice."""

import os
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import regroup.torch as hvd
from regroup.errors import InvalidArgumentError
from regroup.torch.elastic import live

from .jobs import Job, script

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
        for line, later in lines.items():
            with self.subTest(line=line):
                job, begun = self.run_job(line)
                self.assertEqual(1, len(begun), job.output)
                self.assertIn(begun.pop() - MOMENT, later, job.output)
                self.assertEqual(0, job.summary["incidents"][0]["steps_lost"], job.output)
                self.assertNotIn("every commit copies", job.output)

    def test_without_a_sampler(self):
        job, begun = self.run_job("stepped", WITHOUT="sampler")
        self.assertEqual({MOMENT}, begun, job.output)

    def test_what_live_commits_cannot_bear(self):
        """Then they are copies, and what a job does is the same."""
        said = {
            "data": "changes them in a way that PyTorch does not count",
            "restores": "the program restores the state",
            "rarely": "",
            "between": "",
        }
        for spoils, why in said.items():
            with self.subTest(spoils=spoils):
                # Who restores must begin its pass over the samples again, which the script does not.
                job, begun = self.run_job("stepped", SPOILS=spoils, WITHOUT="sampler" if spoils == "restores" else "")
                self.assertIn(why, job.output)
                if spoils != "restores":
                    self.assertLessEqual(MOMENT - 2, min(begun), job.output)


class Choice(unittest.TestCase):
    """Without a job: one process."""

    def setUp(self):
        environment = mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        for name in [n for n in os.environ if n.startswith("REGROUP_")]:
            del os.environ[name]
        hvd.init()
        self.addCleanup(hvd.shutdown)

    def why(self, mode=None, **more):
        """Why commits are copies, when elastic.run has begun; None = they need not be."""
        model = torch.nn.Linear(8, 8)
        state = hvd.elastic.TorchState(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), commit_mode=mode, **more
        )
        return hvd.elastic.run(lambda state: state._live.never)(state)

    def test_the_reason_is_told(self):
        self.assertIsNone(self.why("live"))
        self.assertIn("costs nothing", self.why())
        self.assertIn("commit_mode='copied'", self.why("copied"))
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        with mock.patch.object(live, "_WORTH", 1):
            self.assertIn("operations of the backend gloo", self.why())
        self.assertIsNone(self.why("live"))
        with self.assertRaisesRegex(InvalidArgumentError, "commit_mode='lively': it is 'live' or 'copied', or left out"):
            self.why("lively")


if __name__ == "__main__":
    unittest.main()
