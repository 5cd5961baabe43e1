"""Endpoints and communicators: collective operations on memory addresses. Does not depend on torch."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
from typing import Any, List, Optional, Tuple

from . import _library, settings
from ._library import check, library
from .named import Named
from .operations import Operations


class Endpoint:
    """Where this process accepts connections of peers."""

    def __init__(
        self, host: str = "127.0.0.1", advertise: str = "", port_min: int = 0, port_max: int = 0, encrypt: bool = False
    ):
        options = {"host": host, "advertise": advertise, "port_min": port_min, "port_max": port_max, "encrypt": encrypt}
        self.handle = _library.made(library().rg_endpoint_new, json.dumps(options).encode())
        self.generation = 0  # the newest that was started here

    @property
    def address(self) -> str:
        """What peers dial, host:port."""
        return _library.text(library().rg_endpoint_address, self.handle)

    def connect(self, **options) -> "Communicator":
        """Joins a generation; the options are those of rg_comm_new. Returns when all ranks are
        connected."""
        handle = _library.made(library().rg_comm_new, self.handle, json.dumps(options).encode())
        self.generation = max(self.generation, options["generation"])
        return Communicator(handle, options["rank"], options["world"], self)

    def close(self) -> None:
        """Stops accepting connections. Close the communicators first."""
        check(library().rg_endpoint_close(self.handle))


_endpoints: dict = {}


def endpoint(host: str) -> Endpoint:
    """This process's endpoint on a host's address. It lives as long as the process."""
    if host not in _endpoints:
        low, high = settings.ports("REGROUP_DATA_PORTS")
        encrypt = os.environ.get("REGROUP_ENCRYPT", "0") == "1"
        _endpoints[host] = Endpoint(host, port_min=low, port_max=high, encrypt=encrypt)
    return _endpoints[host]


class Communicator(Operations):
    """One rank's membership in one generation."""

    def __init__(self, handle: int, rank: int, world: int, at: Optional[Endpoint] = None):
        self.handle, self.rank, self.world, self.endpoint = handle, rank, world, at
        self._lib = library()
        self.gpus: Any = None  # how GPU tensors are transferred; set by regroup.torch
        self._named: Optional[Named] = None

    @property
    def named(self) -> Named:
        if self._named is None:
            self._named = Named(self.handle)
        return self._named

    def subset(self, name: str, ranks: List[int]) -> "Communicator":
        """A communicator of some of the ranks, in ascending order; only those call it. It ends with
        this one."""
        handle = self.named.subset(name, ranks)
        return Communicator(handle, ranks.index(self.rank), len(ranks), self.endpoint)

    def with_origin(self, origin: int) -> "Communicator":
        """This communicator for the operations of another caller, a number of 2 to 15. They have
        one order with all others, and meet none of another origin: where the ranks' orders differ,
        all get an error. It ends with this one; closing it does not close this one."""
        handle = _library.made(self._lib.rg_comm_origin, self.handle, origin)
        beside = Communicator(handle, self.rank, self.world, self.endpoint)
        if self.gpus is not None:
            beside.gpus = self.gpus.beside(beside)
        return beside

    def recv_any(self, data: int, size: int, tag: int = 0) -> Tuple[int, ctypes.c_int32]:
        """Starts to receive the next message with this tag, of any rank. Returns a request, and which
        rank it was of when that has ended."""
        source = ctypes.c_int32(-1)
        return self.recv(data, size, -1, tag, start=True, source=ctypes.pointer(source)), source

    def allgather_bytes(self, data: bytes) -> List[bytes]:
        """Gathers bytes of different lengths, in the order of the ranks."""
        everything, sizes = ctypes.c_void_p(), (ctypes.c_int64 * self.world)()
        check(self._lib.rg_allgather_bytes(self.handle, data, len(data), ctypes.byref(everything), sizes))
        rows = _library.Rows(everything.value or 0, list(sizes))
        ends = itertools.accumulate(sizes)
        return [ctypes.string_at(rows.address + end - size, size) for end, size in zip(ends, sizes)]

    def failed(self) -> Optional[Exception]:
        """Why it has failed; None while it works."""
        status = self._lib.rg_comm_failed(self.handle)
        return None if status == _library.OK else _library.failure(status)

    def wait_failed(self) -> Exception:
        """Waits until it fails or is closed, and returns why. A rank whose process is silent is lost
        meanwhile, as in an operation."""
        while True:
            status = self._lib.rg_comm_wait_failed(self.handle, -1)
            if status != _library.TIMEOUT:
                return _library.failure(status)

    def abort(self, why: str) -> None:
        """Aborts the generation on all ranks, within milliseconds."""
        check(self._lib.rg_comm_abort(self.handle, -1, why.encode()))

    def describe(self) -> dict:
        return json.loads(_library.text(self._lib.rg_comm_describe, self.handle))

    def close(self) -> None:
        """Leaves the generation. Peers that still need this rank see it as lost."""
        if self.gpus is not None:
            self.gpus.close()
        check(self._lib.rg_comm_close(self.handle))
