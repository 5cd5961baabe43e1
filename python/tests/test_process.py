"""The library as a guest in a process: forks, signals, threads, symbols."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import unittest

from regroup import _library

from . import launch

PRELUDE = """
import faulthandler, os, signal, sys, threading, time
import regroup.torch as hvd, torch
faulthandler.dump_traceback_later(60, exit=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
hvd.init()
"""


def line(process):
    """Waits for a line of a process."""
    text = process.stdout.readline()
    if not text:
        raise AssertionError(process.communicate()[1])
    return text.strip()


class Process(unittest.TestCase):
    def start(self, script, world=1):
        """Starts ranks that run a script."""
        return [
            self.run_python(PRELUDE + textwrap.dedent(script), env) for env in launch.ranks(world)
        ]

    def run_python(self, script, env):
        """Starts a process, which ends with the test at the latest."""
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env=env,
            cwd=launch.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def end(self, process, code, says="(?s).*", where="stderr"):
        out, err = process.communicate(timeout=300)
        self.assertEqual(code, process.returncode, out + err)
        self.assertRegex({"stderr": err, "stdout": out}[where], says)

    def test_forks(self):
        results = launch.run_cases("tests.ranks.forks", 2)
        last = results.pop("case_death_is_not_hidden")
        for name, problems in results.items():
            with self.subTest(name):
                if problems:
                    self.fail("\n".join(problems))
        self.assertEqual(
            1, len(last), last
        )  # of the rank that was killed, and nothing of the other
        self.assertIn("rank 1 of 2 has not ended it, and exits -9", last[0])

    def test_ctrl_c_between_operations(self):
        (p,) = self.start(
            """
            hvd.allreduce(torch.ones(3))
            try:
                print("ready", flush=True)
                while True:
                    time.sleep(0.01)
                    hvd.allreduce(torch.ones(3))
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
        self.assertEqual("ready", line(p))
        p.send_signal(signal.SIGINT)
        self.end(p, 0, "interrupted", "stdout")

    def test_ctrl_c_while_waiting_for_others(self):
        a, b = self.start(
            """
            hvd.barrier()
            try:
                print("ready", flush=True)
                if hvd.rank() == 0:
                    hvd.synchronize(hvd.allreduce_async(torch.ones(3)))  # the other one never comes
                time.sleep(60)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                os._exit(0)
            """,
            2,
        )
        for p in (a, b):
            self.assertEqual("ready", line(p))
        for p in (a, b):
            p.send_signal(signal.SIGINT)
            self.end(p, 0, "interrupted", "stdout")

    def test_sigterm_ends_a_process_that_waits_for_others(self):
        a, b = self.start(
            """
            hvd.barrier()
            print("ready", flush=True)
            if hvd.rank() == 0:
                hvd.allreduce(torch.ones(3))
            time.sleep(60)
            """,
            2,
        )
        for p in (a, b):
            self.assertEqual("ready", line(p))
        for p in (a, b):
            p.terminate()
            self.end(p, -signal.SIGTERM)

    def test_handlers_stay(self):
        (p,) = self.start(
            """
            from regroup._library import library
            got = []
            for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
                signal.signal(s, lambda n, _: got.append(n))
                os.kill(os.getpid(), s)
            hvd.allreduce(torch.ones(3))
            deadline = time.monotonic() + 60
            while len(got) < 6 and time.monotonic() < deadline:
                time.sleep(0.01)
            print(sorted(got) == sorted([1, 2, 10, 14, 15, 17]), flush=True)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)  # interrupts whatever goes on
            for i in range(2000):
                hvd.allreduce(torch.ones(1000))
            signal.setitimer(signal.ITIMER_REAL, 0)
            r, w = os.pipe()
            os.close(r)
            try:
                os.write(w, b"x")
            except BrokenPipeError:
                print("SIGPIPE is ignored", flush=True)
            """
        )
        self.end(p, 0, r"(?s)True.*SIGPIPE is ignored", "stdout")

    def test_faulthandler_speaks(self):
        """A crash outside of the library is told by Python as without it; enabled before or after
        the library is loaded."""
        for when in ("before", "after"):
            crash = "import ctypes; ctypes.string_at(0)"
            load = "from regroup._library import library; library().rg_version()"
            enable = "import faulthandler; faulthandler.enable()"
            steps = [enable, load] if when == "before" else [load, enable]
            script = "\n".join(steps + ["def crashes():", "    " + crash, "crashes()"])
            p = self.run_python(script, launch.environment())
            with self.subTest(when):
                self.end(p, -signal.SIGSEGV, r"(?s)Segmentation fault.*in crashes")

    def test_a_crash_without_faulthandler(self):
        p = self.run_python(
            "from regroup._library import library; library(); import ctypes; ctypes.string_at(0)",
            launch.environment(),
        )
        p.communicate(timeout=60)
        self.assertIn(p.returncode, (-signal.SIGSEGV, 2), "2 is how the Go runtime ends")

    def test_threads(self):
        """Operations of several threads; each learns of its own error."""
        (p,) = self.start(
            """
            from regroup import _library as lib
            problems = []
            def work(i):
                library = lib.library()
                for k in range(300):
                    status = library.rg_comm_failed(10**6 + i)
                    text = library.rg_last_error().decode()
                    if status != lib.INVALID or str(10**6 + i) not in text:
                        problems.append(text)
                    hvd.allreduce(torch.ones(10))
            threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            for t in threads: t.start()
            for t in threads: t.join()
            print(problems[:3] or "fine", flush=True)
            """
        )
        self.end(p, 0, "fine", "stdout")

    def test_operations_that_cannot_be(self):
        """A descriptor that makes no sense is refused with the reason, before anything is sent; the
        communicator works on."""
        (p,) = self.start(
            """
            from regroup import _library as lib
            from regroup.communicator import endpoint
            at = endpoint("127.0.0.1")
            comm = at.connect(job="j", generation=1, rank=0, world=1, peers=[at.address])
            subset = comm.subset("all", [0])
            library, size, problems = lib.library(), lib.OP_SIZE, []
            def refused(what, handle, op, reason):
                status, text = library.rg_start(handle, op, None), library.rg_last_error().decode()
                if status != lib.INVALID or reason not in text:
                    problems.append((what, status, text))
            refused("no descriptor", comm.handle, None, "no operation")
            refused("another size", comm.handle, lib.Op(size=8, code=lib.BARRIER), "size")
            refused("no code", comm.handle, lib.Op(size=size), "operation 0")
            refused("a code of later", comm.handle, lib.Op(size=size, code=99), "operation 99")
            refused("no handle", 10**6, lib.Op(size=size, code=lib.BARRIER), "is not open")
            refused("a subset without a name", subset.handle, lib.Op(size=size, code=lib.BARRIER), "by name alone")
            refused("a reduce by name", comm.handle, lib.Op(size=size, code=lib.REDUCE, name=b"r"), "operation 3")
            refused("no place for rows", comm.handle, lib.Op(size=size, code=lib.JOIN), "place for its request")
            refused("no type", comm.handle, lib.Op(size=size, code=lib.BROADCAST, recv=1, count=1), "type 0")
            comm.barrier()
            print(problems or "fine", flush=True)
            """
        )
        self.end(p, 0, "fine", "stdout")

    def test_symbols(self):
        """What the library exports is what the header declares."""
        listed = subprocess.run(
            ["nm", "-D", "--defined-only", _library.path()],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        exported = {row.split()[-1] for row in listed.splitlines()}
        header = os.path.join(launch.ROOT, "..", "collective", "cabi", "regroup.h")
        with open(header, encoding="utf-8") as f:
            declared = set(re.findall(r"\b(rg_\w+)\(", re.sub(r"(?s)/\*.*?\*/", "", f.read())))
        self.assertEqual(declared, exported)
        self.assertLessEqual(set(_library._functions), declared)

    def test_many_generations_leave_nothing(self):
        """Communicators come and go; threads and descriptors do not add up."""
        (p,) = self.start(
            """
            from regroup.communicator import endpoint
            at = endpoint("127.0.0.1")
            def use():
                return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            for i in range(60):
                if i == 20:
                    before = use()
                comm = at.connect(job="j", generation=i + 1, rank=0, world=1, peers=[at.address])
                comm.barrier()
                comm.close()
            after = use()
            print("fine" if after[0] <= before[0] + 2 and after[1] <= before[1] + 6 else (before, after), flush=True)
            """
        )
        self.end(p, 0, "fine", "stdout")


if __name__ == "__main__":
    unittest.main()
