"""What all operations share: the communicator, and how operations are executed.

The operations are the same for every torch. What they return, and which class of torch they extend,
differs: see process_group and backend.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, Callable, List, Optional, Sequence

import torch

from ... import _library as lib
from ... import settings
from ...communicator import Communicator
from ...errors import InvalidArgumentError, RegroupError
from ..gpus import Engine, engine
from ..tensors import Memory, check, unit
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
        return self._comm

    def getBackendName(self) -> str:
        return BACKEND

    name = getBackendName

    def rank(self) -> int:
        return self._comm.rank

    def size(self) -> int:
        return self._comm.world

    def shutdown(self) -> None:
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
                if not lib.wait(request, deadline):
                    self._waiter.expire()
                    lib.wait(request)
            except RegroupError as e:
                error = error or self._waiter.cause(e)
        if error is not None:
            raise error

    def _here(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Executes an operation in the calling thread, which the waiter watches meanwhile."""
        waiter, thread = self._waiter, get_ident()
        if not waiter.watching:
            waiter.watch()
        waiter.inline[thread] = monotonic()
        try:
            return call(*arguments)
        finally:
            del waiter.inline[thread]

    def _run(
        self,
        size: int,
        move: Callable[..., Optional[int]],
        memory: Any,
        result: Any,
        opts: Any,
        finish: Optional[Callable[[], None]] = None,
        wait: bool = False,
        gpu: Any = None,
    ) -> Any:
        """Executes move, or starts it, which works on memory; finish copies the result to where it
        belongs. Which of them depends on the size, -1 = the calling thread in any case: it copies to
        and from a GPU.

        An operation of the GPU engine is ordered on the current stream, as with NCCL, for a caller in
        Python that waits for it. One in C++, which is DDP, continues to compute and is notified of the
        end, unless the result must be copied then: the notifying thread has another stream.
        """
        if gpu is not None:
            size = 0 if called_by_python() or finish is not None else INLINE_BYTES + 1
        completed = self._inline(size, opts, wait)
        if completed is None:
            return self._pending(StartedOp(move(start=True), result, finish, memory))
        try:
            self._here(move)
        except RegroupError as e:
            raise self._waiter.cause(e) from None
        if finish is not None:
            finish()
        return completed(result)

    def _gpu_engine(self, *tensors: torch.Tensor) -> Optional[Engine]:
        """The GPU engine, if it handles all of these tensors."""
        if any(t.device != tensors[0].device for t in tensors):
            return None
        return engine(self._comm, tensors[0])

    def _exchange(
        self, given: Memory, out: List[int], into: Memory, back: List[int], result: Any, opts: Any, gpu: Any = None
    ) -> Any:
        """Sends out[r] elements to rank r, and receives back[r] elements from it."""
        if gpu is not None:
            move = partial(gpu.alltoall, given.flat, into.flat, out, back)
        else:
            kind, width = unit(given.flat)
            counts = [n * width for n in out], [n * width for n in back]
            move = partial(self._comm.alltoall, given.flat.data_ptr(), into.flat.data_ptr(), 0, kind, *counts)
        return self._run(into.size, move, (given, into), result, opts, into.finish, wait=True, gpu=gpu)

    def _gather_bytes(
        self,
        flat: torch.Tensor,
        like: torch.Tensor,
        result: Any,
        opts: Any,
        finish: Callable[[torch.Tensor], Any],
        gpu: Any = None,
    ) -> Any:
        """Gathers what each rank has in flat, which is in the host's memory unless there is a GPU engine;
        finish gets a row of each rank, of which it makes tensors on the device of like."""
        rows = torch.empty(self._comm.world, flat.numel(), dtype=flat.dtype, device=flat.device)
        if flat.numel() == 0:
            return self._completed(result)
        move = partial(self._comm.allgather, flat.data_ptr(), rows.data_ptr(), flat.nbytes, lib.UINT8)
        if gpu is not None:
            move = partial(gpu.allgather, flat, rows)
        size = rows.nbytes if like.is_cpu else -1
        return self._run(size, move, (flat, rows), result, opts, lambda: finish(rows), wait=True, gpu=gpu)

    def _check_parts(self, parts: Sequence[torch.Tensor], like: Optional[torch.Tensor], name: str) -> None:
        """Raises unless there is a tensor for each rank, with the number and type of the elements of
        like; None = with any."""
        if len(parts) != self._comm.world:
            raise InvalidArgumentError(f"{len(parts)} tensors of {name} for {self._comm.world} ranks")
        for part in parts:
            check(part, name)
            if like is not None and (part.numel() != like.numel() or part.dtype != like.dtype):
                raise InvalidArgumentError(
                    f"{name} of {part.numel()} elements of {part.dtype}, not {like.numel()} of {like.dtype}"
                )

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, name: str) -> None:
        """Raises unless a tensor of this name has as many elements as the parts of all ranks."""
        check(whole, name)
        check(part)
        if whole.numel() != part.numel() * self._comm.world or whole.dtype != part.dtype:
            raise InvalidArgumentError(
                f"{name} has {whole.numel()} elements of {whole.dtype}, not {self._comm.world} times "
                f"{part.numel()} of {part.dtype}"
            )


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
