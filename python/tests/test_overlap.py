"""The end of a group beside the start of the next one, with a backend whose abort lasts."""

import os
import re
import tempfile
import time
import unittest
from collections import Counter

from .jobs import LIMIT, Job, script


class Gate:
    """A FIFO on which aborts wait until it is opened."""

    def __init__(self, test: unittest.TestCase):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.path, self.stop = (os.path.join(folder.name, name) for name in ("gate", "stop"))
        os.mkfifo(self.path)
        self._fd = -1
        test.addCleanup(self.open)  # who still waits goes on

    def open(self) -> None:
        """Has all go on, also who comes later."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR)  # of a FIFO: waits for nobody

    def end(self) -> None:
        """Has the training end."""
        with open(self.stop, "w", encoding="utf-8"):
            pass


class Overlap(unittest.TestCase):
    def start(self, gate: Gate, **env: str) -> Job:
        """A job of three workers, of which one dies in its step 15."""
        run = ["--recovery", "in-process", "--workers", "2:3", "--"]
        variables = {"BACKEND": "fakenccl", "DIES": "15", "STOP": gate.stop, "STEP": "0.01", **env}
        job = Job(*run, *script("follows.py"), env=variables)
        self.addCleanup(job.close)
        return job

    def finished(self, job: Job) -> Job:
        """The job, which has ended right: equal weights, and each sample once."""
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        ends = job.lines(r"\bends at=")
        self.assertEqual(1, len({e["checksum"] for e in ends}), job.output)
        self.assertEqual({"0"}, {e["left"] for e in ends}, "threads that end groups are left")
        samples = job.summary["samples"]
        self.assertEqual((0, 0), (samples["missing"], samples["repeated"]))
        return job

    def test_survivors_train_before_an_abort_has_ended(self):
        """None of the aborts ends before all have trained in the next generation."""
        gate = Gate(self)
        job = self.start(gate, FAKE_ABORT="gate:" + gate.path)
        job.until(r"\bdies at=")
        job.until(r"\bsteps at=\S+ pid=\d+ rank=1 size=2 ")  # which all have made
        self.assertNotIn("abort_ends", job.log())
        gate.open()
        job.until(r"\babort_ends at=(?s:.*)\babort_ends at=")
        self.assert_overlap(job)
        gate.end()
        self.finished(job)
        (dead,) = (d["pid"] for d in job.lines(r"\bdies at="))
        first, *_, last = (set(g.values()) for g in job.pids())
        self.assertEqual(first - {int(dead)}, first & last, "a survivor was started again")
        for pid in first & last:
            rows = [row for row in job.output.splitlines() if f"pid={pid} " in row]
            self.assertTrue(any("shut_down at=" in row and "size=3" in row for row in rows), "no group was shut down")

    def assert_overlap(self, job: Job) -> None:
        """The trace of the loss shows both ends as they were, behind the first steps."""
        limit = time.monotonic() + LIMIT
        while True:
            spans = [span for trace in job.traces() if trace["incident"] == 1 for span in trace["spans"]]
            begun, ended = ([s for s in spans if s["name"] == name] for name in ("group connects", "group ends"))
            if (len(begun), len(ended)) == (2, 2):
                break
            self.assertLess(time.monotonic(), limit, spans)
            time.sleep(0.05)  # the agent stores them by and by
        steps = [s for s in spans if s["name"] == "first step"]
        for end in ended:
            self.assertLess(end["start"], min(s["start"] for s in begun))
            self.assertGreater(end["end"], max(s["end"] for s in steps))

    def test_a_newcomer_starts_cuda_before_it_is_let_in(self):
        """The others train without it meanwhile, and connect when the group is made, not in the first step."""
        gate = Gate(self)
        job = self.start(gate, FAKE_GPU=gate.path)
        job.until(r"\bdies at=(?s:.*)\bprepares at=")
        job.until(r"\bdies at=(?s:.*)\bprepares at=(?s:.*)(\bsteps at=\S+ pid=\d+ rank=1 size=2 (?s:.*)){5}")
        gate.open()
        job.until(r"\bdies at=(?s:.*)\bsteps at=\S+ pid=\d+ rank=2 size=3 ")
        gate.end()
        self.finished(job)
        ways = {(row["size"], row["why"]) for row in job.lines(r"\bconnects at=") if row["size"] != "1"}
        self.assertLessEqual({("2", "asked"), ("3", "asked")}, ways)
        whole, trained = ["prepared", "waits_for_gpu", "steps"], 0
        for pid in {pid for generation in job.pids() for pid in generation.values()}:
            found = re.findall(rf"\b({'|'.join(whole)}) at=\S+ pid={pid} ", job.output)
            order = list(dict.fromkeys(found))
            self.assertEqual(whole[: len(order)], order, pid)  # one that comes last may make no step
            trained += order == whole
        self.assertGreaterEqual(trained, 3)

    def test_an_abort_that_fails(self):
        """The group is of no use, and the next one works."""
        gate = Gate(self)
        job = self.start(gate, FAKE_ABORT="fails")
        job.until(r"\bsteps at=\S+ pid=\d+ rank=1 size=2 ")
        gate.end()
        self.finished(job)

    def test_an_abort_that_never_ends(self):
        """Its process says so, and is replaced; the others go on in theirs."""
        gate = Gate(self)
        job = self.start(gate, FAKE_ABORT="gate:" + gate.path, FAKE_ABORT_RANK="2", ENDS="5")
        job.until(r"StuckError: the group of a generation that is over has not ended within 5 s")
        job.until(r"\bsteps at=\S+ pid=\d+ rank=2 size=3 (?s:.*)StuckError(?s:.*)\bsteps at=\S+ pid=\d+ rank=2 size=3 ")
        gate.end()
        self.finished(job)
        first, *_, last = (set(g.values()) for g in job.pids())
        self.assertEqual(1, len(first & last), "the survivor whose group has ended was started again")
        begun, ended = (Counter(d["pid"] for d in job.lines(rf"\babort_{what} at=")) for what in ("begins", "ends"))
        (stuck,) = begun - ended
        self.assertFalse(os.path.exists(f"/proc/{stuck}"))


if __name__ == "__main__":
    unittest.main()
