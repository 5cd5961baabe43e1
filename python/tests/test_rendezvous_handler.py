"""Unmodified agents of torchrun, of which each is a node, with Regroup's rendezvous."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from . import jobs, launch

#: Seconds for what a test waits for.
LIMIT = 300

#: As pip would install it: torchrun finds the handler by this file.
ENTRY = "[torchrun.handlers]\nregroup = regroup.rendezvous_handler:get\n"


#: The command of torchrun with the installed torch.
TORCHRUN = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--local-addr", "127.0.0.1"]


def installed(folder):
    """Makes a folder as pip would, and returns the PYTHONPATH with which torchrun finds the handler."""
    info = os.path.join(folder, "regroup_elastic-0.dist-info")
    os.mkdir(info)
    metadata = "Name: regroup-elastic\nVersion: 0\n"
    for name, content in ("METADATA", metadata), ("entry_points.txt", ENTRY):
        with open(os.path.join(info, name), "w", encoding="utf-8") as f:
            f.write(content)
    return launch.ROOT + os.pathsep + folder


def until(condition, what):
    """Waits for a condition, of which other processes give no sign."""
    limit = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(what())
        time.sleep(0.02)


class Agents:
    """Agents of one run on this machine, the first of which serves the others."""

    def __init__(self, count, *arguments, **env):
        self._folder = tempfile.TemporaryDirectory(prefix="regroup-")
        self.end = os.path.join(self._folder.name, "end")
        variables = launch.environment(
            END=self.end,
            PYTHONPATH=installed(self._folder.name),
            REGROUP_BINARY=jobs.binary(),
            REGROUP_STATE_DIR=os.path.join(self._folder.name, "state"),
            TMPDIR=self._folder.name,
            **env,
        )
        script = os.path.join(launch.ROOT, "tests", "scripts", "stock.py")
        endpoint = f"127.0.0.1:{launch.free_port()}"
        self.processes = []
        for i in range(count):
            conf = "last_call_timeout=5,is_host=" + ("true" if i == 0 else "false")
            command = TORCHRUN + ["--rdzv_backend", "regroup", "--rdzv_endpoint", endpoint]
            command += ["--rdzv_id", "test", "--rdzv_conf", conf, *arguments, script]
            with open(self._log(i), "w", encoding="utf-8") as f:
                p = subprocess.Popen(command, env=variables, stdout=f, stderr=subprocess.STDOUT)
            self.processes.append(p)

    def _log(self, i):
        return os.path.join(self._folder.name, f"log{i}")

    def lines(self, i):
        with open(self._log(i), encoding="utf-8") as f:
            return f.read()

    def everything(self):
        all_agents = enumerate(self.processes)
        return "\n".join(f"agent {i}, {p.poll()}:\n{self.lines(i)}" for i, p in all_agents)

    def say(self, pattern, *agents):
        """Waits until the workers of agents say something."""
        until(lambda: all(re.search(pattern, self.lines(i)) for i in agents), self.everything)

    def finish(self):
        """Tells the workers to end."""
        with open(self.end, "w", encoding="utf-8"):
            pass

    def codes(self):
        """Waits for the agents; returns their exit codes."""
        until(lambda: all(p.poll() is not None for p in self.processes), self.everything)
        return [p.returncode for p in self.processes]

    def temporary(self):
        """What Regroup has left in the folder for temporary files, which is that of this run."""
        return [name for name in os.listdir(self._folder.name) if name.startswith("regroup-")]

    def left(self):
        """The processes of this run that are alive, of all kinds."""
        mark, found = f"END={self.end}\0".encode(), []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/environ", "rb") as f:
                    if mark in f.read():
                        found.append(int(name))
            except OSError:
                pass  # it is no process, or has just ended
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
            p.wait()
        try:
            until(lambda: not self.left(), lambda: f"left: {self.left()}\n{self.everything()}")
        finally:
            for pid in self.left():
                os.kill(pid, signal.SIGKILL)
            self._folder.cleanup()


class RendezvousHandler(unittest.TestCase):
    def test_two_agents(self):
        """They form a group, and end when their workers do."""
        with Agents(2, "--nnodes", "2") as a:
            a.say(r"size=2 sum=2 restart=0", 0, 1)
            a.finish()
            self.assertEqual([0, 0], a.codes(), a.everything())
            until(lambda: not a.left(), a.everything)

    def test_agent_is_killed(self):
        """The others learn of it at once, and go on as two."""
        with Agents(3, "--nnodes", "2:3", "--max_restarts", "3", "--monitor_interval", "0.1") as a:
            a.say(r"size=3 sum=3", 0, 1, 2)
            a.processes[2].kill()
            killed = time.time()
            a.say(r"size=2 sum=2", 0, 1)
            again = max(
                float(re.search(r"([\d.]+) rank=\d size=2", a.lines(i))[1]) for i in (0, 1)
            )
            print(f"in a group again {again - killed:.2f} s after SIGKILL", file=sys.stderr)
            a.finish()
            self.assertEqual([0, 0], a.codes()[:2], a.everything())

    def test_all_are_killed(self):
        """The agent with all that it has started, at once: nothing stays in the folder for
        temporary files."""
        with Agents(1, "--nnodes", "1") as a:
            a.say(r"size=1 sum=1", 0)
            for pid in a.left():
                os.kill(pid, signal.SIGSTOP)  # none of them can tidy up after another
            for pid in a.left():
                os.kill(pid, signal.SIGKILL)
            self.assertEqual([-signal.SIGKILL], a.codes(), a.everything())
            until(lambda: not a.left(), a.everything)
            self.assertEqual([], a.temporary())

    def test_worker_fails_once(self):
        """The workers of both agents are restarted, of which one failure is counted."""
        with tempfile.TemporaryDirectory() as folder:
            crash = os.path.join(folder, "crash")
            more = ("--max_restarts", "1", "--monitor_interval", "0.1")
            with Agents(2, "--nnodes", "2", *more, CRASH=crash) as a:
                until(lambda: os.path.exists(crash), a.everything)
                a.say(r"sum=2(?s:.*)sum=2", 0, 1)
                a.finish()
                self.assertEqual([0, 0], a.codes(), a.everything())

    def test_agent_is_interrupted(self):
        """It takes its node out of the job, and the others go on."""
        with Agents(3, "--nnodes", "2:3", "--max_restarts", "3", "--monitor_interval", "0.1") as a:
            a.say(r"size=3 sum=3", 0, 1, 2)
            a.processes[2].terminate()
            a.say(r"size=2 sum=2", 0, 1)
            a.finish()
            codes = a.codes()
            self.assertEqual([0, 0], codes[:2], a.everything())
            self.assertNotEqual(0, codes[2])

    def test_agent_fails_for_good(self):
        """A run that cannot go on without it is over on all nodes, long before join_timeout."""
        with tempfile.TemporaryDirectory() as folder:
            crash = os.path.join(folder, "crash")
            with Agents(2, "--nnodes", "2", "--monitor_interval", "0.1", CRASH=crash) as a:
                codes = a.codes()
                self.assertNotIn(0, codes, a.everything())

    def test_no_server(self):
        """Without an address the error says what to give."""
        command = TORCHRUN + ["--rdzv_backend", "regroup", "--nnodes", "2", "script.py"]
        with tempfile.TemporaryDirectory() as folder:
            env = launch.environment(PYTHONPATH=installed(folder))
            ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT)
        self.assertNotEqual(0, ran.returncode)
        self.assertIn("give --rdzv-endpoint HOST:PORT", ran.stderr)


if __name__ == "__main__":
    unittest.main()
