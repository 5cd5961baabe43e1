"""The backend for torch since 2.14: operations come through torch's dispatcher, with its hooks."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional, Type

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.futures import Future

from ...communicator import Communicator
from .. import rendezvous
from .background import BackgroundOp, BackgroundWork
from .barrier_ops import BarrierOps
from .exchange_ops import ExchangeOps
from .gather_ops import GatherOps
from .operations import BACKEND, INLINE_BYTES, leave_soon
from .profiled import profiled
from .reduce_ops import ReduceOps
from .work import CompletedWork, PendingWork, StartedOp

#: Options of this backend: the time limit of operations.
Options = c10d.Backend.Options


def _dispatched(kind: Type[Any]) -> Type[Any]:
    """A kind of Work for the dispatcher, which passes on wait and get_future alone."""

    class Work(kind, dist._Work):
        def __init__(self, *arguments: Any):
            dist._Work.__init__(self)
            kind.__init__(self, *arguments)

    Work.__name__ = Work.__qualname__ = "Dispatched" + kind.__name__
    return Work


DispatchedCompletedWork, DispatchedPendingWork = _dispatched(CompletedWork), _dispatched(PendingWork)
DispatchedBackgroundWork = _dispatched(BackgroundWork)


class CoalescedWork(dist._Work):
    """Several works as one."""

    def __init__(self, works: List[Any]):
        super().__init__()
        self._works = works

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits for all of them. Raises the first exception."""
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self) -> Future:
        futures = [work.get_future() for work in self._works]
        return dist.torch.futures.collect_all(futures).then(
            lambda all_: [tensor for future in all_.value() for tensor in future.value()]
        )


class _NotConnected:
    """Stands for the communicator of a group that is to be configured first."""

    handle, rank, world = 0, 0, 1

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"ProcessGroup {BACKEND} has not been initialized. Call reconfigure() before issuing "
            "collectives when enable_reconfigure=True."
        )


@profiled
class Backend(ReduceOps, GatherOps, ExchangeOps, BarrierOps, c10d.Backend):
    """The connected ranks of one group, with all operations of torch.distributed.

    store connects further groups of its ranks; comm is None for a group that is configured later.
    """

    def __init__(self, store: Any, comm: Optional[Communicator], rank: int, size: int, options: Any):
        c10d.Backend.__init__(self, rank, size)
        self._store, self._options, self._timeout = store, options, options._timeout
        self._groups = 0  # that were made of this one
        self._sequence, self._aborted = 0, False
        self._coalesced: Optional[List[Any]] = None
        self._made = threading.local()
        self._comm, self._handle, self._finalizer = _NotConnected(), 0, None
        self._rank, self._size = rank, size
        if comm is not None:
            self._connect(comm)

    def _connect(self, comm: Communicator) -> None:
        super()._connect(comm)
        self._rank, self._size, self._aborted = comm.rank, comm.world, False

    def reconnect(self, comm: Communicator) -> None:
        """Replaces the communicator. What is in progress on the old one fails here soon; members that
        have not ended an operation which this one has can do so."""
        before = self._finalizer
        self._connect(comm)
        self._sequence = 0
        if before is not None:
            leave_soon(before)

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    @property
    def options(self) -> Any:
        return self._options

    # All of these must be defined: torch would ask itself for one that is not, without end.
    supports_splitting = property(lambda self: True)
    supports_shrinking = property(lambda self: True)
    supports_coalescing = property(lambda self: True)
    supports_reconfigure = property(lambda self: True)  # by the group, see group.Group
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def _inline(self, size: int, opts: Any, wait: bool = False) -> Optional[Callable[[Any], Any]]:
        self._sequence += 1
        if self._coalesced is not None or size > INLINE_BYTES:
            return None
        return None if size >= 0 and getattr(opts, "asyncOp", False) else self._completed

    def _completed(self, result: Any) -> Any:
        self._made.work = work = DispatchedCompletedWork(result)
        return work

    def _pending(self, started: StartedOp) -> Any:
        return self._made_now(DispatchedPendingWork(started, self._waiter))

    def _background(self, op: BackgroundOp) -> Any:
        return self._made_now(DispatchedBackgroundWork(op))

    def _made_now(self, work: Any) -> Any:
        self._made.work = work
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def returned(self, work: Any) -> Any:
        """The Work that the calling thread's operation has made, in place of the dispatcher's."""
        made, self._made.work = getattr(self._made, "work", None), None
        return made or work

    def start_coalescing(self) -> None:
        """Starts operations from here on, so that they can be waited for together."""
        self._coalesced = []

    def end_coalescing(self) -> CoalescedWork:
        """Returns one Work for the operations since start_coalescing."""
        works, self._coalesced = self._coalesced or [], None
        return CoalescedWork(works)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time limit of operations that start from now on."""
        self._timeout = timeout
        if self._finalizer is not None:
            self._waiter.set_limit(timeout.total_seconds())

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 on all ranks."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def get_error(self) -> Any:
        """Whether the group works: SUCCESS also after abort(), which was asked for."""
        if self._finalizer is None or self._aborted:
            return c10d.ErrorType.SUCCESS
        if self._waiter.expired:
            return c10d.ErrorType.TIMEOUT
        if self._comm.failed() is not None:
            return c10d.ErrorType.COMM_ERROR
        return c10d.ErrorType.SUCCESS

    def abort(self) -> None:
        """Aborts the group on all ranks: operations in progress fail within milliseconds. It can be
        reconfigured."""
        self._aborted = True
        if self._finalizer is not None:
            super().abort()

    def shutdown(self) -> None:
        if self._finalizer is not None:
            self._finalizer()

    def _derived(self, store: Any, kind: str, ranks: List[int], options: Any) -> "Backend":
        """A group of some of the ranks, which all of them make, by these ranks' order."""
        self._groups += 1
        names = "-".join(map(str, ranks))
        within = c10d.PrefixStore(f"{kind}/{self._groups}/{names}/", store)
        rank = ranks.index(self.rank())
        comm = rendezvous.connect(within, rank, len(ranks), options._timeout)
        return Backend(within, comm, rank, len(ranks), options)

    def split(self, store: Any, ranks: List[int], opts: Any) -> "Backend":
        """A group of ranks of this one, in a new order. Called by its members."""
        return self._derived(store.clone(), "split", list(ranks), opts or Options(BACKEND, self._timeout))

    def merge(self, store: Any, opts: Any, rank: int, size: int) -> "Backend":
        """A group of this rank and others, which meet at a store."""
        options = opts or Options(BACKEND, self._timeout)
        within = c10d.PrefixStore("merge/", store.clone())
        comm = rendezvous.connect(within, rank, size, options._timeout)
        return Backend(within, comm, rank, size, options)

    def shrink(self, ranks_to_exclude: List[int], shrink_flags: int = 0, opts_override: Any = None) -> "Backend":
        """A group of the other ranks. Called by them; with SHRINK_ABORT, which is 1, what is in
        progress fails."""
        left = [r for r in range(self.size()) if r not in set(ranks_to_exclude)]
        if shrink_flags & 1:
            self.abort()
        options = opts_override or Options(BACKEND, self._timeout)
        return self._derived(self._store.clone(), "shrink", left, options)
