"""Runs Horovod's own elastic test and its main elastic example on Regroup, from a checkout of Horovod that it is given.

    REGROUP_BINARY=bin/regroup .tools/torch-2.15.0/bin/python e2e/horovod/elastic.py /path/to/horovod

Only the lines that import horovod are changed, in copies. Nothing is fetched. The example reads images that are made here, by a stand-in for
torchvision where that is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from typing import Iterator, List, Optional

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

from tests import digits, launch  # noqa: E402
from tests.jobs import Job  # noqa: E402
from tests.nodes import Nodes  # noqa: E402

TEST = "test/single/test_torch_elastic.py"
EXAMPLE = "examples/elastic/pytorch/pytorch_mnist_elastic.py"
STANDIN = os.path.join(ROOT, "python", "tests", "standin")


def ported(checkout: str, path: str, folder: str) -> str:
    """A copy of a file with its imports changed."""
    with open(os.path.join(checkout, path), encoding="utf-8") as f:
        text = f.read()
    changed, n = re.subn(r"^(import|from) horovod\b", r"\1 regroup", text, flags=re.MULTILINE)
    if n == 0:
        raise SystemExit(f"{path} does not import horovod: is {checkout} a checkout of it?")
    to = os.path.join(folder, os.path.basename(path))
    with open(to, "w", encoding="utf-8") as f:
        f.write(changed)
    return to


def test(checkout: str) -> bool:
    """test_torch_elastic.py, in one process as Horovod runs it."""
    with tempfile.TemporaryDirectory() as folder:
        file = ported(checkout, TEST, folder)
        name = os.path.basename(file).removesuffix(".py")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "unittest", "-v", name], cwd=folder, env=launch.environment()
        )
    return done.returncode == 0


def child(of: int) -> int:
    """The newest process that a process has started."""
    children = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it is no process, or has just ended
            with open(f"/proc/{name}/stat", encoding="utf-8") as f:
                if int(f.read().rpartition(")")[2].split()[1]) == of:
                    children.append(int(name))
    return max(children)


@contextlib.contextmanager
def ready(checkout: str) -> Iterator[List[str]]:
    """The command line of the example, with its data."""
    with tempfile.TemporaryDirectory() as folder:
        digits.make(folder, 1920, 200)
        yield [sys.executable, "-W", "ignore", ported(checkout, EXAMPLE, folder), "--epochs", "6", "--data-dir", folder]


def example(checkout: str, what: str, workers: str, server: Optional[str] = None, kill: bool = False) -> bool:
    """The example once."""
    with ready(checkout) as command, tempfile.TemporaryDirectory() as home:
        paths = os.pathsep.join((os.path.join(ROOT, "python"), STANDIN))
        env = {"PYTHONPATH": paths, "HOME": home}
        with Job("--recovery", "in-process", "--workers", workers, "--", *command, env=env, server=server) as job:
            if kill:
                job.until(r"Train Epoch: 1 \[0")
                os.kill(child(job.process.pid), signal.SIGKILL)
            job.wait()
            sizes = [g["world"] for g in job.summary.get("generations", [])]
            ended = re.findall(r"Test set: Average loss: [\d.]+, Accuracy: [\d.]+%", job.output)
            good = job.summary.get("outcome") == "succeeded" and len(ended) == 1 and (not kill or len(sizes) > 1)
            print(f"{what}: {'ok' if good else 'FAILED'}, generations of {sizes}, {ended}")
            if not good:
                print(job.output)
    return good


def main() -> int:
    """Runs all of it; the exit code is 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="folder of a checkout of Horovod")
    checkout = parser.parse_args().checkout
    results = [test(checkout)]
    results.append(example(checkout, "the example on one node", "2"))
    results.append(example(checkout, "the example with a kill, both needed", "2:2", kill=True))
    results.append(example(checkout, "the example with a kill, one is enough", "1:2", kill=True))
    with Nodes(a=1, b=1) as nodes:
        results.append(example(checkout, "the example on two nodes", "2", server=nodes.server))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
