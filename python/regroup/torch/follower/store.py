"""The store of a group whose members change: a connection to another server in each generation."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch.distributed as dist

from ..._tcpstore import tcp_store
from ...errors import RegroupError

#: How long a server that does not answer is dialed.
CONNECT = timedelta(seconds=30)

#: After which time a client asks again whether the server's process has died.
_ATTEMPT = timedelta(seconds=1)

#: The bounds of the wait between two questions whether a key is there, in seconds.
_SHORTEST, _LONGEST = 0.0002, 0.005


def serve() -> Tuple[Callable[[], dist.Store], str]:
    """Starts a store's server on the address that peers reach this process at, in a thread: often
    nobody needs it, and starting takes a millisecond. It ends with the store. Returns what waits for
    the store, and where the server is, host:port."""
    host = os.environ.get("REGROUP_ADVERTISE") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(1024)
    except OSError as e:
        listener.close()
        raise RegroupError(f"no store can be served at REGROUP_ADVERTISE={host}: {e}") from e
    port = listener.getsockname()[1]
    options = {"is_master": True, "master_listen_fd": listener.detach()}
    started: Future = Future()

    def start() -> None:
        try:
            started.set_result(tcp_store(host, port, **options))
        except Exception as e:
            started.set_exception(RegroupError(f"the store has not started: {e}"))

    threading.Thread(target=start, name="regroup-store", daemon=True).start()
    return started.result, f"{host}:{port}"


def connect(address: str, failed: Callable[[], Optional[Exception]]) -> dist.Store:
    """Connects to another process's server. Raises RegroupError if nothing answers there, and failed
    says that the generation has failed, or CONNECT has passed: torch tries it again and again."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + CONNECT.total_seconds()
    while True:
        try:
            store = tcp_store(host, int(port), is_master=False, timeout=_ATTEMPT)
        except RuntimeError as e:
            error = failed()
            if error is not None or time.monotonic() >= end:
                raise RegroupError(f"no store answers at {address}: {error or e}") from e
        else:
            store.set_timeout(CONNECT)  # of its operations
            return store


class GenerationStore(dist.Store):
    """What a group is given as its store. It belongs to no server for good: each generation has one
    of its own, in rank 0, because no process lives as long as the job.

    A process that waits for a key gets an error when the generation has failed, which a process that has
    died will not set it in.
    """

    def __init__(self) -> None:
        super().__init__()
        self._used: Optional[dist.Store] = dist.HashStore()
        self._own: Optional[Callable[[], dist.Store]] = None  # waits for that of this process
        self._address = ""
        self._failed: Callable[[], Optional[Exception]] = lambda: None
        self._lock = threading.Lock()

    def replace(
        self, server: Optional[Callable[[], dist.Store]], address: str, failed: Callable[[], Optional[Exception]]
    ) -> None:
        """Makes what server returns the one from here on; None = that at the address, to which the
        first operation connects. failed returns why the generation has failed, or None.
        """
        with self._lock:
            self._used, self._own, self._address, self._failed = None, server, address, failed

    @property
    def _server(self) -> dist.Store:
        with self._lock:
            if self._used is None:
                own = self._own
                self._used = own() if own is not None else connect(self._address, self._failed)
            return self._used

    def _await(self, keys: List[str], timeout: Optional[timedelta]) -> None:
        limit = timeout if timeout is not None and timeout > timedelta(0) else self.timeout
        end, pause = time.monotonic() + limit.total_seconds(), _SHORTEST
        while not self._server.check(keys):
            error = self._failed()
            if error is not None:
                raise RegroupError(f"the generation ended while its members met: {error}")
            if time.monotonic() >= end:
                raise RegroupError(f"nobody has set {', '.join(keys)} within {limit}")
            time.sleep(pause)  # a store cannot be asked to tell
            pause = min(2 * pause, _LONGEST)

    def get(self, key: str) -> bytes:
        """Waits for a key; returns its value."""
        self._await([key], None)
        return self._server.get(key)

    def multi_get(self, keys: List[str]) -> List[bytes]:
        """Waits for keys; returns their values."""
        self._await(keys, None)
        return self._server.multi_get(keys)

    def wait(self, keys: List[str], timeout: Optional[timedelta] = None) -> None:
        """Waits until all keys are set."""
        self._await(keys, timeout)

    def clone(self) -> "GenerationStore":
        """This store: its operations may be called by several threads."""
        return self


def _passed_on(name: str) -> Callable[..., Any]:
    """An operation that is the server's."""
    return lambda self, *arguments: getattr(self._server, name)(*arguments)


for _name in (
    "set",
    "add",
    "compare_set",
    "check",
    "delete_key",
    "num_keys",
    "append",
    "multi_set",
    "has_extended_api",
):
    setattr(GenerationStore, _name, _passed_on(_name))
