"""Epochs and samples are exact, whatever line of the usual loop a worker dies at."""

import os
import tempfile
import unittest

from .jobs import Job, script, some

#: Lines of the loop that are reached: less would mean that the test does not do what it says.
LINES = 18


class Epochs(unittest.TestCase):
    def check(self, victim, form, record):
        epochs = LINES + 1
        with tempfile.TemporaryDirectory() as folder:
            died = os.path.join(folder, "died")
            job = Job(
                "--recovery", "in-process", "--workers", "2:2", "--max-restarts", "1000", "--same-step", "1000", "--",
                *script("epochs.py"),
                env={"EPOCHS": str(epochs), "VICTIM": victim, "FORM": form, "RECORD": record, "DIED": died},
            )
            self.addCleanup(job.close)
            job.wait()
            self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
            with open(died, encoding="utf-8") as f:
                self.assertEqual(LINES, len(f.read().split()), job.output)
        ends = job.lines(r"\bends rank=")
        self.assertEqual(2, len(ends), job.output)
        last = epochs if form == "end" else epochs - 1
        for e in ends:
            self.assertEqual(
                [str(n) for n in (epochs, epochs, epochs, last)],
                [e[k] for k in ("epoch", "least", "most", "sampler")],
                job.output,
            )
        samples = job.summary["samples"]
        self.assertEqual(
            (epochs, 37, 0, 0), tuple(samples[k] for k in ("epochs", "per_epoch", "missing", "repeated")), samples
        )

    def test_dies_at_every_line(self):
        """Of rank 0 with set_epoch at the begin of an epoch, and samples recorded by their indices."""
        for how in some((("0", "begin", "indices"), ("1", "end", "batch"))):
            with self.subTest(how):
                self.check(*how)


if __name__ == "__main__":
    unittest.main()
