"""Barriers: barrier, and monitored_barrier, which says who has not come."""

from __future__ import annotations

import time
from typing import Any, List

import torch

from ... import _library as lib
from ...errors import RegroupError, WorkerLostError
from .operations import Operations
from .work import DistTimeoutError

#: The tag of the messages of a monitored barrier. Callers cannot use negative ones.
_TAG = -1

#: What those messages hold. It is never freed, so an exception may end the wait for one.
_byte = torch.zeros(1, dtype=torch.uint8)


class BarrierOps(Operations):
    """barrier, monitored_barrier."""

    def barrier(self, opts: Any = None) -> Any:
        """Returns when every rank has called it."""
        return self._run(0, self._comm.barrier, None, [], opts, wait=True)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Returns when every rank has called it. Rank 0 waits for the others, and after the timeout
        says which has not come, or with wait_all_ranks which have not, and ends the group on all
        ranks. timeout is a timedelta, or options that have one."""
        timeout = getattr(timeout, "timeout", timeout)
        if timeout is None or timeout.total_seconds() < 0:  # of the group
            timeout = self._timeout
        if self._comm.rank == 0:
            self._monitor(timeout.total_seconds() if timeout else 0, timeout, wait_all_ranks)
            return
        try:
            requests = [self._message(self._comm.send, 0), self._message(self._comm.recv, 0)]
            self._end(requests, self._waiter.deadline())
        except RegroupError as e:
            lost = {"rank": e.rank} if isinstance(e, WorkerLostError) else {}
            raise type(e)(
                f"Rank {self._comm.rank} successfully reached monitoredBarrier, but received errors "
                f"while waiting for send/recv from rank 0: {e}",
                **lost,
            ) from e

    def _message(self, move: Any, rank: int) -> int:
        return move(_byte.data_ptr(), 1, rank, _TAG, start=True)

    def _monitor(self, limit: float, given: Any, wait_all_ranks: bool) -> None:
        """The part of rank 0."""
        if given is not None and limit == 0:
            # Nothing was done, and another rank may still be connecting: the group goes on.
            raise DistTimeoutError("Rank 0 timed out in monitoredBarrier: its timeout is 0 s")
        end = time.monotonic() + limit if given is not None else None
        others = range(1, self._comm.world)
        missing: List[int] = []
        try:
            arrivals = {r: self._message(self._comm.recv, r) for r in others}
            for r in others:
                if not lib.wait(arrivals[r], end):
                    missing.append(r)
                    if not wait_all_ranks:
                        break
        except WorkerLostError as e:
            who = "A rank" if e.rank is None else f"Rank {e.rank}"
            raise WorkerLostError(f"{who} failed to pass monitoredBarrier: {e}", e.rank) from e
        if missing:
            names = ", ".join(map(str, missing))
            ranks = f"Ranks {names}" if wait_all_ranks else f"Rank {names}"
            self._missed(f"{ranks} failed to pass monitoredBarrier in {limit:g} s")
        self._end([self._message(self._comm.send, r) for r in others], self._waiter.deadline())

    def _missed(self, why: str) -> None:
        """Ends the group: what the missing ranks do next would meet another operation."""
        self._comm.abort(f"rank 0: {why}")
        raise DistTimeoutError(why)
