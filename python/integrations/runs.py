"""Runs an example three times: with torchrun, with Regroup, and with Regroup and a worker that is
killed; the results must be the same.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import List, Tuple

from tests import launch
from tests.jobs import LIMIT, Job

#: Nothing is asked of a hub, and nothing is sent.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}


def example(*path: str) -> str:
    """The path of a script of examples/."""
    return os.path.abspath(os.path.join(launch.ROOT, "..", "examples", *path))


def worker(job: Job, rank: int) -> int:
    """The process of a rank of a running job: a child of its regroup process. What its environment
    has in any case is a slot, whose number is that of the rank as long as nobody has died."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{name}/environ", encoding="utf-8") as f:
                variables = f.read().split("\0")
        except OSError:
            continue  # it has just ended
        if parent == job.process.pid and f"REGROUP_SLOT={rank}" in variables:
            return int(name)
    raise AssertionError(f"rank {rank} does not run:\n{job.log()}")


class Runs(unittest.TestCase):
    """Each run gets an empty folder, in which it is started and keeps its checkpoints."""

    def loss(self, output: str) -> float:
        """The loss that the script has said at its end, once."""
        losses = re.findall(r"\bloss (\S+)$", output, re.MULTILINE)
        self.assertEqual(1, len(losses), output)
        return float(losses[0])

    def torchrun(self, script: List[str], **env: str) -> str:
        """The output of two workers of PyTorch's own launcher."""
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        with tempfile.TemporaryDirectory(prefix="regroup-") as folder:
            process = subprocess.Popen(
                [sys.executable, *command, *script],
                cwd=folder,
                env=launch.environment(**OFFLINE, **env),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                output, _ = process.communicate(timeout=LIMIT)
            finally:
                if process.poll() is None:
                    process.terminate()  # it ends its workers
                    process.communicate()
        self.assertEqual(0, process.returncode, output)
        return output

    def job(self, script: List[str], *flags: str, **env: str) -> Job:
        """A job of two workers."""
        folder = tempfile.TemporaryDirectory(prefix="regroup-")
        self.addCleanup(folder.cleanup)
        run = ["--workdir", folder.name, "--workers", "2", *flags, "--", sys.executable, *script]
        job = Job(*run, env={**OFFLINE, **env})
        self.addCleanup(job.close)
        return job

    def ended(self, job: Job, failures: int) -> float:
        """Waits for a job that succeeds in spite of so many failures; returns its loss."""
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        causes = [incident["cause"] for incident in job.summary["incidents"]]
        self.assertEqual(["worker-failed"] * failures, causes, job.output)
        self.assertRegex(job.output, rf"succeeded in .* {failures} failures? ")
        return self.loss(job.output)

    def killed(self, job: Job, step: int, rank: int) -> float:
        """Kills a worker when the job has said that it has made a step, and waits for its end."""
        job.until(rf"\bstep {step}\b")
        os.kill(worker(job, rank), signal.SIGKILL)
        return self.ended(job, failures=1)

    def in_process(self, script: List[str], killed: str, samples: Tuple[int, int]) -> str:
        """What a job of three workers says, with recovery in the process. One is killed when the job has said
        something, if that is not empty, and the two others go on. samples: how many epochs there are, and
        how many samples are in one, each once."""
        run = ["--recovery", "in-process", "--workers", "2:3", "--", sys.executable, *script]
        job = Job(*run, env=OFFLINE)
        self.addCleanup(job.close)
        if killed:
            job.until(killed)
            os.kill(job.newest_worker(), signal.SIGKILL)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        causes = [incident["cause"] for incident in job.summary["incidents"]]
        self.assertEqual(bool(killed), "worker-failed" in causes, job.output)
        self.assertEqual(bool(killed), bool(re.search(r"rank 0 of 2 goes on at step [1-9]", job.output)), job.output)
        counts = tuple(job.summary["samples"][k] for k in ("epochs", "per_epoch", "missing", "repeated"))
        self.assertEqual((*samples, 0, 0), counts, job.output)
        return job.output

    def killed_in_save(self, script: List[str], path: str, rank: int) -> float:
        """Kills a worker of a job while a checkpoint is written: when this path in its folder is
        there. Whether the checkpoint can be used then is the script's to find out."""
        job = self.job(script)
        folder = job.process.args[job.process.args.index("--workdir") + 1]
        limit = time.monotonic() + LIMIT
        while not os.path.exists(os.path.join(folder, path)):
            if time.monotonic() > limit or job.process.poll() is not None:
                self.fail(f"{path} has not come:\n{job.log()}")
            time.sleep(0.001)  # the file system gives no other sign that is as early
        os.kill(worker(job, rank), signal.SIGKILL)
        left = sorted(os.listdir(os.path.join(folder, path)))
        loss = self.ended(job, failures=1)
        print(f"\n{loss:.8f} with rank {rank} killed when there was {left}", file=sys.stderr)
        return loss

    def check(self, script: List[str], step: int, rank: int, every: int, **env: str) -> float:
        """All three runs end with the same loss, which is returned. The one in which a rank is killed
        after a step has resumed from the last checkpoint; there is one every so many steps."""
        plain = self.loss(self.torchrun(script, **env))
        undisturbed = self.ended(self.job(script, **env), failures=0)
        job = self.job(script, **env)
        killed = self.killed(job, step, rank)
        resumed = [int(n) for n in re.findall(r" g2\] resumes at step (\d+)", job.output)]
        self.assertEqual(1, len(resumed), job.output)
        self.assertLess(step - every, resumed[0] + 1, job.output)
        again = [int(n) for n in re.findall(r" g2\] step (\d+)", job.output)]
        self.assertLess(resumed[0], min(again, default=0), job.output)
        print(
            f"\n{os.path.relpath(script[0], example())}: loss {plain:.8f} with torchrun, "
            f"{undisturbed:.8f} with regroup, {killed:.8f} with rank {rank} killed after "
            f"step {step} and resumed at {resumed[0]}",
            file=sys.stderr,
        )
        self.assertAlmostEqual(plain, undisturbed, delta=1e-5)
        self.assertAlmostEqual(undisturbed, killed, delta=1e-5)
        return plain
