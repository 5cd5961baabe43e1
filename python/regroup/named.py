"""Operations that the ranks pair up by name, on memory addresses. Knows nothing of torch. See regroup.h."""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from . import _library, settings
from ._library import check, library

if TYPE_CHECKING:
    from .communicator import Communicator


class Named:
    """The operations by name of one communicator. Each method starts one, and returns a request.

    ``detail`` is compared with that of the other ranks. Requests are waited for by _library.wait, those of allgather,
    alltoall and join by _library.wait_result. With ``wait`` a method returns None when the operation has ended, which is
    faster than to wait for a request: no other thread has to wake up.
    """

    def __init__(self, comm: "Communicator"):
        self._handle, self._lib = comm.handle, library()
        self._numbers: Dict[str, int] = {}
        self._joins = self._deadlocks = 0
        check(self._lib.rg_named_options(self._handle, json.dumps(settings.named()).encode()))

    def number(self, of: str) -> str:
        """A name for something that has none: the n-th of its kind, the same on all ranks that do the same."""
        deadlocks = ctypes.c_int64()
        check(self._lib.rg_named_deadlocks(self._handle, ctypes.byref(deadlocks)))
        if deadlocks.value != self._deadlocks:  # the ranks were at different numbers
            self._deadlocks = deadlocks.value
            self._numbers.clear()
        self._numbers[of] = self._numbers.get(of, 0) + 1
        return f"{of}.{self._joins + self._deadlocks}.{self._numbers[of]}"

    def joined(self) -> None:
        """All ranks have joined, after different numbers of operations: they count from the beginning again."""
        self._joins += 1
        self._numbers.clear()

    def _start(
        self, function: Any, name: str, *arguments: Any, wait: bool = False
    ) -> Optional[int]:
        if wait:
            check(function(self._handle, name.encode(), *arguments, None))
            return None
        request = ctypes.c_uint64()
        check(function(self._handle, name.encode(), *arguments, ctypes.byref(request)))
        return request.value

    def allreduce(
        self,
        name: str,
        detail: str,
        data: int,
        count: int,
        kind: int,
        op: int,
        wire: int = 0,
        wait: bool = False,
    ) -> Optional[int]:
        """Combines the ranks' elements, in place."""
        call = self._lib.rg_named_allreduce
        return self._start(call, name, detail.encode(), wire, data, count, kind, op, wait=wait)

    def broadcast(
        self,
        name: str,
        detail: str,
        data: int,
        count: int,
        kind: int,
        root: int,
        wait: bool = False,
    ) -> Optional[int]:
        """Copies root's elements to all."""
        call = self._lib.rg_named_broadcast
        return self._start(call, name, detail.encode(), data, count, kind, root, wait=wait)

    def allgather(self, name: str, detail: str, data: int, rows: int, row: int, kind: int) -> int:
        """Puts the ranks' rows, of row elements each, one after the other."""
        call = self._lib.rg_named_allgather
        return self._start(call, name, detail.encode(), data, rows, row, kind)

    def alltoall(
        self, name: str, detail: str, data: int, splits: Sequence[int], row: int, kind: int
    ) -> int:
        """Sends splits[i] rows to rank i."""
        numbers = (ctypes.c_int64 * len(splits))(*splits)
        call = self._lib.rg_named_alltoall
        return self._start(call, name, detail.encode(), data, numbers, row, kind)

    def reduce_scatter(
        self,
        name: str,
        detail: str,
        data: int,
        rows: int,
        row: int,
        kind: int,
        op: int,
        wait: bool = False,
    ) -> Optional[int]:
        """Combines the ranks' rows; each rank finds its share in its place, the first ones one more than the others."""
        call = self._lib.rg_named_reduce_scatter
        return self._start(call, name, detail.encode(), data, rows, row, kind, op, wait=wait)

    def barrier(self, name: str) -> None:
        """Returns when every rank has called it."""
        self._start(self._lib.rg_named_barrier, name, wait=True)

    def refuse(self, name: str, why: str) -> None:
        """Tells the ranks that wait for an operation that it was called with wrong arguments here."""
        check(self._lib.rg_named_refuse(self._handle, name.encode(), why.encode()))

    def join(self) -> int:
        """Starts nothing more until all ranks have joined. The first of the rows is the rank that joined last."""
        request = ctypes.c_uint64()
        check(self._lib.rg_join(self._handle, ctypes.byref(request)))
        return request.value

    def subset(self, name: str, ranks: List[int]) -> int:
        """The handle of a communicator among some of the ranks; those call it, and no others."""
        out = ctypes.c_uint64()
        array = (ctypes.c_int32 * len(ranks))(*ranks)
        call = self._lib.rg_subset
        check(call(self._handle, name.encode(), array, len(ranks), ctypes.byref(out)))
        return out.value

    def start_timeline(self, path: str, mark_cycles: bool) -> None:
        """Writes the phases of the operations into a file, in Chrome's trace event format."""
        check(self._lib.rg_timeline_start(self._handle, path.encode(), int(mark_cycles)))

    def stop_timeline(self) -> None:
        """Ends the file."""
        check(self._lib.rg_timeline_stop(self._handle))


class Result:
    """Rows of an allgather or alltoall, in memory of the C library that is given back with this object."""

    def __init__(self, address: int, rows: List[int]):
        self.address, self.rows = address, rows
        self._release: Optional[Any] = library().rg_release

    def __del__(self) -> None:
        if self.address:
            self._release(self.address)
