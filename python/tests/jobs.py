"""Runs jobs with the real binary: `regroup run`, which brings its own broker, services and agent.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, Optional

from . import launch

#: Seconds for a job.
LIMIT = 900


def some(cases):
    """The cases that a test of whole jobs tries: the first and each third after it; with EVERY_CASE=1, as
    make soak and make test-torch set it, all."""
    cases = list(cases)
    return cases if os.environ.get("EVERY_CASE") else cases[::3]


def binary() -> str:
    """The regroup binary: make build."""
    path = os.environ.get("REGROUP_BINARY") or os.path.join(launch.ROOT, "..", "bin", "regroup")
    if not os.path.exists(path):
        raise RuntimeError(f"{path} is not there: make build")
    return os.path.abspath(path)


class Job:
    """A job that runs, or has run."""

    def __init__(
        self, *arguments: str, env: Optional[Dict[str, str]] = None, server: Optional[str] = None
    ):
        self._folder = tempfile.TemporaryDirectory(prefix="regroup-")
        variables = {"PYTHONPATH": launch.ROOT, "OMP_NUM_THREADS": "1", **(env or {})}
        self.state = os.path.join(self._folder.name, "state")  # REGROUP_STATE_DIR of who asks for it
        command = [
            binary(),
            "run",
            "--state-dir",
            self.state,
            "-o",
            "json",
        ]
        if server is not None:
            command += ["--server", server]
        for name, value in variables.items():
            command += ["--env", f"{name}={value}"]
        self.path = os.path.join(self._folder.name, "stderr")  # what it says
        self._log = open(self.path, "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            command + list(arguments),
            env=dict(launch.environment(), NO_COLOR="1"),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.summary: dict = {}

    def log(self) -> str:
        """What the job has said so far."""
        with open(self.path, encoding="utf-8") as f:
            return f.read()

    def until(self, pattern: str, after: int = 0) -> None:
        """Waits until the job says something, after so many characters."""
        limit = time.monotonic() + LIMIT
        while not re.search(pattern, self.log()[after:]):
            if time.monotonic() > limit or self.process.poll() is not None:
                raise AssertionError(f"the job has not said {pattern!r}:\n{self.log()}")
            time.sleep(0.05)  # other processes give no other sign

    def scale(self, workers: int) -> None:
        """Changes the number of workers, as a planned change."""
        self._ask("scale", str(workers))

    def traces(self) -> List[dict]:
        """The traces of its start and its incidents so far, while it runs."""
        return json.loads(self._ask("trace", "-o", "json"))

    def _ask(self, *command: str) -> str:
        """What a command says about it."""
        out = subprocess.run(
            [binary(), *command, "--state-dir", self.state], env=launch.environment(), capture_output=True, text=True
        )
        if out.returncode:
            raise AssertionError(f"{out.stderr}\n{self.log()}")
        return out.stdout

    def wait(self) -> "Job":
        """Waits for the end."""
        try:
            out, _ = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"the job does not end:\n{self.log()}") from None
        if out:
            self.summary = json.loads(out)
        self.output = self.log()
        return self

    def close(self) -> None:
        """Ends what is left, and removes its folder."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lines(self, pattern: str) -> List[Dict[str, str]]:
        """What lines of the workers say: pairs name=value of those that match."""
        rows = [row for row in self.output.splitlines() if re.search(pattern, row)]
        return [dict(re.findall(r"(\w+)=(\S+)", row)) for row in rows]

    def newest_worker(self) -> int:
        """The process of a running job that was started last: a child of its regroup process."""
        children = []  # the time of the start and the number, which begins again at 300 after 32,768
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as f:
                    fields = f.read().rpartition(")")[2].split()
                if int(fields[1]) == self.process.pid:
                    children.append((int(fields[19]), int(name)))
            except (OSError, ValueError, IndexError):
                pass  # it is no process, or has just ended
        return max(children)[1]

    def lose_newest(self, when: str) -> "Job":
        """Kills the process that was started last once the job says something, and waits for the end."""
        self.until(when)
        os.kill(self.newest_worker(), signal.SIGKILL)
        return self.wait()

    def pids(self) -> List[Dict[int, int]]:
        """Process by slot, in each generation."""
        return [{m["slot"]: m["pid"] for m in g["members"]} for g in self.summary["generations"]]


def example(*path: str) -> List[str]:
    """The command line of an example."""
    return [sys.executable, os.path.join(launch.ROOT, "..", "examples", *path)]


def script(name: str) -> List[str]:
    """The command line of a script of the tests."""
    return [sys.executable, os.path.join(launch.ROOT, "tests", "scripts", name)]
