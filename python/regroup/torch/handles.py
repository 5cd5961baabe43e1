"""Handles of started operations: poll and synchronize."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError

#: Operations in progress: their memory must stay valid, whatever the script does with the handle.
_open: Dict[int, "Handle"] = {}


class Handle:
    """A started operation. It references the memory that the engine works on."""

    __slots__ = ("_request", "_finish", "_result", "_error")

    def __init__(self, request: Optional[int], finish: Callable[[], Any]):
        self._request, self._finish, self._result = request, finish, None
        self._error: Optional[BaseException] = None
        if request is not None:
            _open[request] = self

    def _test(self) -> bool:
        return lib.test(self._request)

    def _wait(self) -> None:
        lib.wait(self._request)

    def _ended(self) -> None:
        _open.pop(self._request, None)
        self._request = None

    def poll(self) -> bool:
        """Whether it has ended. An error is raised by synchronize."""
        if self._request is not None:
            try:
                if self._test():
                    self._ended()
            except Exception as e:
                self._ended()
                self._error = e
        return self._request is None

    def synchronize(self) -> Any:
        """Waits for the end; returns the result."""
        if self._request is not None:
            try:
                self._wait()
            except KeyboardInterrupt:
                raise  # the operation continues
            except BaseException as e:
                self._ended()
                self._error = e
                raise
            self._ended()
        if self._error is not None:
            raise self._error
        if self._finish is not None:
            self._result, self._finish = self._finish(), None
        return self._result


class LaterHandle(Handle):
    """An operation that begins when another one has ended, which says how much memory it needs. begin
    waits for that and returns the handle. It runs on a thread of its own, so that ranks may start such
    operations in any order; what it does on a GPU comes after the work that the stream has now."""

    __slots__ = ("_thread", "_begun")

    def __init__(self, begin: Callable[[], Handle], stream: Any = None):
        super().__init__(None, lambda: self._begun.synchronize())  # type: ignore[union-attr]
        self._begun: Optional[Handle] = None

        def run() -> None:
            try:
                with torch.cuda.stream(stream):
                    self._begun = begin()
            except BaseException as e:
                self._error = e

        self._thread = threading.Thread(target=run, name="regroup-later", daemon=True)
        self._thread.start()

    def poll(self) -> bool:
        return not self._thread.is_alive() and (self._begun is None or self._begun.poll())

    def synchronize(self) -> Any:
        self._thread.join()
        return super().synchronize()


class RowsHandle(Handle):
    """A started operation that has rows as its result; finish is called with them."""

    __slots__ = ("_world", "_rows")

    def __init__(self, request: int, world: int, finish: Callable[[lib.Rows], Any]):
        super().__init__(request, lambda: finish(self._rows))
        self._world = world
        self._rows: Optional[lib.Rows] = None

    def _test(self) -> bool:
        self._rows = lib.test_rows(self._request, self._world)
        return self._rows is not None

    def _wait(self) -> None:
        self._rows = lib.wait_rows(self._request, self._world)


class Handles(Handle):
    """Several operations as one; the result is a list."""

    __slots__ = ("_parts",)

    def __init__(self, parts: List[Handle], finish: Callable[[List[Any]], Any] = lambda r: r):
        super().__init__(None, lambda: finish([p.synchronize() for p in parts]))
        self._parts = parts

    def poll(self) -> bool:
        """Whether all have ended."""
        return all([p.poll() for p in self._parts])

    def synchronize(self) -> Any:
        """Waits for all; returns the results. If some fail, the others are waited for too."""
        error: Optional[BaseException] = None
        for p in self._parts:
            try:
                p.synchronize()
            except KeyboardInterrupt:
                raise
            except BaseException as e:
                error = error or e
        if error is not None:
            raise error
        return super().synchronize()


def done(result: Any) -> Handle:
    return Handle(None, lambda: result)


def forget() -> None:
    """Drops the operations of a generation that has ended. None of them is in progress."""
    _open.clear()


def _check(handle: Any) -> None:
    if not isinstance(handle, Handle):
        raise InvalidArgumentError(f"a {type(handle).__name__} is no handle of an operation")


def poll(handle: Handle) -> bool:
    """Whether an operation has ended: synchronize will return, or raise, at once."""
    _check(handle)
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for the end of an operation and returns its result. Raises WorkerLostError if a worker
    was lost."""
    _check(handle)
    return handle.synchronize()
