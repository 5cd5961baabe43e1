"""The end of the process waits for threads that are in torch's code: one that asks for Python's lock
there when the interpreter has ended takes the process with it (SIGABRT).
"""

from __future__ import annotations

import atexit
import os
import threading

#: How long the end of the process waits, in seconds: a callback of a future may wait for ever.
LIMIT = 5.0


class _Busy:
    """Counts the threads in a section, ``with busy:``."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets threads that a fork has not copied."""
        self._changed = threading.Condition()
        self._threads = 0

    def __enter__(self) -> None:
        with self._changed:
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Waits until no thread is in the section, for the limit at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._threads == 0, LIMIT)


busy = _Busy()
os.register_at_fork(after_in_child=busy.reset)
atexit.register(busy.wait)
