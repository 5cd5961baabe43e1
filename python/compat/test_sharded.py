"""Models that each rank has a part of, in whole jobs with recovery in the process: refused, or told,
and never mixed."""

import os
import unittest

from tests.jobs import Job

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sharded.py")


class Sharded(unittest.TestCase):
    def run_job(self, what, *flags):
        import sys

        run = ["--recovery", "in-process", "--workers", "2", *flags, "--", sys.executable, SCRIPT]
        job = Job(*run, env={"WHAT": what})
        self.addCleanup(job.close)
        return job.wait()

    def refused(self, what, text):
        job = self.run_job(what, "--max-restarts", "0")
        self.assertNotEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertRegex(job.output, f"UnsupportedError: {text}")
        self.assertIn("get_model_state_dict with full_state_dict=True and without cpu_offload", job.output)

    def test_a_model_that_is_sharded_in_the_function(self):
        self.refused("sharded in the function", "model is sharded by FSDPModule")

    def test_a_model_of_two_dimensions(self):
        self.refused("hybrid", "model is sharded by FSDPModule")

    def test_a_tensor_parallel_model(self):
        self.refused("tensor parallel", "model.weight is a DTensor, of which this rank holds but a piece")

    def test_a_sharded_model_that_is_set_later(self):
        self.refused("set later", "model.weight is a DTensor")

    def test_a_sharded_attribute(self):
        self.refused("attribute", "shard is a DTensor")
        self.refused("in an attribute", "state.shard holds a DTensor")

    def test_a_sharded_optimizer(self):
        self.refused("zero", "optimizer is sharded by ZeroRedundancyOptimizer")

    def test_a_full_state_dict_of_rank_0(self):
        job = self.run_job("full on rank 0", "--max-restarts", "0")
        self.assertRegex(
            job.output, r"UnsupportedError: state.full holds 2 tensors, .* on rank 0 and no tensor on rank 1"
        )

    def test_a_sharded_model_in_no_state(self):
        job = self.run_job("nowhere")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertRegex(job.output, "a FSDPLinear is trained and is in no state: 2 of its tensors")

    def test_a_full_state_dict_on_every_rank(self):
        """It works: it is loaded in each call of the function."""
        job = self.run_job("full")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertNotIn("is in no state", job.output)
        ends = job.lines(r"\bends rank=")
        self.assertEqual({("0", "6"), ("1", "6")}, {(e["rank"], e["steps"]) for e in ends})
        before, after = job.lines(r"\binterrupts rank=0"), job.lines(r"\bgoes on rank=")
        self.assertEqual({before[0]["sum"]}, {e["sum"] for e in after}, job.output)


if __name__ == "__main__":
    unittest.main()
