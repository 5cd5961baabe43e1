"""The base of the process group: its ranks, and how operations are executed."""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from ... import _library as lib
from ... import settings
from ...communicator import Communicator
from ...errors import InvalidArgumentError
from ..gpus import Engine, engine
from ..tensors import check
from .work import CompletedWork, PendingWork, StartedOp, FutureWaiter, called_by_python, completed_work

#: The name of the backend.
BACKEND = "regroup"

#: The size up to which the calling thread executes an operation.
INLINE_BYTES = settings.inline_bytes()


class BaseProcessGroup(dist.ProcessGroup):
    """The connected ranks of one group."""

    def __init__(self, comm: Communicator, timeout: Optional[timedelta] = None):
        super().__init__(comm.rank, comm.world)
        self._comm, self._timeout = comm, timeout
        self._handle = comm.handle
        self._allreduce = lib.library().rg_allreduce
        self._waiter = FutureWaiter(comm)
        self._finalizer = weakref.finalize(self, _close, comm)

    def getBackendName(self) -> str:
        """The name of the backend."""
        return BACKEND

    def name(self) -> str:
        """The name of the backend."""
        return BACKEND

    def rank(self) -> int:
        """The rank of this process in the group."""
        return self._comm.rank

    def size(self) -> int:
        """The number of processes in the group."""
        return self._comm.world

    @property
    def communicator(self) -> Communicator:
        """The communicator of the group."""
        return self._comm

    def shutdown(self) -> None:
        """Leaves the group."""
        self._finalizer()

    def abort(self) -> None:
        """Aborts the group on all ranks: operations in progress fail within milliseconds."""
        self._comm.abort("abort() was called")

    def _run(
        self,
        size: int,
        call: Callable[[bool], Optional[int]],
        result: Any,
        finish: Optional[Callable[[], None]] = None,
        wait: bool = False,
    ) -> Any:
        """Executes call, or starts it if it is large; finish copies the result to where it belongs.

        With wait, it is always executed for a caller in C++, which may not check whether a future
        has failed.
        """
        python = called_by_python()
        if size <= INLINE_BYTES or (wait and not python):
            call(False)
            if finish is not None:
                finish()
            return CompletedWork(result) if python else completed_work(result)
        started = StartedOp(call(True), result, finish, call)
        return PendingWork(started, self._waiter) if python else self._waiter.work(started)

    def _gpu_engine(self, *tensors: torch.Tensor) -> Optional[Engine]:
        """The GPU engine, if it handles all of these tensors."""
        if any(t.device != tensors[0].device for t in tensors):
            return None
        return engine(self._comm, tensors[0])

    def _run_on_gpu(
        self,
        call: Callable[[bool], Optional[int]],
        result: Any,
        finish: Optional[Callable[[], None]] = None,
        wait: bool = False,
    ) -> Any:
        """Executes an operation of the GPU engine. For a caller in Python it is ordered on the
        current stream, as with NCCL. One in C++, which is DDP, continues to compute and is notified
        of the end, unless the result must be copied then: the notifying thread has another stream.
        """
        inline = called_by_python() or finish is not None
        size = 0 if inline else INLINE_BYTES + 1
        return self._run(size, call, result, finish, wait)

    def _started(self, started: StartedOp) -> Any:
        python = called_by_python()
        return PendingWork(started, self._waiter) if python else self._waiter.work(started)

    def _check_parts(self, parts: Sequence[torch.Tensor], like: torch.Tensor, name: str) -> None:
        if len(parts) != self._comm.world:
            raise InvalidArgumentError(
                f"{len(parts)} tensors of {name} for {self._comm.world} ranks"
            )
        for part in parts:
            check(part, name)
            if part.numel() != like.numel() or part.dtype != like.dtype:
                raise InvalidArgumentError(
                    f"{name} of {part.numel()} elements of {part.dtype}, not {like.numel()} of {like.dtype}"
                )


def size_of(tensor: torch.Tensor) -> int:
    """The size that decides which thread executes an operation. The calling thread copies to and
    from a GPU."""
    return tensor.numel() * tensor.element_size() if tensor.is_cpu else 0


def _close(comm: Communicator) -> None:
    if comm.gpus is not None:
        comm.gpus.close()
    lib.library().rg_comm_close(comm.handle)  # an error in a forked child does not matter
