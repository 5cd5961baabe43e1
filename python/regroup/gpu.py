"""The GPU engine of a communicator: collective operations on addresses of GPU memory. Does not
depend on torch."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Optional, Sequence

from . import _library
from ._library import check, library
from .communicator import Communicator


class Gpu:
    """One rank's GPU in one generation. All ranks open theirs, and start the same operations in the
    same order.

    Operations take a stream (a CUstream; 0 is CUDA's default stream) and run after the work that is
    queued there. They return when work that is queued later is ordered after them; with
    ``start=True`` they return a request for _library.wait, which ends when the GPU has finished.
    The memory of a started operation must stay valid until then.
    """

    def __init__(
        self,
        comm: Communicator,
        device: int,
        local_rank: int = 0,
        local_size: int = 0,
        search: Sequence[str] = (),
        absent: str = "",
        before: Optional["Gpu"] = None,
        chunk_bytes: int = 0,
    ):
        self._lib = library()
        self.device = device
        options = {
            "device": device,
            "local_rank": local_rank,
            "local_size": local_size,
            "search": list(search),
            "absent": absent,
            "chunk_bytes": chunk_bytes,
        }
        out = ctypes.c_uint64()
        check(
            self._lib.rg_gpu_open(
                comm.handle,
                json.dumps(options).encode(),
                0 if before is None else before.handle,
                ctypes.byref(out),
            )
        )
        self.handle: int = out.value

    def _do(self, start: bool, function, *arguments) -> Optional[int]:
        if not start:
            check(function(self.handle, *arguments, None))
            return None
        request = ctypes.c_uint64()
        check(function(self.handle, *arguments, ctypes.addressof(request)))
        return request.value

    def allreduce(
        self,
        data: int,
        count: int,
        kind: int,
        op: int,
        stream: int,
        wire: int = 0,
        start: bool = False,
    ):
        """Combines the ranks' elements, in place. wire is FLOAT16 or BFLOAT16 for float32 between
        machines."""
        return self._do(
            start, self._lib.rg_gpu_allreduce, wire, data, count, kind, op, stream or None
        )

    def broadcast(self, data: int, size: int, root: int, stream: int, start: bool = False):
        """Copies root's bytes to all."""
        return self._do(start, self._lib.rg_gpu_broadcast, data, size, root, stream or None)

    def allgather(self, send: int, recv: int, size: int, stream: int, start: bool = False):
        """Concatenates the ranks' bytes in recv."""
        return self._do(start, self._lib.rg_gpu_allgather, send, recv, size, stream or None)

    def named_allreduce(
        self,
        name: str,
        detail: str,
        data: int,
        count: int,
        kind: int,
        op: int,
        stream: int,
        wire: int,
        ordered: bool,
    ) -> int:
        """Starts a named allreduce and returns a request. With ordered it ends when later work on
        the stream is ordered after it, otherwise when the GPU has finished."""
        call = self._lib.rg_named_gpu_allreduce
        how = (wire, data, count, kind, op, stream or None)
        return self._named(call, name, detail, ordered, *how)

    def named_broadcast(
        self, name: str, detail: str, data: int, size: int, root: int, stream: int, ordered: bool
    ) -> int:
        """Starts a named broadcast in the same way."""
        call = self._lib.rg_named_gpu_broadcast
        return self._named(call, name, detail, ordered, data, size, root, stream or None)

    def named_allgather(
        self, name: str, detail: str, send: int, recv: int, size: int, stream: int, ordered: bool
    ) -> int:
        """Starts a named allgather in the same way."""
        call = self._lib.rg_named_gpu_allgather
        return self._named(call, name, detail, ordered, send, recv, size, stream or None)

    def _named(self, call: Any, name: str, detail: str, ordered: bool, *arguments: Any) -> int:
        request = ctypes.c_uint64()
        check(
            call(
                self.handle,
                name.encode(),
                detail.encode(),
                *arguments,
                int(ordered),
                ctypes.byref(request),
            )
        )
        return request.value

    def describe(self) -> dict:
        """A description for people."""
        return json.loads(_library.text(self._lib.rg_gpu_describe, self.handle))

    def close(self) -> None:
        """Waits for started operations and frees the resources."""
        check(self._lib.rg_gpu_close(self.handle))
