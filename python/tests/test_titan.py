"""The loop in the manner of torchtitan: whatever the number of workers, and whichever die, its steps are
those of one process that nobody has disturbed."""

import os
import re
import signal
import subprocess
import unittest
from itertools import islice

from . import launch
from .jobs import Job, example

LICENSE = os.path.join(launch.ROOT, "..", "LICENSE")
SCRIPT = [*example("titan", "elastic.py"), LICENSE, "--every", "1", "--steps", "1000000"]
STEP = r"\bstep (\d+): loss (\S+), norm \S+, rate (\S+), (\d+) tokens$"


def told(output):
    """What is told of each step, in the order in which they were made."""
    return [(int(step), *map(float, others)) for step, *others in re.findall(STEP, output, re.MULTILINE)]


class Titan(unittest.TestCase):
    def undisturbed(self, last):
        """The steps of one process, which computes each at once."""
        steps, command = {}, [*SCRIPT, "--micro", "24"]
        with subprocess.Popen(command, env=launch.environment(), stdout=subprocess.PIPE, text=True) as process:
            for line in islice(process.stdout, last + 20):  # there are other lines
                steps.update({number: others for number, *others in told(line)})
                if last in steps:
                    break
            process.kill()
        return steps

    def test_a_worker_is_killed_and_replaced(self):
        """Four have two replicas of two parts, three have three parts, and then there are four again. Each
        step has the samples that it has for one process, and makes of them what that does."""
        run = ["--recovery", "in-process", "--workers", "3:4", "--", *SCRIPT, "--replicas", "2", "--recompute"]
        job = Job(*run)
        self.addCleanup(job.close)
        job.until(r"\bstep 12: ")
        os.kill(job.newest_worker(), signal.SIGKILL)
        job.until(r" g2\] rank 0 of 3 goes on at step 1\d")
        job.until(r" g3\] rank 0 of 4 goes on at step [1-9][^$]* g3\] step \d+: [^$]* g3\] step \d+: ")
        output = job.log()
        steps = told(output[: output.rindex("\n") + 1])
        numbers = [number for number, *_ in steps]
        self.assertEqual(list(range(1, max(numbers) + 1)), sorted(set(numbers)), output)
        self.assertLessEqual(len(numbers) - len(set(numbers)), 2, output)  # those that no commit has covered
        undisturbed = self.undisturbed(max(numbers))
        for number, loss, *others in steps:
            self.assertAlmostEqual(undisturbed[number][0], loss, delta=2e-3, msg=output)
            self.assertEqual(undisturbed[number][1:], others, output)


if __name__ == "__main__":
    unittest.main()
