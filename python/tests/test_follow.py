"""Whole jobs whose torch.distributed group follows the members."""

import unittest

from .jobs import Job, script


class Follow(unittest.TestCase):
    def run_job(self, **env):
        job = Job("--recovery", "in-process", "--workers", "2:3", "--", *script("follows.py"), env=env)
        self.addCleanup(job.close)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        return job

    def trained_right(self, job):
        """Every worker of the last generation has the same weights, and every sample was used once in
        each epoch."""
        ends = job.said(r"\bends at=")
        self.assertEqual({str(p) for p in job.pids()[-1].values()}, {e["pid"] for e in ends}, job.output)
        self.assertEqual(1, len({e["checksum"] for e in ends}), job.output)
        samples = job.summary["samples"]
        self.assertEqual((480, 0, 0), tuple(samples[k] for k in ("per_epoch", "missing", "repeated")))

    def a_killed_worker(self, backend):
        job = self.run_job(BACKEND=backend, DIES="15", EPOCHS="30")
        self.trained_right(job)
        first, *_, last = job.pids()
        (dead,) = (int(d["pid"]) for d in job.said(r"\bdies at="))
        self.assertEqual(3, len(last), "nobody took the place of the dead worker")
        self.assertEqual(set(first.values()) - {dead}, set(first.values()) & set(last.values()))
        sizes = {step["size"] for step in job.said(r"\bsteps at=")}
        self.assertEqual({"2", "3"}, sizes, "the survivors have trained without the dead worker")

    def test_a_killed_worker_of_gloo(self):
        """The survivors go on in their processes with the same model; the newcomer has their
        weights and momenta, and its gradients go where theirs do."""
        self.a_killed_worker("gloo")

    def test_a_killed_worker_of_regroup(self):
        """The same on the engine."""
        self.a_killed_worker("regroup")


if __name__ == "__main__":
    unittest.main()
