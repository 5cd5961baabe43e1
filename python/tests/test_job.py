"""Whole jobs: workers are killed, fail, are stopped, while a script for Horovod trains."""

import os
import re
import signal
import sys
import tempfile
import unittest

from . import launch
from .jobs import Job, script

#: Who was first to notice that a worker is dead: its agent, or the other workers.
NOTICED = {"worker-failed", "worker-lost"}


def ported(folder):
    """The script for Horovod, ported: one line is changed."""
    with open(script("horovod_style.py")[1], encoding="utf-8") as f:
        lines = f.read().splitlines(keepends=True)
    changed = [
        row.replace("import horovod.torch as hvd", "import regroup.torch as hvd") for row in lines
    ]
    assert sum(a != b for a, b in zip(lines, changed)) == 1
    path = os.path.join(folder, "train.py")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(changed)
    return [sys.executable, path]


class Jobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.train = ported(folder.name)

    def run_job(self, *arguments, **options):
        job = Job(*arguments, **options)
        self.addCleanup(job.close)
        return job.wait()

    def succeeded(self, job):
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        members = {str(pid) for pid in job.pids()[-1].values()}
        ends = [e for e in job.lines(r"\bends pid=") if e["pid"] in members]
        world = job.summary["generations"][-1]["world"]
        self.assertEqual(world, len(ends), job.output)
        self.assertEqual(1, len({e["checksum"] for e in ends}), "the weights differ among ranks")
        self.assertEqual({str(r) for r in range(world)}, {e["rank"] for e in ends})
        samples = job.summary["samples"]
        self.assertEqual(
            (4, 900, 0, 0),
            tuple(samples[k] for k in ("epochs", "per_epoch", "missing", "repeated")),
        )

    def survivors_keep_their_process(self, job, dead):
        generations = job.pids()
        self.assertGreaterEqual(len(generations), 2, job.output)
        for before, after in zip(generations, generations[1:]):
            for slot in set(before) & set(after) - {dead}:
                self.assertEqual(
                    before[slot], after[slot], f"slot {slot} was started again\n{job.output}"
                )

    def test_a_killed_worker(self):
        """The survivors go on in their processes, the dead one is replaced; loaders of data run in
        forked processes."""
        job = self.run_job(
            "--recovery",
            "in-process",
            "--workers",
            "2:3",
            "--",
            *self.train,
            env={"FAULT": "kill", "LOADERS": "2", "STEP": "0.04", "FULL": "3"},
        )
        self.succeeded(job)
        self.assertEqual(
            3,
            job.summary["generations"][-1]["world"],
            "the dead worker was not replaced\n" + job.output,
        )
        self.survivors_keep_their_process(job, dead=1)
        first = job.summary["incidents"][0]
        self.assertIn(first["cause"], NOTICED)
        self.assertLess(first["total_ms"], 10_000, first)
        print(
            f"\nfrom the kill to the next step: {first['total_ms']:.0f} ms",
            first["phases_ms"],
            file=sys.stderr,
        )

    def test_a_worker_that_ends_too_early(self):
        job = self.run_job(
            "--recovery", "in-process", "--workers", "2:2", "--", *self.train, env={"FAULT": "exit"}
        )
        self.succeeded(job)
        self.survivors_keep_their_process(job, dead=1)
        self.assertEqual([2] * len(job.pids()), [len(g) for g in job.pids()])

    def test_a_mistake_in_the_script(self):
        """It is told, charged, and does not take the others along."""
        job = self.run_job(
            "--recovery",
            "in-process",
            "--workers",
            "2:2",
            "--",
            *self.train,
            env={"FAULT": "raise"},
        )
        self.succeeded(job)
        self.survivors_keep_their_process(job, dead=1)
        self.assertIn("KeyError: 'a mistake in the script'", job.output)

    def test_without_a_fault(self):
        job = self.run_job("--recovery", "in-process", "--workers", "2", "--", *self.train)
        self.succeeded(job)
        self.assertEqual(1, len(job.pids()))
        self.assertEqual({"2"}, {e["size"] for e in job.lines(r"\benters pid=")})

    def test_alone_and_restarted(self):
        """The same script with recovery by restart: the launcher gives ranks, and starts all again
        after a loss."""
        job = self.run_job(
            "--workers", "2", "--max-restarts", "3", "--", *self.train, env={"FAULT": "kill"}
        )
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(2, len(job.pids()))
        ends = job.lines(r"\bends pid=")
        self.assertEqual(1, len({e["checksum"] for e in ends}), job.output)

    def test_a_stopped_job(self):
        """Ctrl-C: the workers commit, leave, and end well. Nobody goes on as if it had trained to
        the end."""
        job = Job(
            "--recovery", "in-process", "--workers", "2", "--", *self.train, env={"STEP": "0.02"}
        )
        self.addCleanup(job.close)
        job.until("enters pid=")
        job.process.send_signal(signal.SIGINT)
        job.wait()
        self.assertEqual(11, job.process.returncode, job.output)
        self.assertEqual([], job.lines(r"\bends pid="), job.output)
        self.assertNotIn("Traceback", job.output)
        self.assertIn("0 failures", job.output)

    def test_torch_distributed(self):
        """DDP on our backend, as a job that is restarted."""
        path = os.path.join(launch.ROOT, "..", "e2e", "local", "testdata", "ddp.py")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.assertIn('init_process_group("gloo")', text)
        text = "import regroup.torch.distributed\n" + text.replace('"gloo"', '"regroup"')
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "ddp.py")
            with open(file, "w", encoding="utf-8") as f:
                f.write(text)
            job = self.run_job(
                "--workers",
                "2",
                "--max-restarts",
                "3",
                "--",
                sys.executable,
                file,
                os.path.join(folder, "ckpt"),
                "40",
                "12",
            )
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(2, len(job.summary["generations"]), job.output)
        self.assertEqual(2, len(re.findall("began at 13", job.output)), job.output)

    def test_what_is_reported(self):
        """report, record and on, in both kinds of jobs."""
        for recovery in ("in-process", "restart"):
            with self.subTest(recovery):
                job = self.run_job(
                    "--recovery", recovery, "--workers", "1", "--", *script("reports.py")
                )
                self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
                self.assertEqual(0.25, job.summary["metrics"].get("loss"), job.summary)
                self.assertEqual(0.25, job.summary["reported"]["loss"]["value"], job.summary)
                if recovery == "restart":
                    self.assertEqual(4, job.summary["steps"], job.summary)
                    self.assertEqual(4, job.summary["reported"]["loss"]["step"], job.summary)
        job = self.run_job("--max-restarts", "0", "--", *script("reports.py"), "fail")
        self.assertNotEqual(0, job.process.returncode)
        self.assertRegex(job.output, r"died: ValueError: as it was told \(\S*reports.py:13 in main\)")


class Example(unittest.TestCase):
    def test_mnist_torch(self):
        """The example trains, a worker is killed in the middle, and it reads digits at the end."""
        path = os.path.join(launch.ROOT, "..", "examples", "mnist_torch", "train.py")
        job = Job(
            "--recovery",
            "in-process",
            "--workers",
            "2:2",
            "--",
            sys.executable,
            path,
            "--epochs",
            "2",
            "--step-time",
            "0.01",
        )
        self.addCleanup(job.close)
        job.until("epoch 1: loss")
        os.kill(job.newest_worker(), signal.SIGKILL)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertTrue({i["cause"] for i in job.summary["incidents"]} & NOTICED, job.summary)
        right = float(re.search(r"([\d.]+) of 100 digits", job.output).group(1))
        self.assertGreater(right, 90)
        samples = job.summary["samples"]
        self.assertEqual(
            (2, 9000, 0, 0),
            tuple(samples[k] for k in ("epochs", "per_epoch", "missing", "repeated")),
        )


if __name__ == "__main__":
    unittest.main()
