"""How long a job with a sharded model stands still when a worker dies: FSDP2 and AdamW.

    python bench/sharded.py [--mib 256] [--kills 3] [--copies 1 | --parity 3]

Four workers train a model of so many MiB of parameters; one is killed, again and again. Prints, for
each kill, the time to the next step of the last survivor, what of it is the copy of the state, how
many bytes that moved, and how long a plain copy of as many bytes takes between two processes here.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import statistics
import sys
import time
from typing import Dict, List, NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from tests import jobs  # noqa: E402


def worker() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import regroup.torch as hvd

    torch.set_num_threads(1)
    device = os.environ["DEVICE"]
    hvd.follow(os.environ["BACKEND"])
    width = int((int(os.environ["MIB"]) * 2**18 / 8) ** 0.5) // 12 * 12

    def build(fresh):
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        with torch.device("meta"):
            layers = [torch.nn.Linear(width, width, bias=False) for _ in range(8)]
        net = torch.nn.Sequential(*layers)
        for layer in net:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        net.to_empty(device=device)
        if fresh:
            for p in net.parameters():
                torch.nn.init.normal_(p.to_local(), std=0.02)
        return {"model": net, "optimizer": torch.optim.AdamW(net.parameters(), lr=1e-4)}

    copies, parity = int(os.environ["COPIES"]), int(os.environ["PARITY"])
    kept = {"parity": parity} if parity else {"copies": copies}
    state = hvd.elastic.TorchState(build=build, steps=0, **kept)

    def say(what, **values):
        print(what, f"at={time.time():.6f}", *(f"{k}={v}" for k, v in values.items()), flush=True)

    def told(began, trained):
        say("steps", rank=dist.get_rank(), size=dist.get_world_size(), step=state.steps, pid=os.getpid(),
            train=f"{trained - began:.3f}", commit=f"{time.perf_counter() - trained:.3f}")  # fmt: skip

    @hvd.elastic.run
    def train(state):
        say("enters", rank=dist.get_rank(), size=dist.get_world_size(), step=state.steps)
        stop = torch.zeros(1)
        while not stop.item():
            began = time.perf_counter()
            state.optimizer.zero_grad()
            state.model(torch.randn(4, width, device=device)).square().mean().backward()
            state.optimizer.step()
            state.steps += 1
            stop.fill_(os.path.exists(os.environ["STOP"]))
            dist.all_reduce(stop, dist.ReduceOp.MAX)  # all leave after the same step
            if device == "cuda":
                torch.cuda.synchronize()
            trained = time.perf_counter()
            try:
                state.commit()
            except hvd.HostsUpdatedInterrupt:
                told(began, trained)
                raise
            told(began, trained)

    train(state)


def plain_copy(size: int) -> float:
    """Seconds to send so many bytes to another process of this machine, through a socket, from
    memory that is there into memory that is there."""
    a, b = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        a.close()
        into, at = memoryview(bytearray(b"x") * size), 0
        b.send(b"r")
        while at < size:
            at += b.recv_into(into[at : at + (1 << 20)])
        b.send(b"x")
        os._exit(0)
    b.close()
    data = memoryview(bytearray(b"y") * size)
    a.recv(1)
    began = time.perf_counter()
    a.sendall(data)
    a.recv(1)
    took = time.perf_counter() - began
    os.waitpid(pid, 0)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--workers", default="3:4")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cuda: all workers use one GPU")
    parser.add_argument("--parity", type=int, default=0, help="in place of copies")
    args = parser.parse_args()
    stop = f"/tmp/sharded-{os.getpid()}"
    env = {
        **{"MIB": str(args.mib), "STOP": stop, "BACKEND": args.backend, "COPIES": str(args.copies)},
        **{"PARITY": str(args.parity), "WORKER": "1", "REGROUP_LOG_LEVEL": "info", "DEVICE": args.device},
    }
    most = int(args.workers.split(":")[1])
    run = ["--recovery", "in-process", "--hang", "10m", "--max-restarts", str(args.kills + 10)]
    run += ["--workers", args.workers, "--", sys.executable, os.path.abspath(__file__)]
    kills = []
    with jobs.Job(*run, env=env) as job:

        def until(condition) -> None:
            while not condition():
                if job.process.poll() is not None:
                    raise AssertionError(job.log())
                time.sleep(0.05)  # other processes give no other sign

        def stepped(at: float, pid: str) -> int:
            """How many survivors of a kill have made a step without the dead one."""
            return len({s.pid for s in steps(job) if s.at > at and s.pid != pid and s.size < most})

        for _ in range(args.kills):
            seen = len(steps(job))
            until(lambda: len([s for s in steps(job)[seen:] if s.size == most]) >= 4 * most)
            victim = steps(job)[-1].pid
            kills.append((time.time(), victim))
            os.kill(int(victim), signal.SIGKILL)
            until(lambda: stepped(*kills[-1]) >= most - 1)
        open(stop, "w").close()
        job.wait()
        os.remove(stop)
        report(job, kills, most)


class Step(NamedTuple):
    """A step, as a worker has told it."""

    at: float
    size: int
    pid: str
    train: float
    commit: float


def steps(job: jobs.Job) -> List[Step]:
    rows = re.findall(r"steps at=(\S+) rank=\d+ size=(\d+) step=\d+ pid=(\d+) train=(\S+) commit=(\S+)", job.log())
    return [Step(float(at), int(size), pid, float(train), float(commit)) for at, size, pid, train, commit in rows]


def report(job: jobs.Job, kills: list, most: int) -> None:
    rows = steps(job)
    print("train", statistics.median(s.train for s in rows), "commit", statistics.median(s.commit for s in rows))
    for at, pid in kills:
        first: Dict[str, float] = {}
        for s in rows:
            if s.at > at and s.pid != pid:
                first.setdefault(s.pid, s.at - at)
        last = sorted(first.values())[: most - 1][-1]
        print(f"killed: next step of the last survivor after {last:.3f} s")
    for i in job.summary["incidents"]:
        print(i["cause"], {k: round(v) for k, v in i["phases_ms"].items()})
    pattern = r"parts of the state are in sync.*gen=(\d+) rank=\d+ bytes=(\d+) arranged=(\S+) took=(\S+)"
    syncs = re.findall(pattern, job.log())
    for generation in sorted({int(s[0]) for s in syncs}):
        ranks = [s for s in syncs if int(s[0]) == generation]
        moved = sum(int(s[1]) for s in ranks)
        print(f"generation {generation}: {moved / 2**20:.1f} MiB moved to {len(ranks)} ranks", end=", ")
        print(f"arranged in {[s[2] for s in ranks]}, filled in {[s[3] for s in ranks]}", end="")
        print(f"; a plain copy of as many takes {plain_copy(moved):.3f} s" if moved else "")


if __name__ == "__main__":
    worker() if os.environ.get("WORKER") else main()
