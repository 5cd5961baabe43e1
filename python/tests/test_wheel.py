"""The wheel: it is built without a network, installs into an environment, and is whole there.

The variable WHEEL names a wheel to test instead of one that is built here.
"""

import glob
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import venv
import zipfile

from . import launch

SOURCES = os.path.dirname(launch.ROOT)
README = os.path.join(SOURCES, "README.md")

#: The PyTorch that runs the tests.
TORCH_FOLDER = os.path.dirname(importlib.util.find_spec("torch").origin)

#: Seconds for one command.
LIMIT = 300

#: Seconds for make, which may have everything to compile.
MAKE_LIMIT = 1800

#: In an environment without torch, from a folder without the sources.
BARE = """
import os, sys, regroup
from regroup import _library
folder = os.path.dirname(regroup.__file__)
assert folder.startswith(sys.prefix), folder
assert _library.path() == os.path.join(folder, "libregroup.so"), _library.path()
assert os.path.exists(os.path.join(folder, "py.typed"))
assert "torch" not in sys.modules
print(_library.library().rg_version().decode())
"""

#: With torch, started by the wheel's own binary.
TORCH = """
import sys, regroup, regroup.torch as hvd, torch, torch.distributed as dist
import regroup.torch.distributed
assert regroup.__file__.startswith(sys.prefix), regroup.__file__
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2, 2, 2]
dist.init_process_group("regroup")
x = torch.ones(3)
dist.all_reduce(x)
print("reduced", x.tolist(), flush=True)
dist.destroy_process_group()
"""


def blocks(language):
    """The blocks of a language in README.md."""
    return re.findall(rf"^```{language}\n(.*?)^```$", content(README), re.MULTILINE | re.DOTALL)


def seen(line):
    """A pattern for a line of output that README.md shows, in which the name of the host, times,
    processes and steps are those of another run, and so are the phases of an incident: those of less than
    a millisecond are not shown."""
    again = "· training again"  # or, if the job's first steps were not stored yet, "started again"
    varying = rf"(\bnode1\b|\(abort[^)]*\)|\b[\d.]+m?s\b|(?<=process )\d+|(?<=step )\d+|{again})"
    patterns = {"node1": r"\S+", again: f"({again}|started again)"}
    parts = re.split(varying, line)
    for i, text in enumerate(parts):
        phases = r"\([^)]+\)" if text.startswith("(abort") else r"[\d.ms]+"
        parts[i] = patterns.get(text, phases) if i % 2 else re.escape(text)
    return "".join(parts)


def checkout(folder):
    """Copies what a fresh checkout would have."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=SOURCES, stdout=subprocess.PIPE, check=True).stdout
    for name in filter(None, os.fsdecode(names).split("\0")):
        if os.path.exists(os.path.join(SOURCES, name)):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copy2(os.path.join(SOURCES, name), os.path.join(folder, name))


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="regroup-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = os.path.realpath(folder.name)
        checkout(cls.folder)
        # The first command of README.md makes the wheel; the others are those of test_readme.
        make, _, cls.commands = blocks("bash")[0].partition("\n")
        dist = os.path.join(cls.folder, "python", "dist")
        if os.environ.get("WHEEL"):
            os.makedirs(dist)
            shutil.copy(os.environ["WHEEL"], dist)
        else:
            env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
            made = subprocess.run(
                ["bash", "-euc", make],
                cwd=cls.folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=MAKE_LIMIT,
            )
            if made.returncode != 0:
                raise AssertionError(f"{make} exits {made.returncode}:\n{made.stdout}")
        (cls.name,) = os.listdir(dist)
        cls.wheel = os.path.join(dist, cls.name)

    def test_content(self):
        self.assertRegex(
            self.name, r"^regroup_elastic-[\d.]+-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl$"
        )
        with zipfile.ZipFile(self.wheel) as z:
            held = set(z.namelist())
            programs = [i for i in z.infolist() if re.search(r"\.data/(scripts/regroup|data/libexec/regroup/mnist)$", i.filename)]
        self.assertEqual([0o755, 0o755], [i.external_attr >> 16 & 0o777 for i in programs], programs)
        for name in ("libregroup.so", "py.typed", "torch/elastic/__init__.py"):
            self.assertIn("regroup/" + name, held)
        roots = {re.sub(r"^regroup_elastic-[\d.]+\.", "", n.partition("/")[0]) for n in held}
        self.assertEqual({"regroup", "data", "dist-info"}, roots)

    def test_readme(self):
        """The first block of README.md in a fresh checkout, with the wheel and nothing else."""
        (script, *_), (shown, *_) = map(blocks, ("python", "text"))
        train = re.search(r"-- python (\S+)$", self.commands, re.MULTILINE)[1]
        self.assertEqual(script, content(os.path.join(self.folder, train)))
        steps = int(re.search(r"while step < (\d+)", script)[1])
        for rank in range(3):  # a job that has already trained most of it
            with open(self.checkpoint(rank), "w", encoding="utf-8") as f:
                f.write(str(steps - 60))
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as f:
            job = subprocess.Popen(
                ["bash", "-euc", self.commands],
                cwd=self.folder,
                env=environment(self.folder),
                start_new_session=True,
                stdout=f,
                stderr=subprocess.STDOUT,
            )
        try:
            output = until(log, r"rank 1 is process (\d+), after step (\d+)\n", job)
            self.assertEqual(str(steps - 60), output[2])
            until(self.checkpoint(1), rf"^(?!{output[2]}$)\d+$", job)  # it has trained a step
            os.kill(int(output[1]), signal.SIGKILL)
            job.wait(timeout=LIMIT)
        finally:
            if job.returncode is None:
                os.killpg(job.pid, signal.SIGTERM)
                job.wait(timeout=LIMIT)
        output = content(log)
        self.assertEqual(0, job.returncode, output)
        for line in shown.splitlines():
            self.assertRegex(output, seen(line))
        trained = [content(self.checkpoint(rank)) for rank in range(3)]
        self.assertEqual([str(steps)] * 3, trained, output)

        home = os.path.join(self.folder, "venv")
        with open(os.path.join(home, "bin", "regroup"), "rb") as f:
            self.assertEqual(b"\x7fELF", f.read(4), "the command must be the binary itself")
        run(home, "pip", "check", cwd=self.folder)
        self.assertIn(
            run(home, "python", "-I", "-c", BARE, cwd=self.folder).strip(),
            run(home, "regroup", "version", cwd=self.folder),
        )
        fail = ("regroup", "run", "--max-restarts", "0", "--", "false")
        failed = run(home, *fail, cwd=self.folder, code=14)
        self.assertIn("exit code 1", failed)

    def checkpoint(self, rank):
        return os.path.join(self.folder, f"checkpoint-{rank}")

    def test_torch(self):
        """With a PyTorch that was there before: the binary starts two workers of the backend."""
        home = os.path.join(self.folder, "with-torch")
        venv.create(home, system_site_packages=True, with_pip=True)
        add = f"import site; site.addsitedir({os.path.dirname(TORCH_FOLDER)!r})\n"
        with open(os.path.join(glob.glob(f"{home}/lib/python*/site-packages")[0], "torch.pth"), "w", encoding="utf-8") as f:
            f.write(add)  # also that of another environment
        run(home, "pip", "install", "-q", self.wheel, cwd=self.folder)
        use = os.path.join(self.folder, "use.py")
        with open(use, "w", encoding="utf-8") as f:
            f.write(TORCH)
        command = ("regroup", "run", "--workers", "2", "--", "python", "-W", "ignore", use)
        output = run(home, *command, cwd=self.folder)
        self.assertEqual(2, output.count("reduced [2.0, 2.0, 2.0]"), output)


def content(path):
    """The text of a file."""
    with open(path, encoding="utf-8") as f:
        return f.read()


def until(path, pattern, job):
    """Waits until the text of a file has a pattern, while a job runs; returns the match."""
    limit = time.monotonic() + LIMIT
    while True:
        found = re.search(pattern, content(path))
        if found:
            return found
        if time.monotonic() > limit or job.poll() is not None:
            raise AssertionError(f"{path} has no {pattern!r}:\n{content(path)}")
        time.sleep(0.01)  # other processes write the file


def environment(folder, *path):
    """The environment of a user whose home is a folder: no sources, no index of packages."""
    env = launch.environment(
        HOME=folder, XDG_STATE_HOME="", NO_COLOR="1", PIP_NO_INDEX="1", PIP_NO_DEPS="1"
    )
    del env["PYTHONPATH"]
    env["PATH"] = os.pathsep.join([*path, os.path.dirname(sys.executable), env["PATH"]])
    return env


def run(home, program, *arguments, cwd, code=0):
    """Runs a program of a virtual environment; returns what it says."""
    path = os.path.join(home, "bin")
    ran = subprocess.run(
        [program, *arguments],
        cwd=cwd,
        env=environment(cwd, path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    if ran.returncode != code:
        raise AssertionError(f"{program} exits {ran.returncode}, not {code}:\n{ran.stdout}")
    return ran.stdout


if __name__ == "__main__":
    unittest.main()
