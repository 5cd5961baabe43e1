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

    With ``name``, ``detail`` and ``ordered`` an operation is paired up by its name, and must be
    started. With ``ordered`` its request ends when later work on the stream is ordered after it.
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

    def allreduce(
        self,
        data: int,
        count: int,
        kind: int,
        op: int,
        stream: int,
        wire: int = 0,
        start: bool = False,
        **named: Any,
    ):
        """Combines the ranks' elements, in place. wire is FLOAT16 or BFLOAT16 for float32 between
        machines."""
        what = {"recv": data, "count": count, "type": kind, "reduction": op, "wire": wire}
        return self._do(start, _library.ALLREDUCE, stream, **what, **named)

    def broadcast(
        self, data: int, size: int, root: int, stream: int, start: bool = False, **named: Any
    ):
        """Copies root's bytes to all."""
        what = {"recv": data, "count": size, "type": _library.UINT8, "peer": root}
        return self._do(start, _library.BROADCAST, stream, **what, **named)

    def allgather(
        self, send: int, recv: int, size: int, stream: int, start: bool = False, **named: Any
    ):
        """Concatenates the ranks' bytes in recv."""
        what = {"send": send, "recv": recv, "count": size, "type": _library.UINT8}
        return self._do(start, _library.ALLGATHER, stream, **what, **named)

    def _do(
        self,
        start: bool,
        code: int,
        stream: int,
        name: Optional[str] = None,
        detail: str = "",
        ordered: bool = False,
        **fields: Any,
    ) -> Optional[int]:
        fields["stream"] = stream or None
        if name is not None:
            fields.update(name=name.encode(), detail=detail.encode(), ordered=ordered)
        return _library.start(self.handle, not start, code=code, **fields)

    def describe(self) -> dict:
        """A description for people."""
        return json.loads(_library.text(self._lib.rg_gpu_describe, self.handle))

    def close(self) -> None:
        """Waits for started operations and frees the resources."""
        check(self._lib.rg_gpu_close(self.handle))
