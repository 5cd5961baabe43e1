"""The loss of a rank: gathered else gets WorkerLostError, at once."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from . import launch

#: Seconds. What is usual is milliseconds, but the machine may be busy; no limit of the engine or of
#: torch is as short.
AT_ONCE = 10.0


def lose(how, world, victim):
    """Kills a rank; returns how long each other one took to notice, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.ranks.loss", how, str(victim), folder],
                cwd=launch.ROOT,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for env in launch.ranks(world)
        ]
        outputs = launch.ended(processes)
        with open(os.path.join(folder, "died"), encoding="utf-8") as f:
            died = float(f.read())
        results = {}
        for r in range(world):
            if r == victim and how != "abort":
                continue
            path = os.path.join(folder, str(r))
            if not os.path.exists(path):
                raise AssertionError(f"{how}: rank {r} has said nothing:\n{outputs[r]}")
            with open(path, encoding="utf-8") as f:
                results[r] = json.load(f)
                results[r]["took"] = results[r]["at"] - died
        return results


class Loss(unittest.TestCase):
    def check(self, how, world, victim, typed=True):
        for r, says in lose(how, world, victim).items():
            with self.subTest(how=how, rank=r):
                self.assertLess(says["took"], AT_ONCE, says)
                self.assertIn("peer lost", says["text"])
                self.assertIn(f"rank {victim}", says["text"])
                if typed:
                    self.assertEqual("WorkerLostError", says["again"], "the next one fails as well")
                    self.assertTrue(says["lost"], says)
                    self.assertEqual(victim, says["rank"])

    def test_small_operations(self):
        self.check("small", 3, 1)

    def test_large_operations(self):
        self.check("large", 2, 0)

    def test_optimizer(self):
        self.check("optimizer", 2, 1)

    def test_c10d(self):
        self.check("c10d_small", 3, 2)
        self.check("c10d_large", 2, 1)
        self.check("c10d_broadcast", 2, 0)

    def test_ddp(self):
        # Through the reducer of DDP, which is C++, only the text of the error comes.
        self.check("ddp", 2, 1, typed=False)

    def test_abort(self):
        for r, says in lose("abort", 2, 0).items():
            with self.subTest(rank=r):
                self.assertTrue(says["lost"], says)
                self.assertIn("as the test wants it", says["text"])
                self.assertLess(says["took"], AT_ONCE)


if __name__ == "__main__":
    unittest.main()
