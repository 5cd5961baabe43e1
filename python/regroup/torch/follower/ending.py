"""The end of groups whose generation is over, beside the start of the next one.

To abort NCCL takes half a second, in which nothing that follows needs the old group: not the agreement
on the members, and not the new group. Order is kept by the GPU: a stream goes on behind the kernels of
the old group, which end as soon as the abort has begun.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from contextlib import suppress
from typing import Any, Callable, List, Optional

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ...errors import StuckError
from . import spans

#: How long a group may take to end, in seconds. After that its process is of no use: NCCL may hold the
#: GPU for ever.
LIMIT = 30.0

#: How long a process that is stuck may take to say so and to end by itself, in seconds.
GRACE = 5.0

_STDERR = 2


def current() -> List[Any]:
    """The groups that torch knows, the newest first: the order in which torch ends them."""
    names = dict(distributed_c10d._world.pg_names)
    return sorted(names, key=lambda group: names[group], reverse=True)


def forget() -> None:
    """Has torch forget all its groups, as destroy_process_group does, which also waits for their end."""
    distributed_c10d._world.pg_names.clear()  # the groups that it would wait for
    dist.destroy_process_group()


def abort(group: Any) -> None:
    """Ends what is in progress in a group, where its backends can, and returns when it has ended."""
    for backend in backends(group):
        if hasattr(backend, "abort"):
            with suppress(RuntimeError):  # it is not connected, or its communicators end with an error
                backend.abort()


def backends(group: Any) -> List[Any]:
    """The backends of a group, each once; a group that is written in Python may be its own."""
    found = [group._get_backend(device) for device in group._device_types] or [group]
    return [b for i, b in enumerate(found) if all(b is not other for other in found[:i])]


class Ending:
    """The end of groups, each on a thread of its own: the abort of one may wait for that of another. When
    all are aborted, and the program has left them, they are shut down and released."""

    def __init__(self, groups: List[Any], aborts: bool, stuck: Callable[[StuckError], None]):
        """aborts = False: nothing has failed, so that a shutdown ends them. stuck is called if they do
        not end."""
        self.groups = groups
        self.began, self.ended = time.monotonic(), 0.0  # of the abort and the shutdown, monotonic
        self.error: Optional[StuckError] = None
        self._aborts, self._stuck = aborts, stuck
        self._generation = 0
        self._aborted, self._left = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="regroup-ending", daemon=True)
        self._thread.start()

    def release(self, generation: int) -> None:
        """Says that torch has forgotten the groups and the program has left them, for a generation."""
        self._generation = generation
        self._left.set()

    def wait_aborted(self) -> None:
        """Waits until all are aborted. Raises StuckError if they are not within LIMIT."""
        self._aborted.wait()
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Waits for the end, or until it has taken too long."""
        self._thread.join()

    def _run(self) -> None:
        if self._aborts and not self._within(abort, self.groups):
            return
        self._aborted.set()
        self._left.wait()
        if self._within(_shut_down, [self.groups]):
            self.groups = []
            self.ended = time.monotonic()
            spans.report(self._generation, spans.ENDS, self.began, self.ended)

    def _within(self, what: Callable[[Any], None], each: List[Any]) -> bool:
        """Does something with each on a thread; returns whether all have ended in time."""
        threads = [threading.Thread(target=what, args=(one,), name="regroup-ending", daemon=True) for one in each]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + LIMIT
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            return True
        self.error = StuckError(
            f"the group of a generation that is over has not ended within {LIMIT:g} s: this process must be restarted"
        )
        # Its main thread may wait for the GPU, its end for the group, and neither needs to let Python go on.
        faulthandler.dump_traceback_later(GRACE, exit=True, file=_STDERR)
        self._aborted.set()
        self._stuck(self.error)
        return False


def _shut_down(groups: List[Any]) -> None:
    for group in groups:
        with suppress(RuntimeError):  # of one that was aborted
            group.shutdown()
