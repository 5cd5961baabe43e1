"""Runs Horovod's own tests of its operations for PyTorch on Regroup, from a checkout of Horovod that it is given.

    .tools/torch-2.15.0/bin/python e2e/horovod/operations.py /path/to/horovod

Only the line that imports horovod.torch is changed, in a copy. Nothing is fetched. It needs pytest, numpy, psutil, mock
and cloudpickle, which the tests import.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from typing import Dict, List

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

from tests import launch  # noqa: E402

TEST = "test/parallel/test_torch.py"

#: Tests that cannot pass with so many ranks, in Horovod neither: they want three times a float16, which is none.
IMPOSSIBLE: Dict[int, List[str]] = {
    3: [
        "test_horovod_allreduce_prescale",
        "test_horovod_grouped_reducescatter_prescale",
        "test_horovod_reducescatter_prescale",
    ]
}

#: Tests that cannot pass with a PyTorch that has the optimizer Muon, which they give parameters of one dimension.
OF_EVERY_OPTIMIZER = ["test_broadcast_state", "test_broadcast_state_options", "test_force_allreduce"]

#: Leaves tests out by their whole names: --deselect takes beginnings.
CONFTEST = """
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[i for i in items if i.name in {left_out}])
    items[:] = [i for i in items if i.name not in {left_out}]
"""


def run(checkout: str, ranks: int, only: str) -> bool:
    """The tests in a world of so many ranks. A line is printed for what each rank counts, and all of it if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(checkout, TEST), encoding="utf-8") as f:
            text, n = re.subn(r"^import horovod\.torch as hvd$", "import regroup.torch as hvd", f.read(), flags=re.M)
        if n != 1:
            raise SystemExit(f"{TEST} does not import horovod.torch: is {checkout} a checkout of Horovod?")
        with open(os.path.join(folder, "test_torch.py"), "w", encoding="utf-8") as f:
            f.write(text)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "test_torch.py"]
        left_out = IMPOSSIBLE.get(ranks, []) + (OF_EVERY_OPTIMIZER if hasattr(torch.optim, "Muon") else [])
        with open(os.path.join(folder, "conftest.py"), "w", encoding="utf-8") as f:
            f.write(CONFTEST.format(left_out=left_out))
        if only:
            command += ["-k", only]
        processes = []
        for rank, env in enumerate(launch.ranks(ranks)):
            env["PYTHONPATH"] += os.pathsep + os.path.join(checkout, "test/utils") + os.pathsep + checkout
            env.update(HOROVOD_RANK=str(rank), HOROVOD_SIZE=str(ranks), PYTHONDONTWRITEBYTECODE="1")
            processes.append(
                subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        said = [p.communicate()[0] for p in processes]
    good = all(p.returncode == 0 for p in processes)
    for rank, (p, text) in enumerate(zip(processes, said)):
        print(f"{ranks} ranks, rank {rank}: {text.strip().splitlines()[-1].strip('= ')}")
        if not good:
            print(text)
    return good


def main() -> int:
    """Runs them; the exit code is 0 if all pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="folder of a checkout of Horovod")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4], help="worlds in which they run")
    parser.add_argument("-k", default="", dest="only", help="only tests of these names, as pytest has it")
    given = parser.parse_args()
    return 0 if all([run(os.path.abspath(given.checkout), n, given.only) for n in given.ranks]) else 1


if __name__ == "__main__":
    sys.exit(main())
