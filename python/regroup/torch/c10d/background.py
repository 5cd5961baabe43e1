"""Operations of several steps, which a thread executes for a caller that does not wait for them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional

from torch.futures import Future

from ...errors import WaitTimeoutError
from .leaving import busy


class BackgroundOp:
    """The steps of an operation in a thread, from now on."""

    def __init__(self, steps: Callable[[], None], tensors: Any):
        self._steps, self.tensors = steps, tensors
        self.error: Optional[BaseException] = None
        self.ended = threading.Event()
        self._inner = Future()
        self.future = self._inner.then(self._value)
        threading.Thread(target=_run, args=([self],), name="regroup-steps", daemon=True).start()

    def execute(self) -> None:
        """Executes the steps."""
        try:
            self._steps()
        except BaseException as e:
            self.error = e

    def complete(self) -> None:
        """Tells those who wait."""
        self._steps = None  # with the memory that they hold
        self.ended.set()
        self._inner.set_result(None)

    def _value(self, _: Future) -> Any:
        if self.error is not None:
            raise self.error
        return self.tensors


def _run(held: List[BackgroundOp]) -> None:
    """Runs the operation of a list, of which nothing is left in the thread afterwards."""
    op = held.pop()
    op.execute()
    with busy:
        op.complete()
        del op


class BackgroundWork:
    """The Work of such an operation, for a caller that holds a Python object."""

    def __init__(self, op: BackgroundOp):
        self._op = op

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits for the end. Raises the exception of a failed operation. After a timeout, zero =
        none, it raises WaitTimeoutError, and the operation continues."""
        limit = timeout.total_seconds() if timeout else 0
        if not self._op.ended.wait(limit if limit > 0 else None):
            raise WaitTimeoutError(f"the operation has not ended after {timeout}")
        if self._op.error is not None:
            raise self._op.error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self._op.ended.is_set()

    def is_success(self) -> bool:
        """Whether it has succeeded."""
        return self.is_completed() and self._op.error is None

    def exception(self) -> Optional[BaseException]:
        """The exception, if it has failed."""
        return self._op.error if self.is_completed() else None

    def synchronize(self) -> None:
        """Waits for the end."""
        self.wait()

    def result(self) -> Any:
        """The tensors."""
        return self._op.tensors

    def get_future(self) -> Future:
        """A future that completes with the work."""
        return self._op.future
