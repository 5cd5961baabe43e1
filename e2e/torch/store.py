"""Runs PyTorch's own tests of TCPStore against the store that an agent serves.

    go build -o bin/tcpstore ./e2e/tcpstore
    .tools/torch-2.15.0/bin/python e2e/torch/store.py /path/to/pytorch

test_store.py is taken from a checkout of PyTorch of the version that is installed, or from a folder
that has nothing else. Nothing is fetched. A test makes a store with TCPStore(..., is_master=True),
which serves it in the test's process. Here that starts a fresh store in another process, at the
same port, and makes a client of it. Clients are those of the PyTorch that runs this.

The exit code is 0 if every test passes, except for those of EXCEPTIONS.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import types
import unittest
from typing import Any, Dict, List, Set, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILE = "test_store.py"

if importlib.util.find_spec("expecttest") is None:  # PyTorch's test classes derive from its own
    stub: Any = types.ModuleType("expecttest")
    stub.TestCase, stub.ACCEPT = unittest.TestCase, False
    sys.modules["expecttest"] = stub

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

#: Classes of test_store.py that test TCPStore.
ABOUT = re.compile(r"TCP|MultiThreadedWait|^TimeoutTest|RendezvousEnv|InitPg|^PrefixStoreTest")

#: Tests that need the server in their own process: what the error must say, and the reason.
EXCEPTIONS: Dict[str, Tuple[str, str]] = {
    "test_repr": ("server=<nullptr>", "shows the server of this process, and there is none"),
    "test_store_timeout_on_missing_clients": (
        "DistStoreError not raised",
        "only an object that hosts the server waits for the other clients",
    ),
}


class Servers:
    """The process that serves the stores."""

    def __init__(self, binary: str) -> None:
        self.process = subprocess.Popen(
            [binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ports: Set[int] = set()

    def open(self, port: int) -> int:
        """Opens a new store at a port, or at any if it is 0."""
        assert self.process.stdin and self.process.stdout
        print(port, file=self.process.stdin, flush=True)
        address = self.process.stdout.readline()
        if not address:
            raise SystemExit("the process that serves the stores has ended")
        port = int(address.rpartition(":")[2])
        self.ports.add(port)
        return port

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)


def patch(servers: Servers) -> None:
    """Replaces TCPStore in torch.distributed by one that is always a client, but where the tests
    expect that a port is in use."""
    real = dist.TCPStore

    class Client(type):
        def __instancecheck__(cls, store: Any) -> bool:
            return isinstance(store, real)

        def __call__(
            cls,
            host_name: str,
            port: int,
            world_size: Any = None,
            is_master: bool = False,
            *arguments: Any,
            **options: Any,
        ) -> Any:
            shared = options.pop("multi_tenant", False)
            listening = options.pop("master_listen_fd", None)
            if listening is not None:
                os.close(listening)
            if is_master and (port not in servers.ports or shared):
                is_master = False
                if port not in servers.ports:
                    port = servers.open(port)
            options.update(zip(("timeout", "wait_for_workers"), arguments), is_master=is_master)
            if world_size is not None:
                options["world_size"] = world_size
            return real(host_name, port, **options)

    class TCPStore(metaclass=Client):
        pass

    # torch.distributed.rendezvous is a module, and a function of torch.distributed
    for name in ("torch.distributed", "torch.distributed.rendezvous"):
        setattr(sys.modules[name], "TCPStore", TCPStore)


def load(checkout: str) -> Any:
    path = os.path.join(checkout, "test", "distributed", FILE)
    if not os.path.exists(path):
        path = os.path.join(checkout, FILE)
    spec = importlib.util.spec_from_file_location("test_store", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_store"] = module
    spec.loader.exec_module(module)
    return module


class Results(unittest.TestResult):
    """What came of each test: passed, failed, skipped, excepted."""

    def __init__(self) -> None:
        super().__init__()
        self.came: Dict[str, Tuple[str, str]] = {}

    def note(self, test: Any, came: str, why: str = "") -> None:
        name = ".".join(test.id().split(".")[-2:])
        self.came[name] = (came, why)
        print(f"{name:70} {came:9} {why if came in ('skipped', 'excepted') else ''}".rstrip(), flush=True)

    def fail(self, test: Any, error: Any) -> None:
        says = self._exc_info_to_string(error, test)  # type: ignore[attr-defined]
        expected, reason = EXCEPTIONS.get(test.id().split(".")[-1], ("", ""))
        if expected and expected in says:
            self.note(test, "excepted", reason)
        else:
            self.note(test, "failed", says)

    def addSuccess(self, test: Any) -> None:
        self.note(test, "passed")

    def addError(self, test: Any, err: Any) -> None:
        self.fail(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        self.fail(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.note(test, "skipped", reason)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkout", help="of PyTorch, or a folder with " + FILE)
    parser.add_argument("--server", default=os.path.join(ROOT, "bin", "tcpstore"))
    parser.add_argument("--tests", nargs="*", help="only those whose names contain one of these")
    given = parser.parse_args()
    servers = Servers(given.server)
    patch(servers)
    module = load(given.checkout)
    suite: List[unittest.TestCase] = []
    for name, kind in sorted(vars(module).items()):
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and ABOUT.search(name):
            suite += unittest.defaultTestLoader.loadTestsFromTestCase(kind)  # type: ignore[arg-type]
    if given.tests:
        suite = [t for t in suite if any(part in t.id() for part in given.tests)]
    results = Results()
    for test in suite:
        test.run(results)
    servers.close()
    counts: Dict[str, int] = {}
    for came, _ in results.came.values():
        counts[came] = counts.get(came, 0) + 1
    for name, (came, why) in results.came.items():
        if came == "failed":
            print(f"\n{name}\n{why}")
    print(f"\nPyTorch {torch.__version__}, {len(servers.ports)} stores:", ", ".join(f"{n} {c}" for c, n in sorted(counts.items())))
    return 1 if counts.get("failed") or not counts.get("passed") else 0


if __name__ == "__main__":
    sys.exit(main())
