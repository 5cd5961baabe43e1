"""What can go wrong, as exceptions."""

from __future__ import annotations

from typing import Optional


class RegroupError(RuntimeError):
    """Anything that Regroup reports. The text says what and why."""


class InvalidArgumentError(RegroupError, ValueError):
    """An argument or option is wrong; nothing was done."""


class NotInitializedError(RegroupError, ValueError):
    """init() has not been called."""


class WorkerLostError(RegroupError):
    """A worker died, left, fell silent, or gave the generation up.

    Everything since the last commit is void, on all ranks. ``elastic.run`` catches it and calls the training function
    again in the next generation. ``rank`` is who was lost, None if that is not known.
    """

    def __init__(self, message: str = "a worker was lost", rank: Optional[int] = None):
        super().__init__(message)
        self.rank = rank


#: The name that scripts for Horovod know.
HorovodInternalError = WorkerLostError


class DivergedError(RegroupError):
    """Ranks called different operations: a bug in the script, or ranks that run different ones."""


class ClosedError(RegroupError):
    """It was closed by this process."""


class ForkedError(RegroupError):
    """This process was forked from one that uses Regroup, and cannot."""


class UnsupportedError(RegroupError):
    """It is not to be had here, or not on another rank; the text says which and why."""


class StuckError(RegroupError):
    """A library of a GPU does not return. This process must end, and be started again."""


class WaitTimeoutError(RegroupError, TimeoutError):
    """It did not happen in time; it may still."""


class WorkerExit(SystemExit):
    """This worker's part has ended in order, and the training has not: elastic.run raises it.

    ``reason`` is "removed" (the job goes on without this worker: a drain, a smaller job, a node that is taken away, or the
    others have completed the training) or "stopped" (the job is being stopped). What this process holds is no result. As
    any SystemExit it ends the process, with exit code 0, unless the script catches it.
    """

    def __init__(self, reason: str):
        super().__init__(0)
        self.reason = reason


class HostsUpdatedInterrupt(RuntimeError):
    """The members are about to change. Raised by ``commit()`` on all ranks at the same step, which has been saved.

    ``skip_sync`` exists for scripts that look at it; it is always False, because who needs what is decided for each
    member by what it holds.
    """

    def __init__(self, message: str = "the members are about to change", skip_sync: bool = False):
        super().__init__(message)
        self.skip_sync = skip_sync


class JobStoppedInterrupt(HostsUpdatedInterrupt):
    """The job is being stopped. Raised like its base; ``elastic.run`` then ends this worker, see WorkerExit."""

    def __init__(self, message: str = "the job is being stopped"):
        super().__init__(message)
