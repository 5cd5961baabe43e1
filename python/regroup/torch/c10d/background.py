"""Operations of several steps, which a thread executes for a caller that does not wait for them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional

from torch.futures import Future

from ...errors import WaitTimeoutError
from .leaving import busy
from .work import BaseWork


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


class BackgroundWork(BaseWork):
    """The Work of such an operation, for a caller that holds a Python object."""

    def __init__(self, op: BackgroundOp):
        self._op, self._tensors = op, op.tensors

    @property
    def _error(self) -> Optional[BaseException]:
        return self._op.error

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        limit = timeout.total_seconds() if timeout else 0
        if not self._op.ended.wait(limit if limit > 0 else None):
            raise WaitTimeoutError(f"the operation has not ended after {timeout}")
        if self._op.error is not None:
            raise self._op.error
        return True

    def is_completed(self) -> bool:
        return self._op.ended.is_set()

    def get_future(self) -> Future:
        return self._op.future
