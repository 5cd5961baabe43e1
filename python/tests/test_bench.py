"""The programs of bench/ that read what jobs print: one kill each."""

import json
import os
import subprocess
import sys
import unittest

from tests.launch import ROOT, environment


class Benchmarks(unittest.TestCase):
    def test_follow(self):
        told = json.loads(self.run_program("follow.py", "--json", "--backend", "regroup", "--kills", "1"))
        self.assertEqual((1, 0, 0), (told["kills"], told["missing"], told["repeated"]))
        self.assertGreater(told["kill_to_step_ms"]["median"], 0)

    def test_recovery(self):
        self.assertRegex(self.run_program("recovery.py", "--kills", "1"), r"1 kills, .*\n( .*[1-9].*\n)+")

    def test_sharded(self):
        text = self.run_program("sharded.py", "--mib", "8", "--kills", "1", "--backend", "regroup")
        self.assertRegex(text, r"killed: all train again after \d")
        # When rank 0 dies, the others have everything that they need where it is needed.
        self.assertRegex(text, r"generation 2: \d[0-9.]* MiB moved to 3 ranks")

    def run_program(self, name: str, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", os.path.join("bench", name), *args],
            cwd=ROOT,
            env={**environment(), "REGROUP_BINARY": os.environ.get("REGROUP_BINARY", "")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout


if __name__ == "__main__":
    unittest.main()
