"""How long a job that is restarted as a whole stands still, for several launchers: torchrun, and what
Regroup offers in its place (make build first; root, for the network that is cut)::

    PYTHONPATH=python python3 python/bench/restart.py --launcher torchrun --fault worker
    PYTHONPATH=python python3 python/bench/restart.py --launcher spares --fault worker

Launchers: torchrun; regroup (regroup torchrun); spares (the same with --spares 2); handler (torchrun
with --rdzv-backend=regroup). Faults: worker (one node of two workers, one is killed), node (two nodes
of a worker, the agent and the worker of one are killed, and that node joins again: two figures), cut
(two nodes, and the network between them is cut).

It prints the time from the fault until all workers of the new group have made a step, by the
clock of this machine, and the parts of the slowest worker. A job has two faults at most: after more of
them within a minute Regroup waits before it tries again, which torchrun does not.
"""

import argparse
import contextlib
import glob
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "restarted.py")
BINARY = os.environ.get("REGROUP_BINARY", "bin/regroup")

#: Between which stamps of a worker the parts are.
PARTS = (("start of Python", "born", "main"), ("import", "main", "imported"), ("init", "imported", "connected"),
         ("model", "connected", "made"), ("first step", "made", "step"))


class Worker:
    """What one process has noted."""

    def __init__(self, path):
        self.path, self.at, self.steps, self.world, self.rank, self.pid, self.last = path, {}, 0, 0, -1, 0, 0.0

    def read(self):
        with open(self.path, encoding="ascii") as f:
            lines = f.read().split("\n")[:-1]
        self.steps = 0
        for line in lines:
            what, *values = line.split()
            if what == "world":
                self.world, self.rank, self.pid = map(int, values[:3])
                continue
            self.at.setdefault(what, float(values[0]))
            if what == "step":
                self.steps, self.last = self.steps + 1, float(values[0])
        return self


class Job:
    """The launchers of a job's nodes, and its workers."""

    def __init__(self, args, workers, nodes, hosts=None):
        self.args, self.workers, self.nodes, self.hosts = args, workers, nodes, hosts
        self.folder = tempfile.mkdtemp(prefix="restart-")
        self.stamps = os.path.join(self.folder, "stamps")
        os.mkdir(self.stamps)
        self.port = random.randint(21000, 29000)
        self.launchers = {}

    def command(self, node):
        a, many = self.args, self.nodes > 1
        host = self.hosts[0].address if self.hosts else "127.0.0.1"
        flags = ["--max-restarts", "1000", "--nproc-per-node", str(self.workers)]
        if many or a.launcher == "handler":
            backend = "regroup" if a.launcher == "handler" else "c10d"
            flags += ["--nnodes", f"1:{self.nodes}" if many else "1", "--rdzv-backend", backend, "--rdzv-endpoint", f"{host}:{self.port}",
                      "--rdzv-id", "bench", "--local-addr", self.hosts[node].address if self.hosts else "127.0.0.1"]
            if self.hosts:  # torchrun does not recognise an address of a further interface as its own
                flags += ["--rdzv-conf", f"is_host={'true' if node == 0 else 'false'}"]
        else:
            flags.append("--standalone")
        if a.launcher in ("torchrun", "handler"):
            return [sys.executable, "-m", "torch.distributed.run", *flags, SCRIPT]
        spares = ["--spares", str(self.workers)] if a.launcher == "spares" else []
        return [BINARY, "torchrun", "--state-dir", os.path.join(self.folder, "state"), *flags, *spares, SCRIPT]

    def start(self, node):
        """Starts a node; returns when."""
        installed = os.path.join(self.folder, "regroup_elastic-0.dist-info")  # torchrun finds the handler there
        os.makedirs(installed, exist_ok=True)
        with open(os.path.join(installed, "entry_points.txt"), "w", encoding="utf-8") as f:
            f.write("[torchrun.handlers]\nregroup = regroup.rendezvous_handler:get\n")
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), self.folder)))
        env = dict(os.environ, PYTHONPATH=path, STAMPS=self.stamps, PYTHON_EXEC=sys.executable, REGROUP_STATE_DIR=os.path.join(self.folder, "state"))
        prefix = []
        if self.hosts:
            env["GLOO_SOCKET_IFNAME"], prefix = self.hosts[node].interface, self.hosts[node].prefix
        began = time.time()
        log = open(os.path.join(self.folder, f"log{node}"), "a", encoding="utf-8")
        self.launchers[node] = subprocess.Popen(
            prefix + self.command(node), env=env, stdout=log, stderr=log, start_new_session=True)
        return began

    def all(self):
        """All workers that there were."""
        return [Worker(path).read() for path in glob.glob(os.path.join(self.stamps, "*"))]

    def group(self, world, steps, unlike=(), limit=120):
        """The workers of the newest group of this size, when each has made so many steps; None after
        the limit. Those whose files are in unlike belong to earlier groups."""
        end = time.time() + limit
        while time.time() < end:
            found = [w for w in self.all() if w.path not in unlike and w.world == world and w.steps >= steps and time.time() - w.last < 1]
            newest = {w.rank: w for w in sorted(found, key=lambda w: w.at["main"])}
            if len(newest) == world:
                return list(newest.values())
            time.sleep(0.01)
        return None

    def log(self):
        text = ""
        for path in sorted(glob.glob(os.path.join(self.folder, "log*"))):
            with open(path, encoding="utf-8", errors="replace") as f:
                text += f"--- {path}\n{f.read()[-3000:]}"
        return text

    def kill(self, node):
        """Kills the agent of a node with all that it has started."""
        tree = descendants(self.launchers[node].pid)
        for pid in [self.launchers[node].pid, *tree]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launchers.pop(node).wait()

    def close(self):
        for node in list(self.launchers):
            self.kill(node)
        for w in self.all():
            with contextlib.suppress(ProcessLookupError):
                os.kill(w.pid, signal.SIGKILL) if w.pid else None
        shutil.rmtree(self.folder, ignore_errors=True)


def descendants(pid):
    """The processes that a process has started, and theirs."""
    children = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as f:
            text = f.read()
            children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(text.split()[0]))
    found, left = [], [pid]
    while left:
        mine = children.get(left.pop(), [])
        found += mine
        left += mine
    return found


#: Recoveries that did not come within the limit, after which a fault is not tried again.
GIVEN_UP = 3


def recovered(job, world, began, unlike, limit):
    """The time of a recovery and its parts; None if there was none within the limit."""
    group = job.group(world, 1, unlike, limit)
    if group is None:
        return None
    slowest = max(group, key=lambda w: w.at["step"])
    parts = {"until the process": slowest.at["born"] - began}
    if slowest.at["born"] < began:  # a spare
        parts = {"until the process": slowest.at["main"] - began}
    for name, since, until in PARTS:
        if not (name == "start of Python" and slowest.at["born"] < began):
            parts[name] = slowest.at[until] - slowest.at[since]
    return {"total": max(w.at["step"] for w in group) - began, **parts}


def settle(job, world, since, pause, unlike=()):
    """Waits until a group trains, and for some time after the last start."""
    group = job.group(world, 20, unlike)
    if group is None:
        raise SystemExit(f"{world} workers do not come together:\n{job.log()}")
    while time.time() < since + pause:
        time.sleep(0.05)
    return group


#: Faults of one job, after which another one is started.
FAULTS = 2


def workers(args):
    """One node of two workers, one of which is killed."""
    times, lost = [], 0
    while len(times) + lost < args.runs:
        job = Job(args, workers=2, nodes=1)
        try:
            since, known = job.start(0), set()
            for _ in range(min(FAULTS, args.runs - len(times) - lost)):
                group = settle(job, 2, since, args.pause, known)
                known = {w.path for w in job.all()}
                time.sleep(random.uniform(0, 0.05))
                since = time.time()
                os.kill(next(w.pid for w in group if w.rank == 1), signal.SIGKILL)
                took = recovered(job, 2, since, known, args.limit)
                if took is None:
                    lost += 1
                    print(job.log(), file=sys.stderr)
                    break
                times.append(took)
        finally:
            job.close()
    return {"worker killed": (times, lost)}


def nodes(args):
    """Two nodes; the one that does not serve the other is killed, and joins again."""
    found = {"node killed": ([], 0), "node joins": ([], 0)}

    def add(name, took):
        times, lost = found[name]
        found[name] = (times + [took], lost) if took else (times, lost + 1)
        return took is not None

    while len(found["node killed"][0]) + found["node killed"][1] < args.runs and found["node killed"][1] < GIVEN_UP:
        job = Job(args, workers=1, nodes=2)
        try:
            job.start(0)
            time.sleep(1)  # the first one serves
            since, known = job.start(1), set()
            for _ in range(FAULTS):
                settle(job, 2, since, args.pause, known)
                known = {w.path for w in job.all()}
                began = time.time()
                job.kill(1)
                if not add("node killed", recovered(job, 1, began, known, args.limit)):
                    print(job.log(), file=sys.stderr)
                    break
                settle(job, 1, began, args.pause, known)
                known = {w.path for w in job.all()}
                since = job.start(1)
                if not add("node joins", recovered(job, 2, since, known, args.limit)):
                    print(job.log(), file=sys.stderr)
                    break
        finally:
            job.close()
    return found


class Host:
    """A node with an address of its own."""

    def __init__(self, address, interface, prefix):
        self.address, self.interface, self.prefix = address, interface, prefix


def run(*command):
    subprocess.run(command, check=True)


@contextlib.contextmanager
def two_hosts():
    """This machine, and a network namespace that is connected to it. Yields the hosts, and what cuts
    the network between them."""
    name = f"restart{os.getpid() % 10000}"
    here, there = f"ra{os.getpid() % 10000}", f"rb{os.getpid() % 10000}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        run("ip", "addr", "add", "10.213.7.1/24", "dev", here)
        run("ip", "link", "set", here, "up")
        for words in (["addr", "add", "10.213.7.2/24", "dev", there], ["link", "set", there, "up"], ["link", "set", "lo", "up"]):
            run("ip", "-n", name, *words)
        yield (
            [Host("10.213.7.1", here, []), Host("10.213.7.2", there, ["ip", "netns", "exec", name])],
            lambda: run("ip", "-n", name, "link", "set", there, "down"),
        )
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", here], check=False, stderr=subprocess.DEVNULL)


def cut(args):
    """Two nodes, between which the network is cut: the first one goes on alone."""
    times, lost = [], 0
    while len(times) + lost < args.runs and lost < GIVEN_UP:
        with two_hosts() as (hosts, sever):
            job = Job(args, workers=1, nodes=2, hosts=hosts)
            try:
                job.start(0)
                time.sleep(1)
                since = job.start(1)
                settle(job, 2, since, args.pause)
                known = {w.path for w in job.all()}
                began = time.time()
                sever()
                took = recovered(job, 1, began, known, args.limit)
                if took is None:
                    lost += 1
                    print(job.log(), file=sys.stderr)
                else:
                    times.append(took)
            finally:
                job.close()
    return {"network cut": (times, lost)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--launcher", choices=("torchrun", "regroup", "spares", "handler"), required=True)
    parser.add_argument("--fault", choices=("worker", "node", "cut"), required=True)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--pause", type=float, default=0, help="seconds that a group runs at least before the next fault")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a recovery counts as none")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = {}
    for fault, (times, lost) in {"worker": workers, "node": nodes, "cut": cut}[args.fault](args).items():
        names = list(dict.fromkeys(name for t in times for name in t))
        result[fault] = {
            "runs": len(times) + lost, "none": lost, "limit": args.limit,
            "seconds": {n: statistics.median(t[n] for t in times if n in t) for n in names},
            "range": [min(t["total"] for t in times), max(t["total"] for t in times)] if times else [],
        }
    if args.json:
        print(json.dumps(result))
        return
    for fault, r in result.items():
        print(f"{args.launcher}, {fault}: {r['runs']} runs, {r['none']} without a step after {args.limit:.0f} s, range {r['range']}")
        for name, value in r["seconds"].items():
            print(f"  {name:<20}{value:8.3f}")


if __name__ == "__main__":
    main()
