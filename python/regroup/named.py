"""Operations that are matched across ranks by name. See regroup.h."""

from __future__ import annotations

import ctypes
import json
from typing import Dict, List

from . import _library, settings
from ._library import check, library
from .operations import Operations


class Named(Operations):
    """The named operations of the communicator with a handle: each is given a ``name`` and a
    ``detail``. Wait for allgather, alltoall and join with _library.wait_rows."""

    def __init__(self, handle: int):
        self.handle, self._lib = handle, library()
        self._numbers: Dict[str, int] = {}
        self._joins = self._deadlocks = 0
        check(self._lib.rg_named_options(handle, json.dumps(settings.named()).encode()))

    def number(self, of: str) -> str:
        """A name for an operation without one: the n-th of its kind, equal on all ranks that run
        the same program."""
        deadlocks = ctypes.c_int64()
        check(self._lib.rg_named_deadlocks(self.handle, ctypes.byref(deadlocks)))
        if deadlocks.value != self._deadlocks:  # the ranks were at different numbers
            self._deadlocks = deadlocks.value
            self._numbers.clear()
        self._numbers[of] = self._numbers.get(of, 0) + 1
        return f"{of}.{self._joins + self._deadlocks}.{self._numbers[of]}"

    def join(self) -> int:
        """Starts to wait until all ranks have joined. The first row of the result is the rank that
        joined last."""
        return _library.start(self.handle, _library.JOIN, start=True)

    def joined(self) -> None:
        """Restarts the numbering after all ranks have joined, with different numbers of operations."""
        self._joins += 1
        self._numbers.clear()

    def refuse(self, name: str, why: str) -> None:
        """Tells the ranks that wait for an operation that this rank called it with invalid
        arguments."""
        check(self._lib.rg_named_refuse(self.handle, name.encode(), why.encode()))

    def subset(self, name: str, ranks: List[int]) -> int:
        """The handle of a communicator of some of the ranks; only those call it."""
        array = (ctypes.c_int32 * len(ranks))(*ranks)
        return _library.made(self._lib.rg_subset, self.handle, name.encode(), array, len(ranks))

    def start_timeline(self, path: str, mark_cycles: bool) -> None:
        """Writes the phases of the operations into a file, in Chrome's trace event format."""
        check(self._lib.rg_timeline_start(self.handle, path.encode(), int(mark_cycles)))

    def stop_timeline(self) -> None:
        """Ends the file."""
        check(self._lib.rg_timeline_stop(self.handle))
