"""The process group for torch before 2.14: torch.distributed calls its methods directly."""

from __future__ import annotations

import inspect
from datetime import timedelta
from sys import _getframe
from typing import Any, Callable, Optional

import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed.algorithms.join import Join

from ...communicator import Communicator
from .background import BackgroundOp, BackgroundWork
from .barrier_ops import BarrierOps
from .exchange_ops import ExchangeOps
from .gather_ops import GatherOps
from .operations import INLINE_BYTES
from .profiled import profiled
from .reduce_ops import ReduceOps
from .work import CompletedWork, PendingWork, StartedOp, called_by_python, completed_work, of_torch, torch_frame

_notice = Join.notify_join_context.__code__

#: Where the functions of torch.distributed are, and what wraps them.
_between = {dist.all_reduce.__code__.co_filename, inspect.unwrap(dist.all_reduce).__code__.co_filename}


def _for_reducer(frame: Any) -> bool:
    """Whether a function of torch.distributed was called for a Work that is passed on to C++: a Join
    gives the reducer of DDP the Work of its notice."""
    while frame is not None and frame.f_code.co_filename in _between:
        frame = frame.f_back
    return frame is not None and frame.f_code is _notice


@profiled
class ProcessGroup(ReduceOps, GatherOps, ExchangeOps, BarrierOps, dist.ProcessGroup):
    """The connected ranks of one group, with all operations of torch.distributed."""

    def __init__(self, comm: Communicator, timeout: Optional[timedelta] = None):
        dist.ProcessGroup.__init__(self, comm.rank, comm.world)
        self._timeout = timeout
        self._group_name = self._group_desc = ""
        self._connect(comm)

    # Functional collectives find a group by its name. torch keeps it at the backends of a group's
    # devices, of which this one has none.

    def getGroupName(self) -> str:
        """The name by which torch finds the group."""
        return self._group_name

    def setGroupName(self, name: str) -> None:
        self._group_name = name

    def getGroupDesc(self) -> str:
        return self._group_desc

    def setGroupDesc(self, text: str) -> None:
        self._group_desc = text

    def _inline(self, size: int, opts: Any, wait: bool = False) -> Optional[Callable[[Any], Any]]:
        frame = _getframe(2)
        if not of_torch.get(frame.f_code):  # the usual case is quick
            frame = torch_frame(2)
        if frame is None:  # a caller in C++
            return completed_work if wait or size <= INLINE_BYTES else None
        # These options do not say whether the caller waits at once; the calling function does.
        if size < 0 or (size <= INLINE_BYTES and not frame.f_locals.get("async_op", False)):
            return CompletedWork
        return None

    def _completed(self, result: Any) -> Any:
        return CompletedWork(result) if called_by_python() else completed_work(result)

    def _pending(self, started: StartedOp) -> Any:
        frame = torch_frame(2)
        if frame is not None and not _for_reducer(frame):
            return PendingWork(started, self._waiter)
        return self._waiter.work(started)

    def _background(self, op: BackgroundOp) -> Any:
        return BackgroundWork(op) if called_by_python() else _create_work_from_future(op.future)

    def _start_coalescing(self, *device: Any) -> None:
        """Operations go on until they are waited for, so there is nothing to do."""

    def _end_coalescing(self, *works_or_device: Any) -> None:
        """The caller waits for each of the operations."""
