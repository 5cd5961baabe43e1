"""The exceptions of Regroup."""

from __future__ import annotations

from typing import Optional


class RegroupError(RuntimeError):
    """Base class of the errors of Regroup."""


class InvalidArgumentError(RegroupError, ValueError):
    """An argument or option is wrong; nothing was done."""


class NotInitializedError(RegroupError, ValueError):
    """init() has not been called."""


class WorkerLostError(RegroupError):
    """A worker died, left, stopped responding, or aborted the generation.

    Everything since the last commit is lost, on all ranks. ``elastic.run`` catches it and calls the
    training function again in the next generation. ``rank`` is the rank that was lost, None if
    unknown.
    """

    def __init__(self, message: str = "a worker was lost", rank: Optional[int] = None):
        super().__init__(message)
        self.rank = rank


#: The name that scripts for Horovod know.
HorovodInternalError = WorkerLostError


class DivergedError(RegroupError):
    """Ranks called different operations: a bug in the script, or ranks that run different ones."""


class ClosedError(RegroupError):
    """The object was closed by this process."""


class ForkedError(RegroupError):
    """This process was forked from one that uses Regroup, and cannot use it."""


class UnsupportedError(RegroupError):
    """A feature is unavailable here or on another rank; the text says which and why."""


class SilentCorruptionError(RegroupError):
    """This process computes something else than the others do: its processor, GPU or memory is at fault. It must not
    go on here. ``permanent`` says whether it did so again."""

    def __init__(self, message: str, permanent: bool = False):
        super().__init__(message)
        self.permanent = permanent


class StuckError(RegroupError):
    """A GPU library does not return. This process must be restarted."""


class WaitTimeoutError(RegroupError, TimeoutError):
    """The operation did not complete in time; it may still complete."""


class OperationTimeoutError(RegroupError, TimeoutError):
    """An operation did not complete within the time limit of its group, which was aborted on all
    ranks for that: they no longer agree on what was done."""


class WorkerExit(SystemExit):
    """This worker's part has ended as planned, but the training is not complete: elastic.run raises
    it.

    ``reason`` is "removed" (the job continues without this worker: a drain, a smaller job, a node
    that is taken away, or the others have completed the training) or "stopped" (the job is being
    stopped). The state of this process is not a result. Like any SystemExit it ends the process,
    with exit code 0, unless the script catches it.
    """

    def __init__(self, reason: str):
        super().__init__(0)
        self.reason = reason


class HostsUpdatedInterrupt(RuntimeError):
    """The members are about to change. Raised by ``commit()`` on all ranks at the same step, which
    has been saved.

    ``skip_sync`` exists for scripts that read it. It is always False: the sync finds out what each
    member lacks.

    A script may raise it too, on all ranks at the same step: the state is committed as it is, and the
    training function is called again in the next generation.
    """

    committed = False  #: whether commit() has raised it, which has saved the state

    def __init__(self, message: str = "the members are about to change", skip_sync: bool = False):
        super().__init__(message)
        self.skip_sync = skip_sync


class JobStoppedInterrupt(HostsUpdatedInterrupt):
    """The job is being stopped. Raised like its base; ``elastic.run`` then ends this worker, see
    WorkerExit."""

    def __init__(self, message: str = "the job is being stopped"):
        super().__init__(message)
