"""Ranks of one machine for the benchmark programs of this folder, and what they tell each other
outside the groups that are measured."""

import json
import os
import subprocess
import sys
from datetime import timedelta

from tests import launch


def starts():
    """Whether this process is to start the ranks, and is none."""
    return "RANK" not in os.environ


def run(program, ranks, measure):
    """Starts a program's ranks, with its own arguments; in a rank it calls measure."""
    if not starts():
        measure()
        return
    started = [
        subprocess.Popen([sys.executable, "-W", "ignore", os.path.abspath(program), *sys.argv[1:]], env=env)
        for env in launch.ranks(ranks)
    ]
    try:
        sys.exit(max(p.wait() for p in started))
    finally:
        for p in started:
            p.kill()
            p.wait()


class Meeting:
    """A place of the ranks that uses no process group."""

    def __init__(self):
        import torch.distributed as dist

        env = os.environ
        self.rank, self.size = int(env["RANK"]), int(env["WORLD_SIZE"])
        self.store = dist.TCPStore(
            env["MASTER_ADDR"],
            int(env["MASTER_PORT"]),
            self.size,
            self.rank == 0,
            timedelta(minutes=5),
        )
        self._times = 0

    def gather(self, value):
        """The values of all ranks, by rank."""
        self._times += 1
        key = f"gather {self._times}"
        self.store.set(f"{key} {self.rank}", json.dumps(value))
        return [json.loads(self.store.get(f"{key} {r}")) for r in range(self.size)]
