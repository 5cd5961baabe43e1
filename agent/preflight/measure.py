"""Measures the GPUs of a node, for regroup doctor --gpu and for agents before they offer slots.

    python measure.py --gpus GPU-8f1c9d0e,GPU-77aa01bc --seconds 10

prints one JSON document. Each GPU has a process of its own, which sees no other: one that hangs is killed, and the
others go on. All measure their GPUs at the same time, except for the copies to and from the host, which share links:
these take turns. At last all of them reduce together.

The time for starting (torch, CUDA) has a limit of its own, because it says nothing about GPUs: a cold disk or a driver
that nothing keeps loaded takes longer than all the rest. --seconds is for what is measured, and is divided: what there
was no time for is in not_measured. --device cpu takes the same ways on the processor, with small sizes; its output says
so.
"""

import argparse
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import measurements
from measurements import TooLittle, Wrong, kind, text_of

# What is measured, in this order, and the part of the time after which it is to have ended. Of the last two the parent
# decides: who copies now, and who reduces with whom.
SHARES = {"matmul": 0.2, "memory_copy": 0.28, "memory_pattern": 0.5}
TURNS = 0.25  # the part for all copies to and from the host, which take turns
SILENT = 2  # seconds without a word after which a GPU hangs, where its time is over too
REDUCE_FROM = 0.7  # who is not ready by then reduces with nobody
STAGES = [*SHARES, "host_copies", "all_reduce"]


class Child:
    """The process of one GPU, which does what its parent says."""

    def __init__(self, args, gpu, control, results):
        self.args, self.gpu = args, gpu
        self.control, self.results = os.fdopen(control, "r"), os.fdopen(results, "w", buffering=1)

    def say(self, **fields):
        self.said = time.monotonic()
        self.results.write(json.dumps(fields) + "\n")

    def progress(self):
        if time.monotonic() - self.said > 0.1:
            self.say()

    def attempt(self, stage, work, until):
        """Says what comes of a stage, and whether there may be others."""
        self.say(stage=stage)
        try:
            self.say(**work(self.device, until))
        except Exception as error:
            what = kind(error)
            words = str(error) if isinstance(error, (Wrong, TooLittle)) else text_of(error)
            self.say(**{what: words if what == "failure" else "%s: %s" % (stage, words)})
            return what != "failure"
        return True

    def run(self):
        try:
            of = measurements.load(self.args.device)
            of.show(self.gpu)
            self.device = of(self.gpu)
            free, total = self.device.memory()
        except Exception as error:
            if kind(error) == "not_measured":  # other processes have all of it
                return self.say(stage="end", not_measured=text_of(error))
            return self.say(start_error=text_of(error))
        self.device.progress = self.progress
        self.say(stage="waiting", model=self.device.model, memory_free_bytes=free, memory_total_bytes=total)
        self.command()
        begin, usable = time.monotonic(), True
        for stage, share in SHARES.items():
            until = begin + share * self.args.seconds
            usable = usable and self.attempt(stage, getattr(measurements, stage), until)
        if not usable:
            return self.say(stage="end")
        self.say(stage="waiting for host_copies")
        (turn,) = self.command()
        if not self.attempt("host_copies", measurements.host_copies, time.monotonic() + float(turn)):
            return self.say(stage="end")
        self.say(stage="waiting for all_reduce")
        word, *more = self.command()
        if word == "reduce":
            rank, world, until, path = int(more[0]), int(more[1]), float(more[2]), more[3]
            self.say(stage="all_reduce")
            try:
                self.say(all_reduce=measurements.all_reduce(self.device, until, rank, world, path))
            except Exception as error:
                self.say(all_reduce={"failure": text_of(error)})
        return self.say(stage="end")

    def command(self):
        line = self.control.readline()
        if not line:  # the parent has gone
            os._exit(1)
        return line.split()


class Process:
    """What the parent knows of a child."""

    def __init__(self, args, gpu, others):
        self.gpu, self.stage, self.figures, self.notes, self.reduced = gpu, "start", {}, [], None
        self.failure = self.problem = self.start_error = self.printed = ""
        self.heard_at, self.alive, self.killed, self.status = time.monotonic(), True, False, 0
        control, self.control = os.pipe()
        self.results, results = os.pipe()
        self.text, text = os.pipe()
        self.buffers = {self.results: b"", self.text: b""}
        self.pid = os.fork()
        if self.pid:
            for fd in (control, results, text):
                os.close(fd)
            return
        try:
            for other in others:
                for fd in (other.control, *other.buffers):
                    os.close(fd)
            for fd in (self.control, self.results, self.text):
                os.close(fd)
            die_with_parent()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for fd, to in ((nothing, 0), (text, 1), (text, 2)):
                os.dup2(fd, to)
            Child(args, gpu, control, results).run()
        finally:
            os._exit(0)  # without the destructors of NCCL and CUDA, which may wait for others

    def send(self, *words):
        try:
            os.write(self.control, (" ".join(map(str, words)) + "\n").encode())
        except OSError:  # it has ended, which its results will show
            pass

    def read(self, fd):
        data = os.read(fd, 1 << 16)
        if not data:
            os.close(fd)
            rest = self.buffers.pop(fd)
            if fd == self.text:
                self.printed = last_line(rest)
            return
        self.buffers[fd] = (self.buffers[fd] + data)[-(1 << 20) :]
        if fd == self.results:
            *lines, self.buffers[fd] = self.buffers[fd].split(b"\n")
            for line in lines:
                self.heard(json.loads(line))

    def heard(self, fields):
        self.heard_at = time.monotonic()
        self.stage = fields.pop("stage", self.stage)
        self.failure = self.failure or fields.pop("failure", "")
        self.problem = self.problem or fields.pop("problem", "")
        self.start_error = fields.pop("start_error", self.start_error)
        self.reduced = fields.pop("all_reduce", self.reduced)
        if "not_measured" in fields:
            self.notes.append(fields.pop("not_measured"))
        self.figures.update(fields)

    def kill(self):
        self.killed = True
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def gone(self):
        """Whether it has ended. One that waits in the driver for its GPU cannot be killed, and is left."""
        if self.alive:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.alive, self.status = False, status
        return not self.alive

    def crash(self):
        """How it has ended without a word; "" = it has not."""
        if self.alive or self.killed or self.start_error or self.stage == "end":
            return ""
        how = "by signal %d " % os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else ""
        return "has ended %sin %s%s" % (how, self.stage, self.printed)


def last_line(raw):
    lines = [line.strip() for line in raw.decode(errors="replace").splitlines() if line.strip()]
    return ": " + lines[-1] if lines else ""


def die_with_parent():
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):  # it ends when it next waits for its parent
        pass


class Parent:
    def __init__(self, args):
        self.args, self.processes = args, []
        for gpu in args.gpus.split(","):
            self.processes.append(Process(args, gpu, self.processes))

    def until(self, deadline, over):
        """Hears of the children until over() or the deadline."""
        while not over():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            fds = {fd: p for p in self.processes for fd in p.buffers}
            ready, _, _ = select.select(list(fds), [], [], min(left, 0.05))
            for fd in ready:
                fds[fd].read(fd)
            for p in self.processes:
                p.gone()
            if os.getppid() != self.args.parent:  # nothing reads the figures any more
                for p in self.processes:
                    p.kill()
                sys.exit(1)
        return True

    def running(self):
        """Those that have not reached their end. What an ended one has said may still have to be read."""
        return [p for p in self.processes if p.stage != "end" and (p.alive or p.results in p.buffers)]

    def stop(self, p):
        """Ends a process whose time is over. Only one that has been silent for long hangs: others were only slow."""
        silent = time.monotonic() - p.heard_at
        if silent > min(SILENT, self.args.seconds / 2):
            p.failure = p.failure or "hangs: %s, and nothing more for %.1f s" % (p.stage, silent)
        p.kill()

    def start(self):
        deadline = time.monotonic() + self.args.start_seconds
        self.until(deadline, lambda: all(p.stage == "waiting" for p in self.running()))
        for p in self.running():
            if p.stage == "start":
                self.stop(p)

    def measure(self):
        begin = time.monotonic()
        self.deadline, self.turn, self.reducing = begin + self.args.seconds, None, None
        reduce_from = begin + REDUCE_FROM * self.args.seconds
        for p in self.running():
            if not p.killed:
                p.send("begin")

        def step():
            running = [p for p in self.running() if not p.killed]
            self.give_turn(running)
            at = [p for p in running if p.stage == "waiting for all_reduce"]
            if self.reducing is None and (len(at) == len(running) or time.monotonic() > reduce_from):
                self.reduce(at)
            elif self.reducing is not None:
                for p in at:
                    if p not in self.reducing:
                        p.send("end")
            return not running

        self.until(self.deadline, step)
        for p in [p for p in self.running() if not p.killed]:
            if p.stage.startswith("waiting for "):
                p.kill()
            elif p.stage == "all_reduce":
                p.reduced = {"not_measured": "it has not ended within %.1f s" % (time.monotonic() - p.heard_at)}
                p.kill()
            else:
                self.stop(p)

    def give_turn(self, running):
        """One at a time copies to and from its GPU."""
        if self.turn and self.turn in running and self.turn.stage in ("waiting for host_copies", "host_copies"):
            if time.monotonic() < self.turn_until:
                return
            self.stop(self.turn)
        self.turn = next((p for p in running if p.stage == "waiting for host_copies" and not p.killed), None)
        if self.turn:
            turn = TURNS * self.args.seconds / max(2, len(self.processes))
            self.turn_until = time.monotonic() + max(SILENT + 1, 3 * turn)
            self.turn.send(turn)

    def reduce(self, members):
        apart = any(p.gpu.startswith("MIG-") for p in members)  # NCCL does not reduce between instances
        self.reducing = members if len(members) > 1 and not apart else []
        path = os.path.join(self.args.dir, "store")
        for rank, p in enumerate(self.reducing):
            p.send("reduce", rank, len(self.reducing), self.deadline - 0.2, path)

    def end(self):
        for p in self.processes:
            if p.alive and p.stage != "end":
                p.kill()
        self.until(time.monotonic() + 2, lambda: all(p.gone() and not p.buffers for p in self.processes))
        for p in self.processes:
            if p.alive:
                p.notes.append("process %d cannot be killed" % p.pid)

    def document(self):
        every, out = self.processes, {}
        unstarted = [p for p in every if p.start_error]
        crashed = [p for p in every if p.crash() and not p.failure]
        hang = [p for p in every if p.failure and p.stage == "start"]
        if len(unstarted) == len(every):
            out["problem"] = "CUDA has not started: " + unstarted[0].start_error
        elif len(crashed) == len(every):
            out["problem"] = "the process of each GPU " + crashed[0].crash()
        elif len(every) > 1 and len(hang) == len(every):
            out["problem"] = "CUDA has started on no GPU within %.0f s" % self.args.start_seconds
        out["gpus"] = [self.of(p, "problem" in out) for p in every]
        reduced = [p.reduced for p in self.reducing or [] if p.reduced]
        failures = [r["failure"] for r in reduced if "failure" in r]
        if failures:
            out["all_reduce"] = {"gpus": len(self.reducing), "failure": failures[0]}
        elif any("not_measured" in r for r in reduced):  # it hangs, or NCCL takes longer to start
            why = next(r["not_measured"] for r in reduced if "not_measured" in r)
            out["all_reduce"] = {"gpus": len(self.reducing), "not_measured": why}
        elif reduced:
            bus = min(r["bus_gb_per_s"] for r in reduced)
            out["all_reduce"] = {"gpus": len(self.reducing), "bytes": reduced[0]["bytes"], "bus_gb_per_s": bus}
        return out

    def of(self, p, excused):
        g = {"id": p.gpu, **p.figures}
        failure = p.failure or p.start_error or (p.crash() and "its process " + p.crash())
        if failure and not excused:
            g["failure"] = failure
        begun = ("matmul_tflop_per_s", "memory_copy_gb_per_s", "memory_tested_bytes", "device_to_host_gb_per_s")
        said = [note.split(":")[0] for note in p.notes] + [p.problem.split(":")[0]]
        missing = [s for s, figure in zip(STAGES, begun) if figure not in p.figures and s not in said]
        if len(self.processes) > 1 and not (p.reduced and "bus_gb_per_s" in p.reduced):
            missing.append("all_reduce")
        notes = p.notes + ([p.problem] if p.problem else []) + ([", ".join(missing)] if missing else [])
        if notes:
            g["not_measured"] = "; ".join(notes)
        return g


def main():
    parser = argparse.ArgumentParser(prog="measure.py")
    parser.add_argument("--gpus", required=True, help="as CUDA_VISIBLE_DEVICES has them")
    parser.add_argument("--seconds", type=float, default=10, help="for what is measured")
    parser.add_argument("--start-seconds", type=float, default=30, help="until CUDA has started")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="the process with which this one ends")
    args = parser.parse_args()
    begin = time.monotonic()
    out = {"device": measurements.load(args.device).name}
    try:
        import torch  # before the processes are made, so that they share it

        out.update(torch=torch.__version__, cuda=torch.version.cuda or "")
        problem = measurements.load(args.device).problem(torch)
    except Exception as error:
        problem = "torch cannot be imported: " + text_of(error)
    if problem:
        return dict(out, problem=problem, gpus=[])
    args.dir = tempfile.mkdtemp(prefix="regroup-gpus-")
    try:
        parent = Parent(args)
        parent.start()
        started = time.monotonic()
        parent.measure()
        measured = time.monotonic() - started
        parent.end()
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    return dict(out, start_seconds=round(started - begin, 3), seconds=round(measured, 3), **parent.document())


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
