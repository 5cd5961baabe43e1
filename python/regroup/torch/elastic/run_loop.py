"""elastic.run: calls the training function in one generation after the other."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import signal
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, Optional, TypeVar, cast

from ... import _library as lib
from ... import membership, settings
from ...errors import HostsUpdatedInterrupt, JobStoppedInterrupt, RegroupError, StuckError, WorkerLostError
from ...training import Training
from .. import handles
from ..world import describe, world
from .object_state import State

_Function = TypeVar("_Function", bound=Callable[..., Any])


def run(func: _Function) -> _Function:
    """Decorates a training function: ``train(state, ...)`` is called again after each change of the
    members.

    When it is called, rank() and size() are those of the generation, and the state is the newest
    commit that any member has. The call ends by returning, on all ranks; by a failed collective
    operation (WorkerLostError, which scripts for Horovod know as HorovodInternalError), after which
    the state returns to the last commit; or by HostsUpdatedInterrupt from ``state.commit()``. If the
    script raises that itself, on all ranks at the same step, the training goes on from the state as
    it is then. Any other exception ends this worker.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise RegroupError(f"the first argument is a {type(state).__name__}, not a State")
        world.initialized()
        if world.mode == membership.STATIC and world.membership.size > 1:
            # The ranks are a launcher's, in one generation: after a loss it restarts all workers.
            state.sync()
            result = func(state, *args, **kwargs)
            state._returned()
            return result
        return _RunLoop(func, state, args, kwargs).run()

    return cast(_Function, wrapper)


@contextlib.contextmanager
def _stopped_by_sigterm(training: Training) -> Iterator[None]:
    """Makes a worker leave at the next commit on SIGTERM, with which an agent stops its workers
    before it kills them. The previous signal handler is called too."""
    previous = signal.getsignal(signal.SIGTERM)
    if (
        world.mode != membership.ELASTIC
        or previous in (signal.SIG_IGN, None)  # None: not a Python handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def handle(number: int, frame: Any) -> None:
        training.stop()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _all_raise() -> bool:
    """Whether all ranks have raised HostsUpdatedInterrupt. Those that have not for as long as named
    operations may wait for each other do something else."""
    comm = world.communicator
    if comm is None or comm.world == 1:
        return True
    limit = settings.named()["deadlock_ms"] / 1000
    ones = (ctypes.c_int64 * 1)(1)
    address = ctypes.addressof(ones)
    request = comm.named.allreduce(address, 1, lib.INT64, lib.MAX, start=True, name="elastic.interrupt")
    ended: List[Any] = []

    def wait() -> None:
        try:
            ended.append(lib.wait(request, time.monotonic() + limit if limit > 0 else None))
        except Exception as e:
            ended.append(e)

    # Not on this thread: the ranks' main threads do not wait for each other here.
    thread = threading.Thread(target=wait, name="regroup-interrupt", daemon=True)
    thread.start()
    thread.join()
    if isinstance(ended[0], Exception):
        raise ended[0]
    if not ended[0]:
        _unanswered.append(ones)
        print(
            f"regroup: rank {comm.rank} has raised HostsUpdatedInterrupt, and others have not within {limit:g} s: all "
            "return to the last commit",
            file=sys.stderr,
        )
    return ended[0]


#: Memory of operations that others have not started.
_unanswered: List[Any] = []


class _RunLoop:
    def __init__(self, func: Callable, state: State, args: tuple, kwargs: dict):
        self._func, self._state, self._args, self._kwargs = func, state, args, kwargs
        self._interrupt: Optional[Exception] = None  # that ended the last generation
        self._survivor = False  # the state was in a generation before
        self._met: Optional[int] = None  # the generation that the follower has entered
        self._elastic = world.mode == membership.ELASTIC
        if self._elastic and (world.job is None or not world.recording):
            raise RegroupError(
                "elastic.run trains once in a process of a job with --recovery in-process: a worker that comes in later "
                "could not be told which of several trainings the others are in; put both into one function, with what "
                "tells them apart in the state"
            )
        self._training = world.job if self._elastic else Training(log=False)

    def run(self) -> Any:
        finished = lost = False
        with _stopped_by_sigterm(self._training):
            try:
                self._begin()
                while self._next():
                    status, reason, result = self._train(lost)
                    lost = status == lib.PEER_LOST
                    self._leave(status, reason)
                finished = True
                return result
            finally:
                self._end(finished)

    def _begin(self) -> None:
        """Registers the state with the engine."""
        training, state = self._training, self._state
        samplers = state._samplers()
        world.sampler = samplers[0] if samplers else None
        if world.sampler is not None:
            training.data(len(world.sampler.dataset), world.sampler.seed)
        if world.prologue is not None:
            world.prologue.check(state)
        state._register(training)
        if not self._elastic:
            training.start()
            return
        world.recording, world.prologue = False, None
        handles.forget()
        if world.follower is not None:
            world.follower.prepare()
        training.leave(lib.OK)

    def _next(self) -> bool:
        """Waits for the next generation; False if the training is complete."""
        while self._session():
            if world.stage != lib.ARRANGING:
                return True
            status, reason, _ = self._attempt(self._arrange)
            if status == lib.OK:
                handles.forget()
                self._training.leave(lib.OK)
            else:
                self._leave(status, reason)
        return False

    def _session(self) -> bool:
        """Waits for the next session; False if there is none."""
        if self._elastic:
            return world.next_generation()
        session = self._training.next()
        if session is None:
            if self._interrupt is not None:
                raise self._interrupt  # there are no peers to regroup with
            return False
        world.enter(session)
        return True

    def _arrange(self) -> None:
        """Has the state make what this rank has of it in the new generation."""
        self._meet()
        self._state._arrange(self._training)
        if world.follower is not None:
            world.follower.guard(world.communicator)  # the groups of device meshes too

    def _meet(self) -> None:
        """Makes the members of the generation those of everything that follows it, once."""
        if self._met == world.membership.generation:
            return
        world.check_gpus()
        if world.follower is not None:
            world.follower.enter(world.communicator, world.membership.generation)
        self._met = world.membership.generation

    def _leave(self, status: int, reason: str) -> None:
        """Ends this worker's part in a generation. After the last one the ranks can still
        communicate."""
        if status != lib.FAILED and world.training is not None:
            self._state._leaves(self._training, status == lib.OK)
        world.training = None
        if status != lib.OK:
            world.leave()
        handles.forget()
        world.stage = None
        self._training.leave(status, reason)

    def _end(self, finished: bool) -> None:
        self._state._end()
        world.training, world.sampler = None, None
        handles.forget()
        if world.follower is not None and finished:
            world.follower.finish()
        if self._elastic and finished:
            return  # the job lasts until the process ends
        world.leave()
        world.stage = None
        self._training.close()
        if self._elastic:
            world.job, world.recording, world.prologue = None, False, None
        world.end()

    def _call(self) -> Any:
        """Calls the function. If the script has raised HostsUpdatedInterrupt, and so on all ranks, the
        state is committed as it is."""
        try:
            return self._func(self._state, *self._args, **self._kwargs)
        except HostsUpdatedInterrupt as e:
            if not e.committed and _all_raise():
                self._state.commit()
            raise

    def _train(self, lost: bool) -> Any:
        """Calls the function in a new generation; returns the outcome."""

        def train() -> Any:
            self._meet()
            self._state._enter(self._training, lost, self._survivor)
            self._survivor = True
            if self._elastic and (world.membership.generation > 1 or world.step > 0):
                self._state.on_reset()
            result = self._call()
            self._state._returned()
            return result

        world.training, world.consumed = self._training, False
        return self._attempt(train)

    def _attempt(self, what: Callable[[], Any]) -> Any:
        """Does something in a generation; returns how that ends for the generation, why, and the
        result. An error that is not about the generation is raised."""
        self._interrupt = None
        try:
            return lib.OK, "", what()
        except JobStoppedInterrupt:
            return lib.STOPPED, "", None
        except HostsUpdatedInterrupt as e:
            self._interrupt = e
            return lib.PLANNED, "", None
        except Exception as e:
            # Operations that torch executes (for DDP, in autograd) do not preserve the type of an
            # error.
            over = isinstance(e, WorkerLostError) or world.failed() is not None
            if world.follower is not None:
                over = world.follower.failed() or over
                e = world.follower.stuck or e
            if over and not isinstance(e, StuckError):  # a stuck worker must be restarted
                self._interrupt = e
                return lib.PEER_LOST, str(e), None
            self._leave(lib.FAILED, describe(e))
            raise e
        except BaseException as e:
            self._leave(lib.FAILED, repr(e))
            raise
