"""python -m regroup.watch writes a job that loses a worker into runs of TensorBoard, MLflow and Weights & Biases, as
their own libraries read them back. None of them reaches anything but files here."""

import glob
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from regroup.client import Client
from regroup.watch import State, watch

BINARY = os.environ["REGROUP_BINARY"]
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

SCRIPT = """
import itertools, os, sys, time, regroup
for step in itertools.count(1):
    if os.path.exists(sys.argv[1]):
        break
    time.sleep(0.02)
    regroup.report(step=step)
"""


def until(true, seconds=600.0):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the condition does not become true")
        time.sleep(0.05)


def records(path):
    """The records of a .wandb file, which is a log of LevelDB behind a head of 7 bytes: blocks of 32 KiB, in which each
    part of a record has a head of a sum, its length and its kind: whole, first, middle or last."""
    with open(path, "rb") as f:
        content = f.read()
    at, record = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


class Watch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="regroup-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        state = os.path.join(cls.folder, "state")
        cls.env = {
            **os.environ,
            **{"REGROUP_STATE_DIR": state, "PYTHONPATH": PACKAGES, "HOME": cls.folder, "REGROUP_SERVER": ""},
            # Each library keeps everything in files below the folder.
            **{"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": cls.folder},
            **{"MLFLOW_ALLOW_FILE_STORE": "true"},
        }
        of_libraries = {k: v for k, v in cls.env.items() if k.startswith(("WANDB_", "MLFLOW_"))}
        patched = unittest.mock.patch.dict(os.environ, of_libraries)
        patched.start()
        cls.addClassCleanup(patched.stop)
        cls.addClassCleanup(lambda: __import__("wandb").teardown())  # ends the process that writes its files
        cls.env.pop("REGROUP_GATEWAY_URL", None)
        up = [BINARY, "up", "--dashboard", "--slots", "2", "--listen", "127.0.0.1:0", "--state-dir", state]
        with open(os.path.join(cls.folder, "up.log"), "wb") as log:
            server = subprocess.Popen(up, env=cls.env, stdout=log, stderr=log, cwd=cls.folder)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.terminate)
        until(lambda: os.path.exists(os.path.join(state, "gateway.json")))
        cls.client = Client(state_dir=state, patience=60)
        cls.end = os.path.join(cls.folder, "end")  # the job ends when it is there
        command = [sys.executable, "-c", SCRIPT, cls.end]
        cls.job = cls.client.submit_job(command, name="seen", workers=2, env={"PYTHONPATH": PACKAGES})
        until(lambda: cls.client.get_job(cls.job).get("step", 0) > 0)

    def watch(self, to, follow=True):
        """Starts a listener with what the one before has left, and returns its state when it has ended."""
        state = State(os.path.join(self.folder, "listener", to.partition(":")[0]))
        self.assertEqual(watch(self.client, self.job, to, state, follow=follow), state.outcome)
        return State(state.path)

    def command(self, to):
        """What the command says."""
        command = [sys.executable, "-m", "regroup.watch", self.job, "--to", to]
        done = subprocess.run(
            command,
            env=self.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout

    def test_a_job_that_loses_a_worker(self):
        """A listener that is started three times writes each fact once, into one run."""
        board, store = f"tensorboard:{self.folder}/board", f"mlflow:file://{self.folder}/store"
        trackers = (board, store, "wandb:lab")
        first = {to: self.watch(to, follow=False) for to in trackers}
        self.assertIsNone(first[board].outcome)
        worker = next(w for w in self.client.get_job(self.job)["workers"] if w["rank"] == 1)
        os.kill(worker["pid"], signal.SIGKILL)
        until(lambda: self.facts("incident.closed"))
        with open(self.end, "w", encoding="utf-8"):
            pass
        for to in trackers:
            last = self.watch(to)
            self.assertEqual("succeeded", last.outcome)
            self.assertEqual(first[to].run, last.run, "it is another run")
            self.watch(to)  # nothing is left to write
        self.assertIn("succeeded; run " + self.job, self.command(f"tensorboard:{self.folder}/other"))
        sealed = [fact["generation"] for fact in self.facts("round.sealed")]
        closed = self.facts("incident.closed")
        self.assertGreaterEqual(len(closed), 1)
        expected = {
            "regroup/generation": sealed,
            "regroup/workers": [2] * len(sealed),
            "regroup/incidents": [c["incident"] for c in closed],
            "regroup/recovery_seconds": [c["total_ms"] / 1000 for c in closed],
        }
        for found in (self.in_tensorboard(), self.in_mlflow(first[store].run), self.in_wandb(last.run)):
            for name, values in expected.items():
                self.assertEqual(len(values), len(found[name]), f"{name}: {found[name]}")
                for want, got in zip(values, found[name]):
                    self.assertAlmostEqual(want, got, places=3, msg=name)
            lost = [c for c in closed if "steps_lost" in c]
            count = len(found.get("regroup/steps_lost", [])) + len(found.get("regroup/steps_lost_at_least", []))
            self.assertEqual(len(lost), count, "what is unknown was written, or what is known was not")
            for name in set(found) & {"regroup/goodput", "regroup/goodput_at_most"}:
                self.assertTrue(all(0 <= v <= 1 for v in found[name]), found[name])

    def facts(self, kind):
        return [event["data"] for _, event in self.client.events(self.job, type=kind, follow=False)]

    def in_tensorboard(self):
        """The values of each name in the event files, in the order of their times."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c  # the sums of the records are checked too

        values = []
        for path in glob.glob(os.path.join(self.folder, "board", self.job, "events.*")):
            with open(path, "rb") as f:
                content = f.read()
            while content:
                (size,) = struct.unpack("<Q", content[:8])
                record, sum_ = content[12 : 12 + size], struct.unpack("<I", content[12 + size : 16 + size])[0]
                self.assertEqual(masked_crc32c(record), sum_)
                event = Event.FromString(record)
                scalars = [v for v in event.summary.value if v.HasField("simple_value")]
                values += [(event.wall_time, v.tag, v.simple_value) for v in scalars]
                content = content[16 + size :]
        found = {}
        for _, tag, value in sorted(values):
            found.setdefault(tag, []).append(value)
        return found

    def in_mlflow(self, run):
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=f"file://{self.folder}/store")
        kept = client.get_run(run)
        self.assertEqual("FINISHED", kept.info.status)
        self.assertIn("worker-failed", kept.data.tags["regroup.incident.1"])
        history = {name: client.get_metric_history(run, name) for name in kept.data.metrics}
        return {name: [m.value for m in sorted(all, key=lambda m: m.timestamp)] for name, all in history.items()}

    def in_wandb(self, run):
        """What the files of the run have, in their order."""
        from wandb.proto import wandb_internal_pb2

        found = {}
        for path in sorted(glob.glob(os.path.join(self.folder, "wandb", f"offline-run-*-{run}", "*.wandb"))):
            for data in records(path):
                for item in wandb_internal_pb2.Record.FromString(data).history.item:
                    name = item.key or "/".join(item.nested_key)
                    found.setdefault(name, []).append(json.loads(item.value_json))
        return found


if __name__ == "__main__":
    unittest.main()
