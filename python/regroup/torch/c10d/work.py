"""The Work objects that operations of the c10d backend return.

A caller in Python gets objects of this module, which raise the original exceptions. Before torch
2.14 a caller in C++ (the reducer of DDP, the broadcast of its buffers) needs a C++ Work around a
future: a Work class derived in Python would be destroyed with its Python part while C++ waits for
it. Since 2.14 C++ holds the Python part, and asks it for wait and get_future.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from ... import _library as lib
from ...communicator import Communicator
from ...errors import OperationTimeoutError, WaitTimeoutError
from .leaving import busy


class DistTimeoutError(OperationTimeoutError, dist.DistBackendError):
    """OperationTimeoutError as torch's own exception."""


_c10d_file = dist.distributed_c10d.Backend.__new__.__code__.co_filename
_own = os.path.dirname((lambda: 0).__code__.co_filename) + os.sep

#: Whether a function is one of torch.distributed, by its code.
of_torch: Dict[Any, bool] = {}


def torch_frame(depth: int = 1) -> Any:
    """The frame of the function of torch.distributed that called this package; None if the caller
    is C++: then the frame below is another one, or there is none. depth says how many frames of this
    package are certainly in between."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        found = of_torch.get(code)
        if found is None:
            if code.co_filename.startswith(_own):
                frame = frame.f_back
                continue
            found = of_torch[code] = code.co_filename == _c10d_file
        return frame if found else None
    return None


def called_by_python() -> bool:
    """Whether this package was called by a function of torch.distributed, so that a Python object
    may be returned."""
    return torch_frame(2) is not None


def _future(tensors: Any) -> Future:
    devices = {t.device for t in _flat(tensors) if t.device.type != "cpu"}
    return Future(devices=list(devices)) if devices else Future()


def _flat(tensors: Any):
    if isinstance(tensors, torch.Tensor):
        yield tensors
        return
    for t in tensors:
        yield from _flat(t)


def ended_future(tensors: Any, error: Optional[BaseException] = None) -> Future:
    """A completed future. An error is the value of an inner future and raised by the one that is
    returned: C++ takes an error that is set directly for success."""
    future = _future(tensors)
    if error is None:
        future.set_result(tensors)
        return future
    failed = future.then(_unwrap)
    future.set_result(error)
    return failed


def completed_work(tensors: Any) -> Any:
    return _create_work_from_future(ended_future(tensors))


class BaseWork:
    """What is the same for every Work: it has tensors, and an error if it has failed."""

    _tensors: Any
    _error: Optional[BaseException]

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits for the end. Raises the exception of a failed operation. After a timeout, zero =
        none, it raises WaitTimeoutError, and the operation continues."""
        raise NotImplementedError

    def is_completed(self) -> bool:
        """Whether it has ended."""
        raise NotImplementedError

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error if self.is_completed() else None

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> Any:
        return self._tensors


class CompletedWork(BaseWork):
    """Work that has succeeded."""

    _error = None

    def __init__(self, tensors: Any):
        self._tensors = tensors

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Future:
        return ended_future(self._tensors)


#: Work in progress, by request: its memory must stay valid, whatever the script does with it.
_open: Dict[int, "PendingWork"] = {}

#: The number of open operations from which on completed ones are collected: scripts may never wait.
_MANY = 64


class StartedOp(NamedTuple):
    """An operation in progress."""

    request: int
    tensors: Any  # of the caller: the result
    finish: Optional[Callable[[], Any]]  # copies the result to where it belongs
    keep: Any  # references the memory that the engine works on
    source: Any = None  # set to the rank that a message came from


class PendingWork(BaseWork):
    """Work that was started."""

    def __init__(self, started: StartedOp, waiter: "Waiter"):
        self._started: Optional[StartedOp] = started
        self._waiter, self._tensors, self._source = waiter, started.tensors, started.source
        self._error: Optional[BaseException] = None
        self._future: Optional[Future] = None
        self._deadline = waiter.deadline()
        self._lock = threading.Lock()
        if len(_open) >= _MANY:
            for other in list(_open.values()):  # that nobody waits for
                other.is_completed()
        _open[started.request] = self

    def _ended(self, ask: Callable[[int], bool]) -> bool:
        """Checks whether it has ended, and records the result."""
        with self._lock:
            started = self._started
            if started is None:
                return True
            try:
                if not ask(started.request):
                    return False
            except KeyboardInterrupt:
                raise  # the operation continues
            except BaseException as e:
                self._error = self._waiter.cause(e)
            _open.pop(started.request, None)
            self._started = None
            if self._error is None and started.finish is not None:
                with torch.no_grad():
                    started.finish()
            return True

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        limit = timeout.total_seconds() if timeout else 0
        end = time.monotonic() + limit if limit > 0 else None
        if self._future is not None:
            return self._wait_for_future(end)
        deadline = self._deadline
        early = end is not None and (deadline is None or end < deadline)
        until = end if early else deadline
        if not self._ended(lambda request: lib.wait(request, until)):
            if early:
                raise WaitTimeoutError(f"the operation has not ended after {timeout}")
            self._waiter.expire()
            self._ended(lib.wait)
        if self._error is not None:
            raise self._error
        return True

    def _wait_for_future(self, end: Optional[float]) -> bool:
        if end is not None:
            ended = threading.Event()
            self._future.add_done_callback(lambda _: ended.set())
            if not ended.wait(max(0.0, end - time.monotonic())):
                raise WaitTimeoutError("the operation has not ended in time")
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        if self._future is not None:
            return self._future.done()
        return self._ended(lib.test)

    def source_rank(self) -> int:
        """The rank that a message came from, once it has."""
        return self._source.value

    _source_rank = source_rank

    def get_future(self) -> Future:
        with self._lock:
            if self._future is None:
                if self._started is None:
                    self._future = ended_future(self._tensors, self._error)
                else:
                    started, self._started = self._started, None
                    _open.pop(started.request, None)
                    self._future = self._waiter.future(started, self._deadline)
            return self._future


class Waiter:
    """Waits for the operations of one communicator, within the time limit of its group in seconds; 0
    = none.

    An operation that has not ended by then aborts the communicator, because the ranks no longer
    agree on what was done. Threads of its own complete futures, and watch what is in progress while
    nobody waits for it with a time limit; each is started when it is needed first.
    """

    def __init__(self, comm: Communicator, limit: float):
        self._comm, self._handle, self._limit = comm, comm.handle, limit
        self._changed = threading.Condition()
        self._waiting: Dict[int, Tuple[Future, StartedOp]] = {}
        self._deadlines: Dict[int, float] = {}  # by request
        #: When an operation began that a thread executes, by thread and time.monotonic.
        self.inline: Dict[int, float] = {}
        self._free = 0  # threads that wait for an operation to end, and run no callback
        self.watching = self._closed = False
        self._last: Optional[Callable[[], None]] = None  # what the thread that watches does last
        self._expired: Optional[OperationTimeoutError] = None

    @property
    def expired(self) -> bool:
        """Whether an operation has not ended within the limit."""
        return self._expired is not None

    def set_limit(self, limit: float) -> None:
        """Sets the limit of operations that start from now on."""
        with self._changed:
            self._limit = limit
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread that watches. That of the futures ends with the communicator."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def close_and(self, then: Callable[[], None]) -> None:
        """Closes, and has the thread that watches call then, if there is one: the caller does not
        wait for it."""
        with self._changed:
            if self.watching and not self._closed and self._expired is None:
                self._last, then = then, lambda: None
        self.close()
        then()

    def deadline(self) -> Optional[float]:
        """When an operation that starts now fails, by time.monotonic; None = never."""
        return time.monotonic() + self._limit if self._limit > 0 else None

    def expire(self) -> None:
        """Aborts the communicator, because an operation has not ended within the limit."""
        if self._expired is None:
            self._expired = DistTimeoutError(
                f"an operation timed out: it has not ended within the timeout of {self._limit:g} s"
            )
            self._comm.abort(f"rank {self._comm.rank}: {self._expired}")

    def cause(self, error: BaseException) -> BaseException:
        """The error that the caller gets: the timeout, if that is why an operation failed."""
        return self._expired or error

    def future(self, started: StartedOp, deadline: Optional[float]) -> Future:
        """A future for a request. See ended_future for its errors."""
        inner = _future(started.tensors)
        outer = inner.then(_unwrap)
        with self._changed:
            self._waiting[started.request] = (inner, started)
            if deadline is not None:
                self._deadlines[started.request] = deadline
            self._ensure_free()
        if not self.watching:
            self.watch()
        lib.check(lib.library().rg_watch(started.request))
        return outer

    def work(self, started: StartedOp) -> Any:
        """A C++ Work for a request."""
        return _create_work_from_future(self.future(started, self.deadline()))

    def _ensure_free(self) -> None:
        """Starts a thread that completes futures if the others run callbacks, which may wait for
        another operation. The caller holds the lock."""
        if self._free == 0:
            self._free += 1
            threading.Thread(target=self._complete, name="regroup-waiter", daemon=True).start()

    #: Threads above this number end when they are free.
    _MOST_FREE = 2

    def _complete(self) -> None:
        library = lib.library()
        request, how = ctypes.c_uint64(), ctypes.c_int32()
        while True:
            if library.rg_wait_any(self._handle, -1, ctypes.byref(request), ctypes.byref(how)):
                return  # the communicator is closed, and nothing is left
            with busy:
                self._complete_one(request.value, how.value)
            with self._changed:
                if self._free >= self._MOST_FREE:
                    return
                self._free += 1

    def _complete_one(self, request: int, how: int) -> None:
        """Completes the future of a request. Nothing of it is left in the thread afterwards."""
        error = None if how == lib.OK else self.cause(lib.failure(how))
        with self._changed:
            future, started = self._waiting.pop(request)
            self._deadlines.pop(request, None)
            self._free -= 1
            if self._waiting:
                self._ensure_free()
        try:
            if error is None and started.finish is not None:
                with torch.no_grad():
                    started.finish()
        except Exception as e:
            error = e
        future.set_result(started.tensors if error is None else error)

    def watch(self) -> None:
        """Starts the thread that watches."""
        with self._changed:
            if not self.watching:
                self.watching = True
                # Thread.start waits until the thread runs, for longer than an operation takes.
                _thread.start_new_thread(self._expire_overdue, ())

    def _expire_overdue(self) -> None:
        with self._changed:
            while not self._closed and self._expired is None:
                limit = self._limit
                if limit <= 0:
                    self._changed.wait()
                    continue
                now = time.monotonic()
                # What starts while the thread sleeps has a later deadline than what starts now.
                ends = [began + limit for began in list(self.inline.values())]
                first = min(ends + list(self._deadlines.values()), default=now + limit)
                if first > now:
                    self._changed.wait(min(first - now, threading.TIMEOUT_MAX))
                else:
                    self.expire()
            last = self._last
        if last is not None:
            last()


def _unwrap(future: Future) -> Any:
    value = future.value()
    if isinstance(value, BaseException):
        raise value
    return value
