"""The process group for torch before 2.14: torch.distributed calls its methods directly."""

from __future__ import annotations

from datetime import timedelta
from sys import _getframe
from typing import Any, Callable, Optional

import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from ...communicator import Communicator
from .background import BackgroundOp, BackgroundWork
from .barrier_ops import BarrierOps
from .exchange_ops import ExchangeOps
from .gather_ops import GatherOps
from .operations import INLINE_BYTES
from .reduce_ops import ReduceOps
from .work import (
    CompletedWork,
    PendingWork,
    StartedOp,
    called_by_python,
    completed_work,
    of_torch,
    torch_frame,
)


class ProcessGroup(ReduceOps, GatherOps, ExchangeOps, BarrierOps, dist.ProcessGroup):
    """The connected ranks of one group, with all operations of torch.distributed."""

    def __init__(self, comm: Communicator, timeout: Optional[timedelta] = None):
        dist.ProcessGroup.__init__(self, comm.rank, comm.world)
        self._timeout = timeout
        self._connect(comm)

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
        if called_by_python():
            return PendingWork(started, self._waiter)
        return self._waiter.work(started)

    def _background(self, op: BackgroundOp) -> Any:
        return BackgroundWork(op) if called_by_python() else _create_work_from_future(op.future)

    def _start_coalescing(self, *device: Any) -> None:
        """Operations go on until they are waited for, so there is nothing to do."""

    def _end_coalescing(self, *works_or_device: Any) -> None:
        """The caller waits for each of the operations."""
