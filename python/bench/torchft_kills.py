"""The same as follow.py for torchft, beside which Regroup is measured: three replicas of one process
each, one of which is killed again and again::

    PYTHONPATH=python:FOLDER python3 python/bench/torchft_kills.py --kills 30

FOLDER has torchft. Its lighthouse looks for a quorum every 10 ms, and waits 100 ms for a replica that
is missing; its other times are its defaults. Its model is a PureDistributedDataParallel: with its
DistributedDataParallel the survivors end with an AssertionError after a few kills. A replica that was
killed is started again. If one ends that was not killed, the measurement is over; what was measured
until then is printed, with the number of those that ended.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from bench import follow

QUORUM_TICK_MS, JOIN_TIMEOUT_MS = 10, 100


def train():
    """One replica."""
    import torch
    import torchft
    from torch.distributed import TCPStore
    from torchft.ddp import PureDistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(os.getpid())
    x = torch.arange(480.0).reshape(-1, 1) / 480
    net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    inner = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def load(state):
        net.load_state_dict(state["net"])
        inner.load_state_dict(state["optimizer"])

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"net": net.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=2,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        lighthouse_addr=os.environ["LIGHTHOUSE"],
        replica_id=os.environ["REPLICA"],
        hostname="localhost",
    )
    model = PureDistributedDataParallel(manager, net)
    optimizer = torchft.Optimizer(manager, inner)
    step, victim = float(os.environ["STEP"]), os.environ["VICTIM"]
    while True:
        before = manager.current_step()
        at = before * 8 % 480
        xs = x[at : at + 8]
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(xs), 2 * xs + 1).backward()
        time.sleep(step)  # the work of a larger model
        with contextlib.suppress(FileNotFoundError), open(victim, encoding="utf-8") as f:
            if f.read() == str(os.getpid()):
                print(f"dies at={time.time():.6f} pid={os.getpid()} ", flush=True)
                os.kill(os.getpid(), 9)
        optimizer.step()
        if manager.current_step() > before:
            rank, size = manager.participating_rank(), manager.num_participants()
            if rank is not None:
                print(
                    f"steps at={time.time():.6f} pid={os.getpid()} rank={rank} size={size} step={manager.current_step()}",
                    flush=True,
                )


class Replicas:
    """Three replicas, in place of a job of follow.py."""

    def __init__(self, step, victim, folder):
        os.environ["RUST_LOG"] = "error"
        from torchft.coordination import LighthouseServer

        self.lighthouse = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=JOIN_TIMEOUT_MS, quorum_tick_ms=QUORUM_TICK_MS
        )
        self._log = open(os.path.join(folder, "log"), "a", encoding="utf-8")
        port = self.lighthouse.address().rpartition(":")[2]
        self.env = dict(os.environ, LIGHTHOUSE=f"http://127.0.0.1:{port}", STEP=str(step), VICTIM=victim)
        self.replicas, self.started, self.ended = {}, 0, 0
        for i in range(3):
            self.start(i)
        self.process, self.output, self.summary = self, "", ""

    def start(self, i):
        self.started += 1
        # A name of its own: under the name of a dead one it would take over its place at the lighthouse.
        self.env["REPLICA"] = f"replica{i}_{self.started}_"
        self.replicas[i] = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "bench.torchft_kills", "--replica"], env=self.env, stdout=self._log, stderr=self._log
        )

    def poll(self):
        """Starts what was killed; how one has ended that was not, or None."""
        for i, p in list(self.replicas.items()):
            if p.poll() == -9:
                self.start(i)
            elif p.poll() is not None:
                self.ended += 1
                return p.returncode
        return None

    def wait(self):
        return self

    def log(self):
        with open(self._log.name, encoding="utf-8", errors="replace") as f:
            return f.read()[-4000:]

    def close(self):
        for p in self.replicas.values():
            p.kill()
            p.wait()
        self.lighthouse.shutdown()
        self._log.close()


class Steps(follow.Steps):
    """Keeps the times, also when the replicas end."""

    def read(self):
        self._job.poll()
        super().read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replica", action="store_true", help="be one")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--at-end", action="store_true", help="of the computation of a step")
    parser.add_argument("--step", type=float, default=0.04, help="seconds that a step lasts")
    parser.add_argument("--limit", type=float, default=120, help="seconds until three train")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.replica:
        return train()
    times, why = [], ""
    with tempfile.TemporaryDirectory() as folder:
        args.victim = os.path.join(folder, "victim") if args.at_end else ""
        job = Replicas(args.step, args.victim or os.path.join(folder, "none"), folder)
        try:
            follow.kills(Steps(job), args, times)
        except SystemExit as e:
            why = str(e)
            print(why, job.log(), file=sys.stderr)
        finally:
            job.close()
    told = {"version": importlib.metadata.version("torchft"), "kills": len(times), "at_end": args.at_end, "ended_though_not_killed": job.ended, "over_early": bool(why)}
    if times:
        times.sort()
        told["kill_to_step_ms"] = follow.spread(times)
    print(json.dumps(told) if args.json else told)
    return None


if __name__ == "__main__":
    main()
