"""How long a job with a sharded model stands still when a worker dies or is taken away: FSDP2 and AdamW.

    python bench/sharded.py [--fault lost | replaced | planned] [--mib 256] [--copies 1 | --parity 3]

Four workers train a model of so many MiB of parameters. One is killed, again and again: the others go
on without it (lost), or wait for one that takes its place, made of a spare (replaced). Or the job is
scaled, to 3, 4, 2 and 4 workers (planned). Prints, for each change, how long the workers stood still,
what of it is the copy of the state, how many bytes that moved, and how long a plain copy of as many
bytes takes between two processes here.
"""

from __future__ import annotations

import argparse
import mmap
import os
import re
import signal
import socket
import statistics
import sys
import time
from typing import Callable, Dict, List, NamedTuple

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


def touch(mib: int) -> None:
    """Uses so much free memory, and frees it. A virtual machine that reports free memory to its host
    (virtio-balloon) loses it within two seconds, and then a page takes 20 times as long as on a
    machine of its own."""
    if mib:
        with mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, mib << 20, 4096):
                memory[at] = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=("lost", "replaced", "planned"), default="lost")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cuda: all workers use one GPU")
    parser.add_argument("--touch", type=int, default=0, help="MiB of free memory to use before each change, see touch")
    parser.add_argument("--parity", type=int, default=0, help="in place of copies")
    args = parser.parse_args()
    stop = f"/tmp/sharded-{os.getpid()}"
    env = {
        **{"MIB": str(args.mib), "STOP": stop, "BACKEND": args.backend, "COPIES": str(args.copies)},
        **{"PARITY": str(args.parity), "WORKER": "1", "REGROUP_LOG_LEVEL": "info", "DEVICE": args.device},
    }
    least = args.workers - 1 if args.fault == "lost" else args.workers
    run = ["--recovery", "in-process", "--hang", "10m", "--max-restarts", str(args.kills + 10)]
    run += ["--spares", "1"] if args.fault == "replaced" else []
    run += ["--workers", f"{least}:{args.workers}", "--", sys.executable, os.path.abspath(__file__)]
    with jobs.Job(*run, env=env) as job:
        bench = Bench(job, args.workers, args.mib, args.touch)
        if args.fault == "planned":
            bench.scale([args.workers - 1, args.workers, args.workers // 2, args.workers])
        else:
            bench.kill(args.kills, args.fault == "replaced")
        open(stop, "w").close()
        job.wait()
        os.remove(stop)
        bench.phases()


class Step(NamedTuple):
    """A step, as a worker has told it."""

    at: float
    size: int
    pid: str
    train: float
    commit: float


class Bench:
    """What is done to a job, and what is seen of it."""

    def __init__(self, job: jobs.Job, most: int, mib: int, touched: int):
        self.job, self.most, self.mib, self.touched = job, most, mib, touched

    def steps(self) -> List[Step]:
        pattern = r"steps at=(\S+) rank=\d+ size=(\d+) step=\d+ pid=(\d+) train=(\S+) commit=(\S+)"
        rows = re.findall(pattern, self.job.log())
        return [Step(float(at), int(size), pid, float(train), float(commit)) for at, size, pid, train, commit in rows]

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.job.process.poll() is not None:
                raise AssertionError(self.job.log())
            time.sleep(0.05)  # other processes give no other sign

    def trained(self, size: int, rounds: int) -> None:
        """Waits for so many more steps of as many workers."""
        seen = len(self.steps())
        self.until(lambda: len([s for s in self.steps()[seen:] if s.size == size]) >= rounds * size)
        rows = [s for s in self.steps()[seen:] if s.size == size]
        train, commit = statistics.median(s.train for s in rows), statistics.median(s.commit for s in rows)
        print(f"{size} workers: a step takes {train:.3f} s, and a commit {commit:.3f} s", flush=True)

    def kill(self, times: int, replaced: bool) -> None:
        for _ in range(times):
            self.trained(self.most, 4)
            if replaced:
                time.sleep(4)  # spares are started three seconds after the last worker
            touch(self.touched)
            victim = self.steps()[-1].pid
            at = time.time()
            os.kill(int(victim), signal.SIGKILL)
            others = self.most if replaced else self.most - 1

            def stepped() -> Dict[str, Step]:
                first: Dict[str, Step] = {}
                for s in self.steps():
                    if s.at > at and s.pid != victim and s.size == others:
                        first.setdefault(s.pid, s)
                return first

            self.until(lambda: len(stepped()) >= others)
            rows = stepped().values()
            entered = max(self.entered(at)) - at
            print(
                f"killed: all train again after {entered:.3f} s, and have a step after {max(s.at for s in rows) - at:.3f} s"
            )

    def entered(self, after: float) -> List[float]:
        """When workers have begun to train again."""
        found = [float(at) for at in re.findall(r"enters at=(\S+)", self.job.log())]
        return [at for at in found if at > after]

    def scale(self, sizes: List[int]) -> None:
        now = self.most
        for size in sizes:
            self.trained(now, 4)
            touch(self.touched)
            asked = time.time()
            self.job.scale(size)
            self.until(lambda: len([s for s in self.steps() if s.at > asked and s.size == size]) >= size)
            left = max(s.at - s.commit for s in self.steps() if s.at > asked and s.size == now)
            entered = max(self.entered(left)[:size]) - left
            gone = max(0, now - size) / now * self.mib * 3
            copied = plain_copy(int(gone * 2**20)) if gone else 0
            print(
                f"{now} to {size}: {entered:.3f} s from the last step to the function; those who left had {gone:.1f} MiB",
                end="",
            )
            print(f", and a plain copy of as many takes {copied:.3f} s" if gone else "", flush=True)
            now = size

    def phases(self) -> None:
        for i in self.job.summary["incidents"]:
            print(i["cause"], {k: round(v) for k, v in i["phases_ms"].items()})
        pattern = r"parts of the state are in sync.*gen=(\d+) rank=\d+ bytes=(\d+) unchanged=(\d+) arranged=(\S+) took=(\S+)"
        syncs = re.findall(pattern, self.job.log())
        for generation in sorted({int(s[0]) for s in syncs}):
            ranks = [s for s in syncs if int(s[0]) == generation]
            moved = sum(int(s[1]) for s in ranks)
            print(f"generation {generation}: {moved / 2**20:.1f} MiB moved to {len(ranks)} ranks", end=", ")
            there = sum(int(s[2]) for s in ranks)
            print(f"{there / 2**20:.1f} there, arranged in {[s[3] for s in ranks]}, filled in {[s[4] for s in ranks]}", end="")
            print(f"; a plain copy of as many takes {plain_copy(moved):.3f} s" if moved else "")


if __name__ == "__main__":
    worker() if os.environ.get("WORKER") else main()
