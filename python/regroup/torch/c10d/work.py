"""The Work objects that operations of the c10d backend return.

A caller in Python gets objects of this module, which raise the original exceptions. A caller in C++
(the reducer of DDP, the broadcast of its buffers) needs a C++ Work around a future: a Work class
derived in Python would be destroyed with its Python part while C++ waits for it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from ... import _library as lib
from ...communicator import Communicator

_c10d_file = dist.distributed_c10d.Backend.__new__.__code__.co_filename


_own = os.path.dirname((lambda: 0).__code__.co_filename) + os.sep


def called_by_python() -> bool:
    """Whether this package was called by a function of torch.distributed, so that a Python object
    may be returned. When it is called from C++, the frame below is another one, or there is none.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_own):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == _c10d_file


def _future(tensors: Any) -> Future:
    devices = {t.device for t in _flat(tensors) if t.device.type != "cpu"}
    return Future(devices=list(devices)) if devices else Future()


def _flat(tensors: Any):
    for t in tensors:
        if isinstance(t, torch.Tensor):
            yield t
        else:
            yield from _flat(t)


def completed_work(tensors: Any) -> Any:
    """A C++ Work that is complete."""
    future = _future(tensors)
    future.set_result(tensors)
    return _create_work_from_future(future)


class CompletedWork:
    """Work that has succeeded."""

    __slots__ = ("_tensors",)

    def __init__(self, tensors: Any):
        self._tensors = tensors

    def wait(self, timeout: Any = None) -> bool:
        """Returns at once."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self) -> None:
        """None."""
        return None

    def synchronize(self) -> None:
        """Returns at once."""

    def result(self) -> Any:
        """The tensors."""
        return self._tensors

    def get_future(self) -> Future:
        """A completed future."""
        future = _future(self._tensors)
        future.set_result(self._tensors)
        return future


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


class PendingWork:
    """Work that was started."""

    def __init__(self, started: StartedOp, waiter: "FutureWaiter"):
        self._started: Optional[StartedOp] = started
        self._waiter, self._tensors = waiter, started.tensors
        self._error: Optional[BaseException] = None
        self._future: Optional[Future] = None
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
                self._error = e
            _open.pop(started.request, None)
            self._started = None
            if self._error is None and started.finish is not None:
                started.finish()
            return True

    def wait(self, timeout: Any = None) -> bool:
        """Waits for the end. Raises the exception of a failed operation."""
        if self._future is not None:
            return self._of_future()
        self._ended(_wait)
        if self._error is not None:
            raise self._error
        return True

    def _of_future(self) -> bool:
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        if self._future is not None:
            return self._future.done()
        return self._ended(lib.test)

    def is_success(self) -> bool:
        """Whether it has succeeded."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[BaseException]:
        """The exception, if it has failed."""
        self.is_completed()
        return self._error

    def synchronize(self) -> None:
        """Waits for the end."""
        self.wait()

    def result(self) -> Any:
        """The tensors."""
        return self._tensors

    def get_future(self) -> Future:
        """A future that completes with the work."""
        with self._lock:
            if self._future is None:
                if self._started is None:
                    self._future = _future(self._tensors)
                    if self._error is not None:
                        self._future.set_exception(self._error)
                    else:
                        self._future.set_result(self._tensors)
                else:
                    started, self._started = self._started, None
                    _open.pop(started.request, None)
                    self._future = self._waiter.future(started)
            return self._future


def _wait(request: int) -> bool:
    lib.wait(request)
    return True


class FutureWaiter:
    """Completes futures on a background thread, which is started with the first of them."""

    def __init__(self, comm: Communicator):
        self._handle = comm.handle
        self._lock = threading.Lock()
        self._waiting: Dict[int, Tuple[Future, StartedOp]] = {}
        self._running = False

    def future(self, started: StartedOp) -> Future:
        """A future for a request. Errors are set as the value of an inner future and raised by the
        one that is returned: in torch 1.13 C++ does not see an error that is set directly."""
        inner = _future(started.tensors)
        outer = inner.then(_unwrap)
        with self._lock:
            self._waiting[started.request] = (inner, started)
            if not self._running:
                self._running = True
                threading.Thread(target=self._wait, name="regroup-waiter", daemon=True).start()
        lib.check(lib.library().rg_watch(started.request))
        return outer

    def work(self, started: StartedOp) -> Any:
        """A C++ Work for a request."""
        return _create_work_from_future(self.future(started))

    def _wait(self) -> None:
        library = lib.library()
        request, how = ctypes.c_uint64(), ctypes.c_int32()
        while True:
            if library.rg_wait_any(self._handle, -1, ctypes.byref(request), ctypes.byref(how)):
                return  # the communicator is closed, and nothing is left
            error = None if how.value == lib.OK else lib.failure(how.value)
            with self._lock:
                future, started = self._waiting.pop(request.value)
            try:
                if error is None and started.finish is not None:
                    started.finish()
            except Exception as e:
                error = e
            future.set_result(started.tensors if error is None else error)


def _unwrap(future: Future) -> Any:
    value = future.value()
    if isinstance(value, BaseException):
        raise value
    return value
