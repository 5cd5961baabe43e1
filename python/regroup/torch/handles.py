"""Operations that were started: poll and synchronize."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .. import _library as lib

#: Operations that go on: their memory must stay, whatever the script does with the handle.
_open: Dict[int, "Handle"] = {}


class Handle:
    """An operation that was started. It keeps the memory that the engine works on."""

    __slots__ = ("_request", "_finish", "_result")

    def __init__(self, request: Optional[int], finish: Callable[[], Any]):
        self._request, self._finish, self._result = request, finish, None
        if request is not None:
            _open[request] = self

    def _ended(self) -> None:
        _open.pop(self._request, None)
        self._request = None

    def poll(self) -> bool:
        """Whether it has ended."""
        if self._request is not None:
            try:
                ended = lib.test(self._request)
            except Exception:
                self._ended()
                raise
            if ended:
                self._ended()
        return self._request is None

    def synchronize(self) -> Any:
        """Waits for the end; returns the result."""
        if self._request is not None:
            try:
                lib.wait(self._request)
            except KeyboardInterrupt:
                raise  # it goes on
            except BaseException:
                self._ended()
                raise
            self._ended()
        if self._finish is not None:
            self._result, self._finish = self._finish(), None
        return self._result


def forget() -> None:
    """Lets go of what was started in a generation that is over. Nothing of it goes on."""
    _open.clear()


def poll(handle: Handle) -> bool:
    """Whether an operation has ended. Raises if it failed."""
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for the end of an operation and returns its result. Raises WorkerLostError if a worker was lost."""
    return handle.synchronize()
