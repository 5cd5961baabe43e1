"""What all operations share: the communicator, and how operations are executed.

The operations are the same for every torch. What they return, and which class of torch they extend,
differs: see process_group and backend.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from threading import get_ident
from time import monotonic
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from ... import _library as lib
from ... import settings
from ...communicator import Communicator
from ...errors import InvalidArgumentError, RegroupError
from ..gpus import Engine, engine
from ..tensors import check
from .background import BackgroundOp
from .work import StartedOp, Waiter, called_by_python

#: The name of the backend.
BACKEND = "regroup"

#: The size up to which the calling thread executes an operation.
INLINE_BYTES = settings.inline_bytes()


class Operations:
    """The operations of one group, on its communicator."""

    _comm: Any
    _handle = 0
    _timeout: Optional[timedelta]

    def _connect(self, comm: Communicator) -> None:
        """Makes the ranks of a communicator those of the group. The memory of the one before is
        freed when nothing uses it."""
        self._comm, self._handle = comm, comm.handle
        self._start = lib.library().rg_start
        self._waiter = Waiter(comm, self._timeout.total_seconds() if self._timeout else 0)
        self._finalizer = weakref.finalize(self, _close, comm, self._waiter)

    @property
    def communicator(self) -> Communicator:
        """The communicator of the group."""
        return self._comm

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

    def shutdown(self) -> None:
        """Leaves the group."""
        self._finalizer()

    def abort(self) -> None:
        """Aborts the group on all ranks: operations in progress fail within milliseconds."""
        self._comm.abort("abort() was called")

    def _inline(self, size: int, opts: Any, wait: bool = False) -> Optional[Callable[[Any], Any]]:
        """Whether the calling thread executes an operation: then what makes its result a Work. wait
        says that a caller in C++ may not check whether it failed."""
        raise NotImplementedError

    def _completed(self, result: Any) -> Any:
        """The Work of an operation for which there was nothing to do."""
        raise NotImplementedError

    def _pending(self, started: StartedOp) -> Any:
        """What an operation that was started returns."""
        raise NotImplementedError

    def _background(self, op: BackgroundOp) -> Any:
        """What an operation of several steps returns."""
        raise NotImplementedError

    def _end(self, requests: Sequence[int], deadline: Optional[float]) -> None:
        """Waits until all requests have ended, by when their memory is free. Raises the error of the
        first that failed; the group ends with the deadline."""
        error: Optional[BaseException] = None
        for request in requests:
            try:
                if not lib.wait_until(request, deadline):
                    self._waiter.expire()
                    lib.wait(request)
            except RegroupError as e:
                error = error or self._waiter.cause(e)
        if error is not None:
            raise error

    def _run(
        self,
        size: int,
        call: Callable[[bool], Optional[int]],
        result: Any,
        finish: Optional[Callable[[], None]] = None,
        opts: Any = None,
        wait: bool = False,
        keep: Any = None,
    ) -> Any:
        """Executes call, or starts it; finish copies the result to where it belongs, and keep
        references memory that neither of them does."""
        completed = self._inline(size, opts, wait)
        if completed is not None:
            waiter, thread = self._waiter, get_ident()
            if not waiter.watching:
                waiter.watch()
            waiter.inline[thread] = monotonic()
            try:
                call(False)
            except RegroupError as e:
                raise waiter.cause(e) from None
            finally:
                del waiter.inline[thread]
            if finish is not None:
                finish()
            return completed(result)
        return self._pending(StartedOp(call(True), result, finish, (call, keep)))

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
        return self._run(size, call, result, finish, None, wait)

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


def size_of(tensor: torch.Tensor, moved: Optional[torch.Tensor] = None) -> int:
    """The size that decides which thread executes an operation on a tensor, of which moved is what
    the engine works on. -1 = the calling thread in any case: it copies to and from a GPU."""
    if not tensor.is_cpu:
        return -1
    moved = tensor if moved is None else moved
    return moved.numel() * moved.element_size()


def leave_soon(finalizer: weakref.finalize) -> None:
    """Leaves the communicator of a group's finalizer as it does, but need not have when it returns."""
    held = finalizer.detach()
    if held is not None:  # else it was left
        _, _, (comm, waiter), _ = held
        waiter.close_and(lambda: _leave(comm))


def _close(comm: Communicator, waiter: Waiter) -> None:
    waiter.close()
    _leave(comm)


def _leave(comm: Communicator) -> None:
    if comm.gpus is not None:
        comm.gpus.close()
    lib.library().rg_comm_close(comm.handle)  # an error in a forked child does not matter
