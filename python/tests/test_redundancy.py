"""What a sharded job says of how much it can lose, while it runs."""

import calendar
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

from . import launch
from .jobs import LIMIT, Job, binary, script


class Redundancy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.held = os.path.join(folder.name, "goes-on")
        run = ["--recovery", "in-process", "--workers", "2:3", "--"]
        env = {"COPIES": "1", "STEPS": "1000000", "HOLDS": self.held}
        self.job = Job(*run, *script("sharded.py"), env=env)
        self.addCleanup(self.job.close)

    def status(self, *flags):
        """What `regroup status` prints; "" as long as there is no job."""
        env = dict(launch.environment(), REGROUP_STATE_DIR=self.job.state, NO_COLOR="1")
        command = [binary(), "status", *flags]
        return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def until(self, what, ok):
        """Waits for a report, and returns the job with it."""
        limit = time.monotonic() + LIMIT
        while True:
            text = self.status("-o", "json")
            job = json.loads(text) if text else {"redundancy": None}
            if job["redundancy"] and ok(job["redundancy"]):
                return job
            if time.monotonic() > limit or self.job.process.poll() is not None:
                raise AssertionError(f"{what}: {job['redundancy']}\n{self.job.log()}")
            time.sleep(0.05)  # other processes give no other sign

    def age(self, text):
        """Seconds since a time."""
        whole, _, rest = text.rstrip("Z").partition(".")
        at = time.strptime(whole + " UTC", "%Y-%m-%dT%H:%M:%S %Z")
        return time.time() - calendar.timegm(at) - float("0." + (rest or "0"))

    def test_a_loss_takes_copies_along(self):
        """With one copy one loss is survived; none from a loss until the copies are made again."""
        began = time.time()
        first = self.until("a commit with its copies", lambda r: r["losses"] == 1)
        kept = first["redundancy"]
        self.assertEqual((1, 0), (kept["generation"], kept["node_losses"]), kept)  # there is one node
        self.assertTrue(0 <= self.age(kept["committed_at"]) <= time.time() - began, kept)
        os.kill(next(w["pid"] for w in first["workers"] if w["rank"] == 2), signal.SIGKILL)

        # The others have the commit, and wait before their next one.
        kept = self.until("after the loss", lambda r: r["generation"] == 2 and r["losses"] is not None)["redundancy"]
        self.assertEqual((0, 0), (kept["losses"], kept["node_losses"]), kept)
        self.assertIn(f"newest whole commit: step {kept['commit']['step']}, ", self.status())
        self.assertIn(" old, survives no loss", self.status())
        before = self.age(kept["committed_at"])
        older = self.until("it grows old", lambda r: self.age(r["committed_at"]) > before + 1)["redundancy"]
        self.assertGreater(self.age(older.pop("reported_at")), 1)  # nothing was since
        del kept["reported_at"]
        self.assertEqual(kept, older)

        open(self.held, "w", encoding="utf-8").close()
        self.until("with the next commit", lambda r: r["losses"] == 1 and r["generation"] >= 2)
