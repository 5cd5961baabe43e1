"""Runs PyTorch's own tests of several processes, of one file and with one backend, and writes what
came of each. upstream.py starts it.

    BACKEND=gloo WORLD_SIZE=2 python3 e2e/torch/forked.py results.json [--file test_x.py] [--stand-in regroup]

PyTorch's runner starts an interpreter for each rank of each test, which imports torch anew. Here
the ranks are forked from this process, which has imported it and has done nothing else with it.
Everything else is PyTorch's: a process group of its own for each test, in processes of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
import unittest
from typing import Any, Dict, Iterator, List, Optional, Type

os.environ.setdefault("INIT_METHOD", "env://")
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

Tests = common_distributed.MultiProcessTestCase


def prepare(limit: float) -> None:
    """Makes PyTorch's class for tests of several processes fork them, and end each test in time."""
    fork = torch.multiprocessing.get_context("fork").Process
    Tests._spawn_processes = lambda self: self._start_processes(fork)
    common_distributed.get_timeout = lambda _: limit
    ended = Tests.tearDown

    def end(self: Any) -> None:
        processes = getattr(self, "processes", [])
        ended(self)
        for process in processes:
            process.kill()
            process.join()

    Tests.tearDown = end


def like_gloo(backend: str) -> None:
    """Tells PyTorch's tests that a backend which they do not know can do what gloo can."""
    for known in common_distributed.DistTestCases.backend_feature.values():
        if "gloo" in known:
            known.add(backend)
    common_distributed.DistTestCases.backend_feature.setdefault("plugin", set()).add(backend)
    if not hasattr(dist.Backend, "_ensure_backend_registered"):  # has no entry points
        import regroup.torch.distributed  # noqa: F401
    available = getattr(dist, "is_backend_available", lambda name: hasattr(dist.Backend, name.upper()))
    if not available(backend):
        raise SystemExit(f"torch.distributed has no backend {backend!r}")


def stand_in(backend: str) -> None:
    """Gives who asks for gloo another backend, for tests that ask for gloo by its name."""
    for name in ("init_process_group", "new_group"):
        make = getattr(dist, name)

        def made(*arguments: Any, make: Any = make, **options: Any) -> Any:
            given = [backend if a == "gloo" else a for a in arguments]
            if options.get("backend") == "gloo":
                options["backend"] = backend
            return make(*given, **options)

        setattr(dist, name, made)


def of_wheel() -> Type[unittest.TestCase]:
    """The tests that the wheel of PyTorch has."""
    from torch.testing._internal.distributed import distributed_test

    def set_up(self: Any) -> None:
        distributed_test.TestDistBackend.setUp(self)
        self._spawn_processes()

    bases = (distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase)
    return type("Wheel", bases, {"setUp": set_up})


def of_file(path: str) -> Any:
    """The tests of a file."""
    spec = importlib.util.spec_from_file_location("upstream_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tests_in(suite: Any) -> Iterator[unittest.TestCase]:
    """The tests of a suite of suites."""
    for test in suite:
        if isinstance(test, unittest.TestCase):
            yield test
        else:
            yield from tests_in(test)


def run(test: unittest.TestCase, limit: float) -> Dict[str, Any]:
    """Runs a test, with what it prints in a file: what came of it, and why."""
    begin = time.monotonic()
    result = unittest.TestResult()
    with tempfile.TemporaryFile(mode="w+b") as said:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = [os.dup(1), os.dup(2)]
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            test.run(result)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])
        said.seek(0)
        text = said.read().decode(errors="replace")
    seconds = time.monotonic() - begin
    wrong = [trace for _, trace in result.failures + result.errors]
    if wrong:
        came = "limit" if seconds >= limit else "failed"
        return {"came": came, "why": "\n".join(wrong), "said": text[-20000:], "seconds": seconds}
    if result.skipped:
        return {"came": "skipped", "why": result.skipped[0][1], "seconds": seconds}
    return {"came": "passed", "seconds": seconds}


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs them; the exit code is 0 whatever comes of the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="file to write: a JSON object of what came of each test")
    parser.add_argument("--file", help="file of tests; default: distributed_test.py of the wheel")
    parser.add_argument("--tests", nargs="*", help="only those of these names")
    parser.add_argument("--stand-in", default="", help="backend that whoever asks for gloo gets")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a test may take")
    given = parser.parse_args(arguments)
    prepare(given.limit)
    if given.stand_in:
        like_gloo(given.stand_in)
        stand_in(given.stand_in)
    elif os.environ["BACKEND"] != "gloo":
        like_gloo(os.environ["BACKEND"])
    load = unittest.defaultTestLoader
    if given.file:
        suite = load.loadTestsFromModule(of_file(given.file))
    else:
        suite = load.loadTestsFromTestCase(of_wheel())
    done: Dict[str, Any] = {}
    for test in tests_in(suite):
        name = f"{type(test).__name__}.{test._testMethodName}"
        if given.tests is not None and test._testMethodName not in given.tests:
            continue
        done[name] = run(test, given.limit)
        print(f"{name} {done[name]['came']} {done[name]['seconds']:.1f}", flush=True)
        with open(given.results + ".new", "w", encoding="utf-8") as f:
            json.dump(done, f, indent=1)
        os.replace(given.results + ".new", given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
