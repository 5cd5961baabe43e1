"""Whole jobs whose torch.distributed group follows the members."""

import unittest

from .jobs import Job, script


class Follow(unittest.TestCase):
    def run_job(self, **env):
        """A job of three workers, of which one dies, or as good as: the others stay, a new one takes
        its place, and the result is right."""
        run = ["--recovery", "in-process", "--workers", "2:3", "--"]
        job = Job(*run, *script("follows.py"), env={"DIES": "15", **env})
        self.addCleanup(job.close)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        first, *_, last = (set(g.values()) for g in job.pids())
        (dead,) = (int(d["pid"]) for d in job.said(r"\bdies at="))
        self.assertEqual(first - {dead}, first & last, "a survivor was started again")
        sizes = {step["size"] for step in job.said(r"\bsteps at=")}
        self.assertEqual({"2", "3"}, sizes, "the survivors have trained without the dead worker")
        ends = job.said(r"\bends at=")
        self.assertEqual({str(pid) for pid in last}, {e["pid"] for e in ends}, job.output)
        self.assertEqual(1, len({e["checksum"] for e in ends}), job.output)
        samples = job.summary["samples"]
        counts = tuple(samples[k] for k in ("per_epoch", "missing", "repeated"))
        self.assertEqual((480, 0, 0), counts)
        return last

    def test_a_killed_worker_of_gloo(self):
        """The survivors go on in their processes with the same model; the newcomer has their
        weights and momenta, and its gradients go where theirs do."""
        self.assertEqual(3, len(self.run_job(BACKEND="gloo", EPOCHS="30")), "nobody has come")

    def test_a_killed_worker_of_regroup(self):
        """The same on the engine."""
        self.assertEqual(3, len(self.run_job(BACKEND="regroup", EPOCHS="30")), "nobody has come")

    def test_a_survivor_that_waits_for_a_survivor(self):
        """Gloo cannot be interrupted: it would wait for its timeout, which is half an hour."""
        self.run_job(BACKEND="gloo", WAITS="1", EPOCHS="4")

    def test_a_worker_that_hangs(self):
        """Gloo sees nothing of it: the job gives the worker up."""
        self.run_job(BACKEND="gloo", HANGS="1", EPOCHS="4")


if __name__ == "__main__":
    unittest.main()
