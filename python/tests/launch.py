"""Starts the ranks of a test: processes with torchrun's environment that run all cases of a module.

They are forked from a server that has imported PyTorch, and what PyTorch imports when the first optimizer is made,
which takes five seconds of a processor.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import traceback
import unittest
from typing import Dict, List
from unittest import mock

#: Where tests/ and regroup/ are.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: Seconds after which a rank says where it hangs, and ends.
PATIENCE = int(os.environ.get("PATIENCE", "300"))

os.environ["OMP_NUM_THREADS"] = "1"  # PyTorch reads it when it is imported
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["torch", "torch._dynamo", "torch.distributed.fsdp"])


def alone(case: unittest.TestCase) -> None:
    """Initialises the library in this process without a job, for one test."""
    import regroup.torch as hvd  # not where this file alone is used

    environment = mock.patch.dict(os.environ)
    environment.start()
    case.addCleanup(environment.stop)
    for name in ("RANK", "WORLD_SIZE", "REGROUP_SOCKET"):
        os.environ.pop(name, None)
    hvd.init()
    case.addCleanup(hvd.shutdown)


def free_port() -> int:
    """A port that nobody listens on, and that no connection is given: the system chooses those of
    connections, and of listeners that name none, above it."""
    while True:
        port = random.randint(10000, 32767)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def environment(**more: str) -> Dict[str, str]:
    """The environment of a process of a test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REGROUP_", "RANK", "WORLD"))}
    env.update(PYTHONPATH=ROOT, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONUNBUFFERED="1", REGROUP_AGENT_CHECKPOINT_FREE="0")
    env.update(more)
    return env


def ranks(world: int, **more: str) -> List[Dict[str, str]]:
    """The environments of the ranks of one machine."""
    port = str(free_port())
    return [
        environment(
            RANK=str(r),
            WORLD_SIZE=str(world),
            LOCAL_RANK=str(r),
            LOCAL_WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            **more,
        )
        for r in range(world)
    ]


def ended(processes: List[subprocess.Popen]) -> List[str]:
    """Waits for processes, which end by their own patience; returns what they say, and leaves none
    of them behind."""
    try:
        return [p.communicate(timeout=PATIENCE + 30)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
            p.communicate()


def run_cases(module: str, world: int, **more: str) -> Dict[str, List[str]]:
    """Runs a module's cases; returns what went wrong in each, by its name. Cases run in order, on
    all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            server.Process(target=run_rank, args=(module, os.path.join(folder, str(r)), env))
            for r, env in enumerate(ranks(world, **more))
        ]
        for p in processes:
            p.start()
        try:
            for p in processes:
                p.join(PATIENCE + 30)
        finally:
            for p in processes:
                p.kill()
                p.join()
        results: Dict[str, List[str]] = {name: [] for name in case_names(module)}
        for r, p in enumerate(processes):
            done, inapplicable = {}, {}
            if os.path.exists(os.path.join(folder, str(r))):
                with open(os.path.join(folder, str(r)), encoding="utf-8") as f:
                    done, inapplicable = json.load(f)
            for name, why in inapplicable.items() if r == 0 else ():
                print(f"{module}.{name}, {world} ranks: not applicable, {why}", file=sys.stderr)
            for name, problem in done.items():
                if problem:
                    results[name].append(f"rank {r} of {world}: {problem}")
            left = [name for name in results if name not in done]
            if left and not any(done.values()):  # it was killed, or hangs
                output = ""
                if os.path.exists(os.path.join(folder, f"{r}.output")):
                    with open(os.path.join(folder, f"{r}.output"), encoding="utf-8") as f:
                        output = f.read()
                results[left[0]].append(
                    f"rank {r} of {world} has not ended it, and exits {p.exitcode}:\n{output}"
                )
        return results


def case_names(module: str) -> List[str]:
    """The names of a module's cases, found without importing it."""
    path = os.path.join(ROOT, *module.split(".")) + ".py"
    with open(path, encoding="utf-8") as f:
        return [
            line.split("(")[0][len("def ") :]
            for line in f
            if line.startswith("def case_") and "(" in line
        ]


def run_rank(module: str, file: str, env: Dict[str, str]) -> None:
    """Runs the cases of a module as one rank, whose output is in file.output. The first that fails
    ends it: ranks would no longer fit together. A module's not_applicable(name) may say why a case
    cannot be run with the installed torch, which is printed."""
    import faulthandler

    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    output = os.open(file + ".output", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout.reconfigure(line_buffering=True)  # so that a rank that hangs leaves what it has printed
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    prepared = None
    if os.environ.get("PREPARE"):
        prepared = importlib.import_module(os.environ["PREPARE"])
    loaded = importlib.import_module(module)
    not_applicable = getattr(loaded, "not_applicable", lambda name: "")
    done: Dict[str, str] = {}
    inapplicable: Dict[str, str] = {}
    for name in case_names(module):
        try:
            why = not_applicable(name)
            if why:
                inapplicable[name] = why
            else:
                getattr(loaded, name)()
            done[name] = ""
            if prepared is not None and name == case_names(module)[-1]:
                prepared.check()
        except BaseException:
            done[name] = traceback.format_exc()
        with open(file + ".new", "w", encoding="utf-8") as f:
            json.dump([done, inapplicable], f)
        os.replace(file + ".new", file)
        if done[name]:
            break
    sys.stdout.flush()
    os._exit(1 if any(done.values()) else 0)  # the others may be stuck in what this rank has left


def check(test, module: str, world: int, **more: str) -> None:
    """Runs a module's cases as sub-tests."""
    for name, problems in run_cases(module, world, **more).items():
        with test.subTest(case=name, world=world, **more):
            if problems:
                test.fail("\n".join(problems))
