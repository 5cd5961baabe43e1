"""How long a PyTorch job stands still when one of its three workers is killed, for a group of
torch.distributed that follows the job, and for Horovod's interface (make build libregroup first)::

    PYTHONPATH=python python3 python/bench/follow.py --backend gloo --kills 30
    PYTHONPATH=python python3 python/bench/follow.py --backend gloo --kills 30 --at-end
    PYTHONPATH=python python3 python/bench/follow.py --backend gloo --storm 100
    PYTHONPATH=python python3 python/bench/follow.py --backend fakenccl --abort 0.55 --connect 0.15 --kills 30

--kills kills a worker again and again in one job, each time when three train. What is told is the
time from just before the SIGKILL until the last survivor has made a step, by the clock of this
machine: it contains the whole step, and what was left of the one that the kill has met. With
--at-end the worker kills itself when it has computed a step, as the others have: nothing is left
of that one. --storm
kills without waiting for the job to recover, as long as one of the others has trained.

The backend fakenccl is gloo with an abort and a connecting that last as long as --abort and --connect say: what
NCCL's were measured to take on a GPU. With --apart the next group begins when the old one has ended.

At the end the weights of all ranks must be equal, every sample must have been used once, and every
process must be one of the first three or have taken the place of one that was killed.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import tempfile
import time

from tests.jobs import Job, script

LINE = re.compile(r"\bsteps at=(\S+) pid=(\d+) rank=\d+ size=(\d+) step=(\d+)")
DIES = re.compile(r"\bdies at=(\S+) pid=(\d+)")


class Steps:
    """What the workers of a job have said of their steps: time, process and members."""

    def __init__(self, job):
        self._job, self._at, self._rest = job, 0, ""
        self.seen = []
        self.last = {}  # of each process that was not killed
        self.died = {}  # when a process has killed itself
        self._killed = set()

    def kill(self, pid, victim=""):
        """Kills a process, whose last lines may be yet to be read; returns when. If there is a file
        for its ID, it does so itself."""
        began = time.time()
        if victim:
            with open(victim + ".new", "w", encoding="utf-8") as f:
                f.write(str(pid))
            os.rename(victim + ".new", victim)
            while pid not in self.died:
                self.read()
            os.remove(victim)
            began = self.died[pid]
        else:
            os.kill(pid, signal.SIGKILL)
        self._killed.add(pid)
        self.last.pop(pid)
        return began

    def read(self):
        """Reads what is new, and waits a moment if nothing is."""
        with open(self._job._log.name, encoding="utf-8", errors="replace") as f:
            f.seek(self._at)
            text = self._rest + f.read()
            self._at = f.tell()
        *lines, self._rest = text.split("\n")
        for line in lines:
            died, found = DIES.search(line), LINE.search(line)
            if died:
                self.died[int(died[2])] = float(died[1])
            if found:
                step = float(found[1]), int(found[2]), int(found[3])
                self.seen.append(step)
                if step[1] not in self._killed:
                    self.last[step[1]] = step
        if not lines:
            if self._job.process.poll() is not None:
                raise SystemExit(f"the job has ended:\n{self._job.wait().output}\n{self._job.summary}")
            time.sleep(0.005)

    def training(self, size):
        """The processes whose last step was one of so many members, a moment ago."""
        limit = time.time() - 1
        return [pid for at, pid, n in self.last.values() if n == size and at > limit]


def kills(steps, args, times):
    """Kills again and again, each time when all train; adds the times in ms."""
    limit = time.monotonic() + args.limit
    while len(times) < args.kills:
        while len(steps.training(3)) < 3:
            steps.read()
            if time.monotonic() > limit:
                raise SystemExit(f"three workers do not come together:\n{steps._job.log()}")
        pause = time.monotonic() + random.uniform(0.2, 0.6)
        while time.monotonic() < pause:
            steps.read()
        pids = steps.training(3)
        if len(pids) != 3:
            continue
        victim = random.choice(pids)
        known, first = len(steps.seen), {}
        began = steps.kill(victim, args.victim)
        while len(first) < 2:
            steps.read()
            for at, pid, size in steps.seen[known:]:
                if at > began and size == 2 and pid != victim:
                    first.setdefault(pid, at)
            known = len(steps.seen)
        times.append(1000 * (max(first.values()) - began))
        limit = time.monotonic() + args.limit


def spread(times):
    """The figures of sorted times."""
    p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
    return {"min": times[0], "median": statistics.median(times), "p99": p99, "max": times[-1]}


def storm(steps, args):
    """Kills at any moment a worker that has trained, while another one has."""
    done = 0
    while done < args.storm:
        pause = time.monotonic() + random.uniform(0.05, 1.5)
        while time.monotonic() < pause:
            steps.read()
        if len(steps.last) > 1:
            steps.kill(random.choice(list(steps.last)))
            done += 1


def phases(job):
    """The medians of the incidents' parts, by the job's own account of them."""
    parts = [incident["phases_ms"] for incident in job.summary["incidents"]]
    names = dict.fromkeys(name for p in parts for name in p)
    return {name: statistics.median(p[name] for p in parts if name in p) for name in names}


def checked(job, killed):
    """What the job has done, which ended as it should."""
    if job.summary.get("outcome") != "succeeded":
        raise SystemExit(job.output)
    samples = job.summary["samples"]
    ends = job.lines(r"\bends at=")
    assert len({e["checksum"] for e in ends}) == 1, ends
    assert (samples["missing"], samples["repeated"]) == (0, 0), samples
    pids = {pid for generation in job.pids() for pid in generation.values()}
    return {
        "kills": killed,
        "generations": len(job.pids()),
        "epochs": samples["epochs"],
        "missing": samples["missing"],
        "repeated": samples["repeated"],
        "equal_weights_on": len(ends),
        "replaced_though_not_killed_at_most": max(0, len(pids) - 3 - killed),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="gloo", help='of torch.distributed, or "horovod"')
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--at-end", action="store_true", help="of the computation of a step")
    parser.add_argument("--storm", type=int, default=0)
    parser.add_argument("--step", type=float, default=0.04, help="seconds that a step lasts")
    parser.add_argument("--limit", type=float, default=120, help="seconds until three train")
    parser.add_argument("--abort", type=float, default=0, help="seconds that an abort of fakenccl lasts")
    parser.add_argument("--connect", type=float, default=0, help="seconds that fakenccl needs to connect")
    parser.add_argument("--apart", action="store_true", help="the next group of fakenccl waits for the old one's end")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")
        args.victim = os.path.join(folder, "victim") if args.at_end else ""
        env = {"BACKEND": args.backend, "STEP": str(args.step), "STOP": stop, "VICTIM": args.victim}
        if args.backend == "fakenccl":
            env.update(FAKE_ABORT=f"sleep:{args.abort}", FAKE_CONNECT=str(args.connect))
            if args.apart:
                env["FAKE_APART"] = "1"
        run = ["--recovery", "in-process", "--workers", "2:3", "--max-restarts", "10000"]
        with Job(*run, "--", *script("follows.py"), env=env) as job:
            steps = Steps(job)
            times = []
            kills(steps, args, times)
            storm(steps, args)
            with open(stop, "w", encoding="utf-8"):
                pass
            job.wait()
    told = {"backend": args.backend, "at_end": args.at_end, **checked(job, args.kills + args.storm)}
    if times:
        times.sort()
        told["phases_ms"] = phases(job)
        told["kill_to_step_ms"] = spread(times)
    if args.json:
        print(json.dumps(told))
        return
    for name, value in told.items():
        if isinstance(value, dict):
            value = "  ".join(f"{part} {number:.1f}" for part, number in value.items())
        print(f"{name.replace('_', ' '):<36}{value}")


if __name__ == "__main__":
    main()
