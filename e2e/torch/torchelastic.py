"""Runs PyTorch's own tests of torchelastic on Regroup and on its own rendezvous, and compares.

    .tools/torch-2.15.0/bin/python e2e/torch/torchelastic.py /path/to/pytorch

The files are taken from a checkout of PyTorch, or from a folder that has its test/distributed, such
as the source package of a distribution. Nothing is fetched. They are not changed; what they would
run otherwise is put in its place:

    launcher/test_run.py                   torchrun's main: `regroup torchrun` with the same arguments
    launcher/api_test.py, elastic/agent/server/test/local_elastic_agent_test.py
                                           the agent of PyTorch stays, with the rendezvous regroup

Tests that are there three times, for c10d and two versions of etcd, are run as often: each is the
same test of Regroup then. etcd itself is not needed.

The exit code is 0 if every test passes that passes on c10d, except for those of EXCEPTIONS.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, Iterator, List, Tuple
from unittest import mock

import upstream

FILES = (
    "launcher/test_run.py",
    "launcher/api_test.py",
    "elastic/agent/server/test/local_elastic_agent_test.py",
)

#: Names the rendezvous that stands for etcd's, in processes that a test spawns.
STAND_IN = "TEST_STAND_IN"

#: Tests that have nothing of Regroup in them, by a part of their name, and why.
NOT_APPLICABLE: Dict[str, str] = {
    "test_run.ElasticLaunchTest.test_launch_elastic_agent_raise_exception": "puts a mock in the place of PyTorch's agent, which is not used",
    "test_run.ElasticLaunchTest.test_launch_elastic_worker_raise_exception": "counts calls of PyTorch's log of events",
    "test_run.ElasticLaunchTest.test_launch_shutdown": "puts a mock in the place of PyTorch's agent, which is not used",
    "test_run.ElasticLaunchTest.test_nproc_gpu_launch_configurations": "has this process believe that there are three GPUs",
    "test_run.ElasticLaunchTest.test_min_max_nodes_parse": "is about a function of torchrun alone",
    "test_run.ElasticLaunchTest.test_is_not_torchelastic_launched": "starts no launcher",
    "api_test.ElasticLaunchTest.test_get_entrypoint_name": "is about a function of PyTorch alone",
    "api_test.ElasticLaunchTest.test_launch_dist_sum_with_static_rdzv": "asks for the static rendezvous of PyTorch",
}

#: Tests that c10d passes and Regroup need not: what the error must say, and the reason.
EXCEPTIONS: Dict[str, Tuple[str, str]] = {
    "test_logs_logs_spec_entrypoint_must_be_defined": (
        "with open(args.out_file",
        "--logs-specs is accepted with a note, since no Python code runs in this launcher: the script is run, and dies of its arguments",
    ),
}


def free_endpoint() -> str:
    """An address that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"localhost:{s.getsockname()[1]}"


class NoEtcd:
    """Stands for the server of etcd. Each test gets an address of its own."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    get_endpoint = staticmethod(free_endpoint)


def regroup_torchrun(arguments: Any = None) -> None:
    """torchrun's main, by the binary: its errors are those that torchrun raises."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    command = [os.environ["REGROUP_BINARY"], "torchrun", *(arguments or sys.argv[1:])]
    env = {**os.environ, "PYTHON_EXEC": sys.executable}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if done.returncode == 2:
        raise ValueError(done.stderr)
    if done.returncode != 0:
        failure = ProcessFailure(local_rank=0, pid=0, exitcode=done.returncode, error_file="")
        raise ChildFailedError(" ".join(command), {0: failure})


def replaced(module: Any, backend: str) -> Iterator[Any]:
    """What is put in the place of something else, for a module of tests."""
    if backend == "regroup" and hasattr(module, "launch"):
        yield mock.patch.object(module.launch, "main", regroup_torchrun)
    if hasattr(module, "EtcdServer"):
        yield mock.patch.object(module, "EtcdServer", NoEtcd)
    if hasattr(module, "LocalElasticAgentTest"):

        def run(self: Any, backend: str = backend, test_to_run: Any = None, **_: Any) -> None:
            self._backend, self._endpoint = given, free_endpoint()
            test_to_run()

        given = backend
        yield mock.patch.object(module.LocalElasticAgentTest, "run_test_with_backend", run)


def stand_in(backend: str) -> None:
    """Gives who asks for etcd another rendezvous."""
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry

    def create(params: Any) -> Any:
        params.backend = backend
        return registry.create_handler(params)

    for name in ("etcd", "etcd-v2"):
        registry._registry[name] = create


def load(path: str) -> Any:
    """Imports a file of tests under its name, so that processes that it spawns find it."""
    sys.path.insert(0, os.path.dirname(path))
    return __import__(os.path.basename(path)[: -len(".py")])


def names(path: str) -> List[str]:
    """The tests of a file."""
    found: List[str] = []
    for suite in unittest.defaultTestLoader.loadTestsFromModule(load(path)):
        found += [test.id() for test in suite]  # type: ignore[union-attr]
    return found


def run_one(path: str, name: str, backend: str) -> int:
    """Runs a test in this process."""
    multiprocessing.set_start_method("fork", force=True)
    os.environ[STAND_IN] = backend  # for processes that the test spawns
    stand_in(backend)
    module = load(path)
    with contextlib.ExitStack() as stack:
        for patch in replaced(module, backend):
            stack.enter_context(patch)
        test = unittest.defaultTestLoader.loadTestsFromName(name.partition(".")[2], module)
        result = unittest.TextTestRunner(verbosity=0).run(test)
    if result.skipped:
        print(f"SKIPPED {result.skipped[0][1]}")
    return 0 if result.wasSuccessful() else 1


def came(path: str, name: str, backend: str, folder: str, limit: float) -> Dict[str, str]:
    """Runs a test in a process of its own, and says what came of it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REGROUP_", "RANK", "MASTER"))}
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        env.update(
            PYTHONPATH=folder,
            REGROUP_BINARY=os.environ["REGROUP_BINARY"],
            TMPDIR=temporary,
            XDG_STATE_HOME=temporary,
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="lo",
        )
        command = [sys.executable, "-W", "ignore", __file__, "--one", path, name, backend]
        with open(os.path.join(temporary, "said"), "w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                command, env=env, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                code: Any = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = f"has not ended within {limit:g} s"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            said.seek(0)
            text = said.read()
    result = {"came": "failed", "why": f"{text[-4000:]}\n{code}"}
    if code == 0:
        result = {"came": "skipped" if "SKIPPED" in text else "passed", "why": ""}
    print(f"{backend}: {result['came']}: {name}", file=sys.stderr, flush=True)
    return result


def main() -> int:
    """Runs them; the exit code is 0 if Regroup passes what c10d passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="checkout of PyTorch, or its source package")
    parser.add_argument("--tests", nargs="*", help="only those with one of these in their name")
    parser.add_argument("--once", action="store_true", help="run a test for one of c10d and the two of etcd")
    parser.add_argument("--alone", action="store_true", help="do not run them on c10d")
    parser.add_argument("--c10d", help="file for the results of c10d, which are taken from there if it exists")
    parser.add_argument("--at-once", type=int, default=2, help="tests that run beside each other")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a test may take")
    given = parser.parse_args()
    os.environ.setdefault("REGROUP_BINARY", os.path.join(upstream.ROOT, "bin", "regroup"))
    kept: Dict[str, Dict[str, str]] = {}
    if given.c10d and os.path.exists(given.c10d):
        with open(given.c10d, encoding="utf-8") as f:
            kept = json.load(f)
    tests: List[Tuple[str, str]] = []
    seen = set()
    for file in FILES:
        path = os.path.join(os.path.abspath(given.checkout), "test", "distributed", file)
        for name in names(path):
            kind = re.sub(r"_(c10d|etcd|etcd_v2)$", "", name)
            if given.once and kind in seen:
                continue
            seen.add(kind)
            if not given.tests or any(part in name for part in given.tests):
                tests.append((path, name))
    with tempfile.TemporaryDirectory() as folder:
        upstream.install(folder)
        with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
            ours = [pool.submit(came, *test, "regroup", folder, given.limit) for test in tests]
            stock = {
                name: pool.submit(came, path, name, "c10d", folder, given.limit)
                for path, name in tests
                if name not in kept and not given.alone
            }
            kept.update({name: future.result() for name, future in stock.items()})
            unknown = {"came": "-", "why": ""}
            results = {test[1]: [kept.get(test[1], unknown), f.result()] for test, f in zip(tests, ours)}
    if given.c10d and not given.alone:
        with open(given.c10d, "w", encoding="utf-8") as f:
            json.dump(kept, f)
    return report(results)


def report(results: Dict[str, List[Dict[str, str]]]) -> int:
    """Prints what came of each test."""
    width = max(map(len, results), default=0)
    worse, applicable, passed = [], 0, 0
    for name, (stock, ours) in results.items():
        why = next((why for part, why in NOT_APPLICABLE.items() if part in name), "")
        says, reason = EXCEPTIONS.get(name.rpartition(".")[2], ("", ""))
        note = f"not applicable: {why}" if why else ""
        if not why:
            applicable += 1
            passed += ours["came"] == "passed"
        if not why and stock["came"] != "failed" and ours["came"] != "passed":
            excepted = bool(says) and says in ours["why"]
            note = reason if excepted else "WORSE"
            if not excepted:
                worse.append(name)
        print(f"{name:{width}}  {stock['came']:8} {ours['came']:8} {note}".rstrip())
    for name in worse:
        print(f"\n{name}\n{results[name][1]['why']}")
    print(f"{len(results)} tests, {applicable} of them applicable: {passed} pass; {len(worse)} only on c10d")
    return 1 if worse else 0


if __name__ == "__mp_main__" and os.environ.get(STAND_IN):
    stand_in(os.environ[STAND_IN])

if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.exit(run_one(*sys.argv[2:5]))
    sys.exit(main())
