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
        self, code: int, name: str, detail: str, wait: bool = False, **fields: Any
    ) -> Optional[int]:
        text = {"name": name.encode(), "detail": detail.encode()}
        return _library.start(self._handle, wait, code=code, **text, **fields)

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
        how = {"type": kind, "reduction": op, "wire": wire}
        return self._start(_library.ALLREDUCE, name, detail, wait, recv=data, count=count, **how)

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
        what = {"recv": data, "count": count, "type": kind}
        return self._start(_library.BROADCAST, name, detail, wait, peer=root, **what)

    def allgather(self, name: str, detail: str, data: int, rows: int, row: int, kind: int) -> int:
        """Concatenates the ranks' rows, of row elements each."""
        what = {"send": data, "count": rows, "row": row, "type": kind}
        return self._start(_library.ALLGATHER, name, detail, **what)

    def alltoall(
        self, name: str, detail: str, data: int, splits: Sequence[int], row: int, kind: int
    ) -> int:
        """Sends splits[i] rows to rank i."""
        what = {"send": data, "row": row, "type": kind}
        blocks = _library.counts(splits)
        return self._start(_library.ALLTOALL, name, detail, send_counts=blocks, **what)

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
        what = {"recv": data, "count": rows, "row": row, "type": kind}
        return self._start(_library.REDUCE_SCATTER, name, detail, wait, reduction=op, **what)

    def barrier(self, name: str) -> None:
        """Returns when every rank has called it."""
        self._start(_library.BARRIER, name, "", True)

    def refuse(self, name: str, why: str) -> None:
        """Tells the ranks that wait for an operation that this rank called it with invalid
        arguments."""
        check(self._lib.rg_named_refuse(self._handle, name.encode(), why.encode()))

    def join(self) -> int:
        """Waits until all ranks have joined. The first row of the result is the rank that joined
        last."""
        return _library.start(self._handle, False, code=_library.JOIN)

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
