"""Operations that are matched across ranks by name, on memory addresses. Does not depend on torch.
See regroup.h."""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from . import _library, settings
from ._library import check, library

if TYPE_CHECKING:
    from .communicator import Communicator


class Named:
    """The named operations of one communicator. Each method starts one and returns a request.

    ``detail`` must be equal on all ranks. Wait for requests with _library.wait, or with
    _library.wait_result for allgather, alltoall and join. With ``wait`` a method returns None when
    the operation has ended, which is faster than waiting for a request because no other thread has
    to wake up.
    """

    def __init__(self, comm: "Communicator"):
        self._handle, self._lib = comm.handle, library()
        self._numbers: Dict[str, int] = {}
        self._joins = self._deadlocks = 0
        check(self._lib.rg_named_options(self._handle, json.dumps(settings.named()).encode()))

    def number(self, of: str) -> str:
        """A name for an operation without one: the n-th of its kind, equal on all ranks that run
        the same program."""
        deadlocks = ctypes.c_int64()
        check(self._lib.rg_named_deadlocks(self._handle, ctypes.byref(deadlocks)))
        if deadlocks.value != self._deadlocks:  # the ranks were at different numbers
            self._deadlocks = deadlocks.value
            self._numbers.clear()
        self._numbers[of] = self._numbers.get(of, 0) + 1
        return f"{of}.{self._joins + self._deadlocks}.{self._numbers[of]}"

    def joined(self) -> None:
        """Restarts the numbering after all ranks have joined, with different numbers of operations.
        """
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
        """Reduces the ranks' elements in place."""
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
        """Concatenates the ranks' rows, of row elements each."""
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
        """Reduces the ranks' rows; each rank's share of the result is left in its place. The first
        ranks may have one row more."""
        call = self._lib.rg_named_reduce_scatter
        return self._start(call, name, detail.encode(), data, rows, row, kind, op, wait=wait)

    def barrier(self, name: str) -> None:
        """Returns when every rank has called it."""
        self._start(self._lib.rg_named_barrier, name, wait=True)

    def refuse(self, name: str, why: str) -> None:
        """Tells the ranks that wait for an operation that this rank called it with invalid
        arguments."""
        check(self._lib.rg_named_refuse(self._handle, name.encode(), why.encode()))

    def join(self) -> int:
        """Waits until all ranks have joined. The first row of the result is the rank that joined
        last."""
        request = ctypes.c_uint64()
        check(self._lib.rg_join(self._handle, ctypes.byref(request)))
        return request.value

    def subset(self, name: str, ranks: List[int]) -> int:
        """The handle of a communicator of some of the ranks; only those call it."""
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
    """Rows of an allgather or alltoall, in memory of the C library that is freed with this object.
    """

    def __init__(self, address: int, rows: List[int]):
        self.address, self.rows = address, rows
        self._release: Optional[Any] = library().rg_release

    def __del__(self) -> None:
        if self.address:
            self._release(self.address)
