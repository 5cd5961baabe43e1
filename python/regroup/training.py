"""Elastic training through the C library: one object per call of ``elastic.run``. Knows nothing of torch."""

from __future__ import annotations

import ctypes
import json
from typing import Optional, Sequence

from . import _library
from ._library import check, library
from .communicator import Communicator


class Training:
    """The way of this process through the generations of its job. See rg_elastic_new in regroup.h."""

    def __init__(self, samples: int = 0, seed: int = 0, log: bool = True):
        options = {"samples": samples, "seed": seed & (1 << 64) - 1, "log": log}
        out = ctypes.c_uint64()
        self._lib = library()
        check(self._lib.rg_elastic_new(json.dumps(options).encode(), ctypes.byref(out)))
        self.handle: int = out.value
        self.stopping = False

    def tensor(self, name: str, address: int, size: int) -> None:
        """Makes memory part of the state. It must stay until close."""
        check(self._lib.rg_elastic_tensor(self.handle, name.encode(), address, size))

    def put(self, name: str, value: bytes) -> None:
        """Makes bytes part of the state; after the start, changes them."""
        check(self._lib.rg_elastic_object(self.handle, name.encode(), value, len(value)))

    def get(self, name: str) -> bytes:
        """What bytes of the state are now."""
        at, size = ctypes.c_void_p(), ctypes.c_int64()
        check(
            self._lib.rg_elastic_object_get(
                self.handle, name.encode(), ctypes.byref(at), ctypes.byref(size)
            )
        )
        try:
            return ctypes.string_at(at, size.value)
        finally:
            self._lib.rg_release(at)

    def start(self) -> None:
        """Begins to join. Nothing can be registered any more."""
        check(self._lib.rg_elastic_start(self.handle))

    def next(self) -> Optional[_library.Session]:
        """Waits for the next generation; None when there is none for this process any more."""
        session = _library.Session(size=ctypes.sizeof(_library.Session))
        while True:
            status = self._lib.rg_elastic_next(
                self.handle, _library.PATIENCE_MS, ctypes.byref(session)
            )
            if status == _library.END or status == _library.TIMEOUT and self.stopping:
                return None
            if status != _library.TIMEOUT:
                check(status)
                return session

    def leave(self, how: int, why: str = "") -> None:
        """Ends this process's part in the generation."""
        check(self._lib.rg_elastic_leave(self.handle, how, why.encode("utf-8", "replace")))

    def consume(self, total: int, indices: Sequence[int] = ()) -> None:
        """Ends a step, on all ranks, that consumed total samples, here those of indices."""
        array = (ctypes.c_int64 * len(indices))(*indices)
        check(self._lib.rg_elastic_consume(self.handle, total, array, len(indices)))

    def skip(self) -> None:
        """Moves the account to the next epoch."""
        check(self._lib.rg_elastic_skip(self.handle))

    def stop(self) -> None:
        """Has all ranks leave at their next commit. It may be called at any time, by a handler of signals too."""
        self.stopping = True
        check(self._lib.rg_elastic_stop(self.handle))

    def commit_due(self) -> bool:
        """Whether the members are about to change, or the job is to stop; agreed on by all ranks, who must ask alike."""
        status = self._lib.rg_elastic_news(self.handle)
        if status in (_library.PLANNED, _library.STOPPED):
            return True
        check(status)
        return False

    def commit(self) -> None:
        """Makes the state one to return to. Raises HostsUpdatedInterrupt after that if the members are to change."""
        check(self._lib.rg_elastic_commit(self.handle))

    def restore(self) -> None:
        """Returns to the last commit, on this rank."""
        check(self._lib.rg_elastic_restore(self.handle))

    def report(self, metrics: dict) -> None:
        """Shows metrics with the job."""
        check(self._lib.rg_elastic_report(self.handle, json.dumps(metrics).encode()))

    def ledger(self) -> dict:
        """The account of samples."""
        return json.loads(_library.text(self._lib.rg_elastic_ledger, self.handle))

    def close(self) -> None:
        """Ends what goes on; the memory of the state is free again."""
        check(self._lib.rg_elastic_close(self.handle))


def communicator(session: _library.Session) -> Communicator:
    """The communicator of a session, which must not be closed."""
    return Communicator(session.comm, session.rank, session.world)
