"""The GPU engine of a communicator: collective operations on addresses of GPU memory. Does not
depend on torch."""

from __future__ import annotations

import json
from typing import Any, Optional, Sequence

from . import _library
from ._library import UINT8, check, library
from .communicator import Communicator
from .operations import Operations


class Gpu(Operations):
    """One rank's GPU in one generation. All ranks open theirs, and start the same collective
    operations in the same order.

    Operations take a stream (a CUstream; 0 is CUDA's default stream) and run after the work that is
    queued there. They return when work that is queued later is ordered after them; the request of
    a started one ends when the GPU has finished. With a name an operation must be started; with
    ``ordered`` its request ends when later work on the stream is ordered after it.
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
        self._lib, self.device = library(), device
        options = {"device": device, "local_rank": local_rank, "local_size": local_size}
        options.update(search=list(search), absent=absent, chunk_bytes=chunk_bytes)
        given = json.dumps(options).encode(), 0 if before is None else before.handle
        self.handle = _library.made(self._lib.rg_gpu_open, comm.handle, *given)

    def allreduce(self, data: int, count: int, kind: int, op: int, stream: int, **how: Any) -> Optional[int]:
        """Reduces the ranks' elements in place. With wire, FLOAT16 or BFLOAT16, float32 elements are
        sent as that between machines."""
        return super().allreduce(data, count, kind, op, stream=stream, **how)

    def reduce(self, data: int, count: int, kind: int, op: int, root: int, stream: int, **how: Any) -> Optional[int]:
        """Reduces to root; the memory of the others is undefined afterwards."""
        return super().reduce(data, count, kind, op, root, stream=stream, **how)

    def reduce_scatter(
        self, send: int, recv: int, count: int, kind: int, op: int, stream: int, **how: Any
    ) -> Optional[int]:
        """Reduces world times count elements of send, which are undefined afterwards; this rank's
        count elements of the result are in recv."""
        what = {"send": send, "recv": recv, "count": count, "type": kind, "reduction": op}
        return _library.start(self.handle, _library.REDUCE_SCATTER, stream=stream, **what, **how)

    def broadcast(self, data: int, size: int, root: int, stream: int, **how: Any) -> Optional[int]:
        """Copies root's bytes to all."""
        return super().broadcast(data, size, UINT8, root, stream=stream, **how)

    def allgather(self, send: int, recv: int, size: int, stream: int, **how: Any) -> Optional[int]:
        """Concatenates the ranks' bytes in recv."""
        return super().allgather(send, recv, size, UINT8, stream=stream, **how)

    def alltoall(
        self,
        send: int,
        recv: int,
        send_sizes: Sequence[int],
        recv_sizes: Sequence[int],
        stream: int,
        **how: Any,
    ) -> Optional[int]:
        """Sends block i of send to rank i; the blocks of both have these numbers of bytes."""
        return super().alltoall(send, recv, 0, UINT8, send_sizes, recv_sizes, stream=stream, **how)

    def describe(self) -> dict:
        return json.loads(_library.text(self._lib.rg_gpu_describe, self.handle))

    def close(self) -> None:
        """Waits for started operations and frees the resources."""
        check(self._lib.rg_gpu_close(self.handle))
