"""Runs PyTorch's own tests of torch.distributed on a backend and on gloo, and compares.

    .tools/torch-2.15.0/bin/python e2e/torch/upstream.py [/path/to/pytorch]

distributed_test.py is in PyTorch's wheel. test_c10d_fault_tolerance.py is not: it is run if a
checkout of PyTorch is given, or a folder with the file, with one line added in a copy, which names
the backend. Nothing is fetched.

The tests of the wheel that ask for gloo by its name are skipped for another backend. Those that
gloo passes are run once more, with the backend in gloo's place. The exit code is 0 if no test fails
that gloo passes, except for those of EXCEPTIONS.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FORKED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forked.py")
FAULT_TOLERANCE = "test_c10d_fault_tolerance.py"

Results = Dict[str, Dict[str, Any]]

_BY_NAME = (
    "only implemented for GLOO backend",
    "this torch refuses dist.monitored_barrier by the name of the backend; the group has it",
)

#: Tests that gloo passes and another backend need not: what the error must say, and the reason.
EXCEPTIONS: Dict[str, Tuple[str, str]] = {
    "test_monitored_barrier_failure_order": _BY_NAME,
    "test_monitored_barrier_gloo": _BY_NAME,
    "test_monitored_barrier_gloo_subgroup": _BY_NAME,
    "test_monitored_barrier_wait_all_ranks": _BY_NAME,
}


def install(folder: str) -> None:
    """Puts a copy of the package into a folder, so that it may be changed during a run, with the
    metadata by which torch finds the backend."""
    shutil.copytree(
        os.path.join(ROOT, "python", "regroup"),
        os.path.join(folder, "regroup"),
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    about = os.path.join(folder, "regroup_elastic-0.0.dist-info")
    os.mkdir(about)
    with open(os.path.join(about, "METADATA"), "w", encoding="utf-8") as f:
        f.write("Metadata-Version: 2.1\nName: regroup-elastic\nVersion: 0.0\n")
    with open(os.path.join(about, "entry_points.txt"), "w", encoding="utf-8") as f:
        f.write("[torch.distributed.backends]\nregroup = regroup.torch.distributed:register\n")
        f.write("[torchrun.handlers]\nregroup = regroup.rendezvous_handler:get\n")


def forked(folder: str, backend: str, world: int, given: Any, *more: str) -> Results:
    """Runs forked.py with the package that is in a folder."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REGROUP_", "RANK", "MASTER"))}
    env.update(
        BACKEND=backend,
        WORLD_SIZE=str(world),
        PYTHONPATH=folder,
        PYTHONDONTWRITEBYTECODE="1",
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
    )
    file = os.path.join(folder, "results.json")
    command = [sys.executable, "-W", "ignore", FORKED, file, "--limit", str(given.limit)]
    subprocess.run([*command, *more], env=env, cwd=folder, check=True)
    with open(file, encoding="utf-8") as f:
        return json.load(f)


def wheel(folder: str, world: int, given: Any) -> Dict[str, List[Dict[str, Any]]]:
    """The tests of distributed_test.py: what came of each on gloo and on the backend."""
    only = ["--tests", *given.tests] if given.tests else []
    kept = given.gloo and not given.tests and os.path.join(given.gloo, f"gloo-{world}.json")
    if kept and os.path.exists(kept):
        with open(kept, encoding="utf-8") as f:
            gloo = json.load(f)
    else:
        print(f"gloo, {world} ranks", flush=True)
        gloo = forked(folder, "gloo", world, given, *only)
        if kept:
            with open(kept, "w", encoding="utf-8") as f:
                json.dump(gloo, f)
    print(f"{given.backend}, {world} ranks", flush=True)
    ours = forked(folder, given.backend, world, given, *only)
    skipped = [name for name in ours if ours[name]["came"] == "skipped"]
    by_name = [name for name in skipped if gloo[name]["came"] not in ("skipped", "failed")]
    if by_name:
        print(f"{given.backend} in gloo's place, {world} ranks", flush=True)
        names = [name.split(".")[1] for name in by_name]
        again = forked(folder, "gloo", world, given, "--stand-in", given.backend, "--tests", *names)
        for name, result in again.items():
            ours[name] = {**result, "note": "in gloo's place"}
    return {name.split(".")[1]: [gloo[name], ours[name]] for name in ours}


def fault_tolerance(folder: str, checkout: str, given: Any) -> Dict[str, List[Dict[str, Any]]]:
    """The tests of test_c10d_fault_tolerance.py, likewise. They choose their world themselves."""
    path = os.path.join(checkout, "test", "distributed", FAULT_TOLERANCE)
    if not os.path.exists(path):
        path = os.path.join(checkout, FAULT_TOLERANCE)
    with open(path, encoding="utf-8") as f:
        line = r'^( *)\("gloo", "cpu"\),\n'
        text, n = re.subn(line, rf'\g<0>\1("{given.backend}", "cpu"),\n', f.read(), flags=re.M)
    if n != 1:
        raise SystemExit(f"{path} has no list of backends with gloo in it")
    copy = os.path.join(folder, "fault_tolerance.py")
    with open(copy, "w", encoding="utf-8") as f:
        f.write(text)
    print(FAULT_TOLERANCE, flush=True)
    done = forked(folder, given.backend, 3, given, "--file", copy)
    results = {}
    for name, result in done.items():
        kind, test = name.split(".")
        ours = f"{given.backend.capitalize()}FaultToleranceTest"
        if kind == ours:
            results[test] = [done[f"GlooFaultToleranceTest.{test}"], result]
    return results


def table(title: str, results: Dict[str, List[Dict[str, Any]]], backend: str) -> List[str]:
    """Prints what came of each test, and returns those that only gloo passes."""
    width = max(map(len, results), default=0)
    print(f"\n{title}\n{'':{width}}  {'gloo':8} {backend}")
    counts: Dict[str, int] = {}
    worse = []
    for name, (gloo, ours) in sorted(results.items()):
        note = ours.get("note", "")
        if gloo["came"] == "passed" and ours["came"] != "passed":
            says, reason = EXCEPTIONS.get(name, ("", ""))
            excepted = bool(says) and says in ours.get("why", "")
            note = reason if excepted else "WORSE"
            if not excepted:
                worse.append(name)
        print(f"{name:{width}}  {gloo['came']:8} {ours['came']:8} {note}".rstrip())
        both = f"gloo {gloo['came']}, {backend} {ours['came']}"
        counts[both] = counts.get(both, 0) + 1
    print(f"{len(results)} tests: " + "; ".join(f"{both}: {n}" for both, n in sorted(counts.items())))
    for name in worse:
        print(f"\n{name}\n{results[name][1].get('why', '')}\n{results[name][1].get('said', '')}")
    return worse


def main() -> int:
    """Runs them; the exit code is 0 if the backend passes what gloo passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", help=f"checkout of PyTorch, or a folder with {FAULT_TOLERANCE}")
    parser.add_argument("--backend", default="regroup")
    parser.add_argument("--world", type=int, nargs="*", default=[2, 3], help="worlds for distributed_test.py")
    parser.add_argument("--tests", nargs="*", help="only these of distributed_test.py")
    parser.add_argument("--gloo", help="folder for all of gloo's results, which are taken from there if they exist")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a test may take")
    given = parser.parse_args()
    worse = []
    with tempfile.TemporaryDirectory() as folder:
        install(folder)
        if given.checkout:
            results = fault_tolerance(folder, os.path.abspath(given.checkout), given)
            worse += table(FAULT_TOLERANCE, results, given.backend)
        for world in given.world:
            title = f"distributed_test.py, {world} ranks"
            worse += table(title, wheel(folder, world, given), given.backend)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
