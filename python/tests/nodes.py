"""A broker with the services, and agents that play nodes, for tests."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
from typing import Dict

from . import launch
from .jobs import binary


class Nodes:
    """A cluster on this machine: ``with Nodes(a=1, b=1) as nodes`` has two nodes with a slot each.
    """

    def __init__(self, **slots: int):
        self._folder = tempfile.TemporaryDirectory(prefix="regroup-")
        address = f"127.0.0.1:{launch.free_port()}"
        self._secret = secrets.token_hex(16)
        self.server = f"nats://regroup:{self._secret}@{address}"  # as REGROUP_SECRET says
        self._log = open(os.path.join(self._folder.name, "log"), "w", encoding="utf-8")
        self._up = self._start("up", "--no-agent", "--listen", address)
        self._agents: Dict[str, subprocess.Popen] = {}
        for name, n in slots.items():
            self.add(name, n)

    def _start(self, *arguments: str, name: str = "up") -> subprocess.Popen:
        folder = os.path.join(self._folder.name, name)
        return subprocess.Popen(
            [binary(), *arguments, "--state-dir", folder],
            env=launch.environment(REGROUP_SECRET=self._secret),
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def add(self, name: str, slots: int = 1) -> None:
        """Starts the agent of a node."""
        self._agents[name] = self._start(
            "agent", "--server", self.server, "--node", name, "--slots", str(slots), "--advertise", "127.0.0.1",
            name=name,
        )

    def command(self, *arguments: str) -> str:
        """Runs a command of regroup on this cluster."""
        return subprocess.run(
            [binary(), *arguments, "--server", self.server],
            env=launch.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=300,
        ).stdout

    def close(self) -> None:
        """Ends all of it."""
        for p in (*self._agents.values(), self._up):
            p.send_signal(signal.SIGINT)
        for p in (*self._agents.values(), self._up):
            try:
                p.wait(timeout=60)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        self._log.close()
        self._folder.cleanup()

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
