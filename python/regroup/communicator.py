"""Endpoints and communicators: collective operations on memory addresses. Does not depend on torch.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, List, Optional, Sequence, Tuple

from . import _library, settings
from ._library import check, library
from .named import Named


class Endpoint:
    """Where this process accepts connections of peers."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        advertise: str = "",
        port_min: int = 0,
        port_max: int = 0,
        encrypt: bool = False,
    ):
        options = {
            "host": host,
            "advertise": advertise,
            "port_min": port_min,
            "port_max": port_max,
            "encrypt": encrypt,
        }
        out = ctypes.c_uint64()
        check(library().rg_endpoint_new(json.dumps(options).encode(), ctypes.byref(out)))
        self.handle: int = out.value
        self.generation = 0  # the newest that was started here

    @property
    def address(self) -> str:
        """What peers dial, host:port."""
        return _library.text(library().rg_endpoint_address, self.handle)

    def connect(self, **options) -> "Communicator":
        """Joins a generation; the options are those of rg_comm_new. Returns when all ranks are
        connected."""
        out = ctypes.c_uint64()
        check(library().rg_comm_new(self.handle, json.dumps(options).encode(), ctypes.byref(out)))
        self.generation = max(self.generation, options["generation"])
        return Communicator(out.value, options["rank"], options["world"], self)

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


class Communicator:
    """One rank's membership in one generation.

    Operations take an address, a number of elements, a type and a reduction (constants of
    _library), and return when they are done; with ``start=True`` they return a request for
    _library.wait instead. Memory of a started operation must stay until it has ended.
    """

    def __init__(self, handle: int, rank: int, world: int, at: Optional[Endpoint] = None):
        self.handle, self.rank, self.world, self.endpoint = handle, rank, world, at
        self._lib = library()
        self.gpus: Any = None  # how GPU tensors are transferred; set by regroup.torch
        self._named: Optional[Named] = None

    @property
    def named(self) -> Named:
        """Its named operations."""
        if self._named is None:
            self._named = Named(self)
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
        out = ctypes.c_uint64()
        check(self._lib.rg_comm_origin(self.handle, origin, ctypes.byref(out)))
        return Communicator(out.value, self.rank, self.world, self.endpoint)

    def _do(self, start: bool, code: int, **fields: Any) -> Optional[int]:
        return _library.start(self.handle, not start, code=code, **fields)

    def allreduce(
        self, data: int, count: int, kind: int, op: int, start: bool = False, wire: int = 0
    ):
        """Reduces the ranks' elements in place. With wire, FLOAT16 or BFLOAT16, float32 elements are
        sent as that."""
        how = {"type": kind, "reduction": op, "wire": wire}
        return self._do(start, _library.ALLREDUCE, recv=data, count=count, **how)

    def reduce_scatter(self, data: int, count: int, kind: int, op: int, start: bool = False):
        """Reduces; this rank's segment of the result stays in its place. See segment."""
        how = {"type": kind, "reduction": op}
        return self._do(start, _library.REDUCE_SCATTER, recv=data, count=count, **how)

    def reduce(self, data: int, count: int, kind: int, op: int, root: int, start: bool = False):
        """Reduces to root; the memory of the others is undefined afterwards."""
        how = {"type": kind, "reduction": op, "peer": root}
        return self._do(start, _library.REDUCE, recv=data, count=count, **how)

    def broadcast(self, data: int, count: int, kind: int, root: int, start: bool = False):
        """Copies root's elements to all."""
        what = {"recv": data, "count": count, "type": kind}
        return self._do(start, _library.BROADCAST, peer=root, **what)

    def allgather(self, send: int, recv: int, count: int, kind: int, start: bool = False):
        """Concatenates the ranks' count elements in recv."""
        what = {"send": send, "count": count, "type": kind}
        return self._do(start, _library.ALLGATHER, recv=recv, **what)

    def alltoall(
        self,
        send: int,
        recv: int,
        count: int,
        kind: int,
        send_counts: Optional[Sequence[int]] = None,
        recv_counts: Optional[Sequence[int]] = None,
        start: bool = False,
    ):
        """Sends block i of send to rank i. Without counts the blocks are equal parts of count
        elements."""
        blocks = {
            "send_counts": _library.counts(send_counts),
            "recv_counts": _library.counts(recv_counts),
        }
        what = {"send": send, "count": count, "type": kind}
        return self._do(start, _library.ALLTOALL, recv=recv, **what, **blocks)

    def barrier(self, start: bool = False):
        """Returns when every rank has called it."""
        return self._do(start, _library.BARRIER)

    def send(self, data: int, size: int, to: int, tag: int = 0, start: bool = False):
        """Sends bytes to a rank that receives the same number with this tag."""
        what = {"send": data, "count": size, "type": _library.UINT8}
        return self._do(start, _library.SEND, peer=to, tag=tag, **what)

    def recv(self, data: int, size: int, source: int, tag: int = 0, start: bool = False):
        """Receives the next message of a rank with this tag."""
        what = {"recv": data, "count": size, "type": _library.UINT8}
        return self._do(start, _library.RECV, peer=source, tag=tag, **what)

    def recv_any(self, data: int, size: int, tag: int = 0) -> Tuple[int, ctypes.c_int32]:
        """Starts to receive the next message with this tag, of any rank. Returns a request, and which
        rank it was of when that has ended."""
        source = ctypes.c_int32(-1)
        what = {"recv": data, "count": size, "type": _library.UINT8}
        sender = {"peer": -1, "source": ctypes.pointer(source)}
        return self._do(True, _library.RECV, tag=tag, **what, **sender), source

    def allgather_bytes(self, data: bytes) -> List[bytes]:
        """Gathers bytes of different lengths, in the order of the ranks."""
        everything, sizes = ctypes.c_void_p(), (ctypes.c_int64 * self.world)()
        check(
            self._lib.rg_allgather_bytes(
                self.handle, data, len(data), ctypes.byref(everything), sizes
            )
        )
        try:
            at, parts = everything.value, []
            for size in sizes:
                parts.append(ctypes.string_at(at, size))
                at += size
            return parts
        finally:
            self._lib.rg_release(everything)

    def segment(self, count: int, rank: int) -> range:
        """Which of count elements a rank has after reduce_scatter."""
        begin, end = ctypes.c_int64(), ctypes.c_int64()
        check(
            self._lib.rg_segment(self.handle, count, rank, ctypes.byref(begin), ctypes.byref(end))
        )
        return range(begin.value, end.value)

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
        """A description for people."""
        return json.loads(_library.text(self._lib.rg_comm_describe, self.handle))

    def close(self) -> None:
        """Leaves the generation. Peers that still need this rank see it as lost."""
        if self.gpus is not None:
            self.gpus.close()
        check(self._lib.rg_comm_close(self.handle))
