"""The loop in the manner of torchtitan: whatever the number of workers, and whoever dies, its steps are
those of one process that nobody has disturbed."""

import os
import re
import signal
import subprocess
import unittest

from . import launch
from .jobs import Job, example

SCRIPT = [*example("titan", "elastic.py"), os.path.join(launch.ROOT, "..", "LICENSE"), "--every", "1"]
STEP = r"\bstep (\d+): loss (\S+), norm (\S+), rate (\S+)$"


def told(output):
    """What is told of each step, in the order in which they were made."""
    return [(int(step), *map(float, others)) for step, *others in re.findall(STEP, output, re.MULTILINE)]


class Titan(unittest.TestCase):
    def job(self, workers, steps, *options):
        """A job of which a worker was killed."""
        run = ["--recovery", "in-process", "--workers", workers]
        job = Job(*run, "--", *SCRIPT, "--steps", str(steps), *options)
        self.addCleanup(job.close)
        job.until(r"\bstep 12: ")
        os.kill(job.newest_worker(), signal.SIGKILL)
        return job

    def check(self, output, steps):
        """Each step is there, and is that of one process: it has the same samples."""
        made = told(output)
        numbers = [number for number, *_ in made]
        self.assertEqual(list(range(1, max(numbers) + 1)), sorted(set(numbers)), output)
        self.assertLessEqual(len(numbers) - len(set(numbers)), 2, output)  # what no commit covered
        command = [*SCRIPT, "--steps", str(steps)]
        with subprocess.Popen(command, env=launch.environment(), stdout=subprocess.PIPE, text=True) as process:
            lines = iter(process.stdout.readline, "")
            undisturbed = {}
            while max(numbers) not in undisturbed:
                undisturbed.update({number: others for number, *others in told(next(lines))})
            process.kill()
        for number, loss, _, rate in made:
            self.assertAlmostEqual(undisturbed[number][0], loss, delta=2e-3, msg=output)
            self.assertAlmostEqual(undisturbed[number][2], rate, delta=1e-9, msg=output)

    def test_a_worker_is_killed(self):
        """The others go on with its part; no sample is lost or repeated in seven epochs and a half."""
        job = self.job("2:3", 60).wait()
        self.assertEqual("succeeded", job.summary["outcome"], job.output)
        self.assertRegex(job.output, r"rank 0 of 2 goes on at step 1\d")
        samples = job.summary["samples"]
        counts = tuple(samples[k] for k in ("epochs", "per_epoch", "missing", "repeated"))
        self.assertEqual((7, 177, 0, 0), counts, job.output)
        self.check(job.output, 60)

    def test_a_worker_of_two_replicas_is_killed_and_replaced(self):
        """Two of two parts; one of three parts; and two again."""
        job = self.job("3:4", 1_000_000, "--replicas", "2", "--recompute")
        job.until(r" g2\] rank 0 of 3 goes on at step 1\d")
        job.until(r" g3\] rank 0 of 4 goes on at step [1-9][^$]* g3\] step \d+: [^$]* g3\] step \d+: ")
        output = job.log()
        self.check(output[: output.rindex("\n") + 1], 1_000_000)


if __name__ == "__main__":
    unittest.main()
