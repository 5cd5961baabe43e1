"""elastic.run: calls the training function in one generation after the other."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
import traceback
from typing import Any, Callable, Iterator, Optional

from ... import _library as lib
from ... import place as places
from ...errors import (
    HostsUpdatedInterrupt,
    JobStoppedInterrupt,
    RegroupError,
    StuckError,
    WorkerLostError,
)
from ...training import Training
from .. import handles
from ..world import world
from .state import State


def run(func: Callable) -> Callable:
    """Decorates a training function: ``train(state, ...)`` is called again after each change of the members.

    When it is called, rank() and size() are those of the generation, and the state is the newest commit that any member
    holds. It ends by returning, on all ranks; by a collective operation that fails (WorkerLostError, which scripts for
    Horovod know as HorovodInternalError): then the state returns to the last commit; or by HostsUpdatedInterrupt from
    ``state.commit()``. Any other exception ends this worker.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise RegroupError(f"the first argument is a {type(state).__name__}, not a State")
        world.initialized()
        if world.mode == places.STATIC and world.place.size > 1:
            return _once(func, state, args, kwargs)
        return _Run(func, state, args, kwargs).run()

    return wrapper


def _once(func: Callable, state: State, args: tuple, kwargs: dict) -> Any:
    """With ranks that a launcher has given, there is one generation; after a loss the launcher starts all again."""
    state.sync()
    return func(state, *args, **kwargs)


@contextlib.contextmanager
def _stopped_by_sigterm(training: Training) -> Iterator[None]:
    """While a worker of an agent trains, SIGTERM means: leave at the next commit. That is how an agent stops workers; it
    kills them when their grace is over. Whoever handled the signal before is called as well."""
    before = signal.getsignal(signal.SIGTERM)
    if (
        world.mode != places.ELASTIC
        or before in (signal.SIG_IGN, None)  # None: by something that is not Python
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def handle(number: int, frame: Any) -> None:
        training.stop()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Run:
    def __init__(self, func: Callable, state: State, args: tuple, kwargs: dict):
        self._func, self._state, self._args, self._kwargs = func, state, args, kwargs
        self._interrupt: Optional[Exception] = None  # that ended the last generation
        samplers = state._samplers()
        world.sampler = samplers[0] if samplers else None
        self._training = Training(
            samples=len(samplers[0].dataset) if samplers else 0,
            seed=samplers[0].seed if samplers else 0,
            log=world.mode == places.ELASTIC,
        )

    def run(self) -> Any:
        """Trains to the end."""
        with _stopped_by_sigterm(self._training):
            return self._run()

    def _run(self) -> Any:
        training = self._training
        result = None
        lost = False
        try:
            self._state._register(training)
            self._state.save()
            training.start()
            first = world.mode == places.ALONE
            while True:
                session = training.next()
                if session is None:
                    if self._interrupt is not None and world.mode == places.ALONE:
                        raise self._interrupt  # there is nobody to regroup with
                    return result
                world.enter(session)
                world.training, world.consumed = training, False
                how, why, result = self._train(lost, reset=not first)
                first, lost = False, how == lib.PEER_LOST
                self._leave(how, why)
        finally:
            world.training, world.sampler = None, None
            world.leave()
            training.close()
            world.end()
            handles.forget()

    def _leave(self, how: int, why: str) -> None:
        world.training = None
        world.leave()
        self._training.leave(how, why)
        handles.forget()

    def _train(self, lost: bool, reset: bool) -> Any:
        """Calls the function in a new generation; returns how it ended."""
        self._interrupt = None
        try:
            world.survey()
            self._state._enter(self._training, lost)
            if reset:
                self._state.on_reset()
            return lib.OK, "", self._func(self._state, *self._args, **self._kwargs)
        except JobStoppedInterrupt:
            return lib.STOPPED, "", None
        except HostsUpdatedInterrupt as e:
            self._interrupt = e
            return lib.PLANNED, "", None
        except Exception as e:
            # Operations that torch carries out for us (DDP's, autograd's) lose the type of an error on their way.
            over = isinstance(e, WorkerLostError) or world.failed() is not None
            if over and not isinstance(e, StuckError):  # who is stuck must be started again
                self._interrupt = e
                return lib.PEER_LOST, str(e), None
            self._leave(lib.FAILED, "".join(traceback.format_exception_only(type(e), e)).strip())
            raise
        except BaseException as e:
            self._leave(lib.FAILED, repr(e))
            raise
