"""Elastic training through the C library: one object per call of ``elastic.run``. Knows nothing of
torch."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, NamedTuple, Optional, Sequence

from . import _library
from ._library import check, library
from .communicator import Communicator
from .errors import WorkerExit

#: What is added to the nice value of a process whose part in the job has ended. Python takes half a
#: second of a processor to end, while the others wait for each other to go on.
_NICER = 10


class GlobalTensor(NamedTuple):
    """A tensor of which each rank has parts."""

    name: str
    type: str  # of its elements, the same text on all ranks
    width: int  # bytes of an element
    shape: Sequence[int]


class Training:
    """The way of this process through the generations of its job. See rg_elastic_new in regroup.h."""

    def __init__(self, log: bool = True, join: bool = False):
        self._lib = library()
        self.handle = _library.made(self._lib.rg_elastic_new, json.dumps({"log": log, "join": join}).encode())
        self.stopping = False

    def data(self, samples: int, seed: int) -> None:
        """Sets the number of samples of the data set, for record, while the state is registered."""
        check(self._lib.rg_elastic_data(self.handle, samples, seed & (1 << 64) - 1, 1))

    def add_prologue(self, result: bytes) -> None:
        """Records the result of an operation before the state is registered."""
        check(self._lib.rg_elastic_prologue_add(self.handle, result, len(result)))

    def prologue_entry(self, index: int) -> Optional[bytes]:
        """A recorded result, of this process or of others; None if there are not that many."""
        return _library.content(self._lib.rg_elastic_prologue_get, self.handle, index)

    def tensor(self, name: str, address: int, size: int) -> None:
        """Makes memory part of the state. It must stay valid until close."""
        check(self._lib.rg_elastic_tensor(self.handle, name.encode(), address, size))

    def live(self, name: str, away: bool = False) -> None:
        """Marks such memory as live, or a part of that name in a session of the stage ARRANGING: from
        a commit_live to changed nothing changes it. away: it is that of a part which is elsewhere while it is used, and
        gets it until brought, which may be after the commit."""
        mark = self._lib.rg_elastic_away if away else self._lib.rg_elastic_live
        check(mark(self.handle, name.encode()))

    def brought(self, ok: bool) -> None:
        """Says that what is away is in the registered memory, or never will be, which fails the next commit of this
        process. Waits until that memory may change. Any thread may call it."""
        check(self._lib.rg_elastic_brought(self.handle, ok))

    def sharded(self, copies: int, parity: int) -> None:
        """Makes the state one of which each rank has parts; so many others keep a copy of each, or
        parity + 1 ranks or more keep parity for each other."""
        check(self._lib.rg_elastic_sharded(self.handle, copies, parity))

    def shard(
        self,
        tensor: GlobalTensor,
        offset: Sequence[int],
        extent: Sequence[int],
        address: int,
        size: int,
        unchanged: bool = False,
    ) -> None:
        """Registers memory for a part of a global tensor, in a session of the stage ARRANGING. unchanged: it was
        that of the same part in the generation before, and is as the last commit or session has left it."""
        dims = len(tensor.shape)
        numbers = ctypes.c_int64 * dims
        part = _library.Shard(
            ctypes.sizeof(_library.Shard), tensor.name.encode(), tensor.type.encode(), tensor.width, dims,
            numbers(*tensor.shape), numbers(*offset), numbers(*extent), address, size, unchanged,
        )  # fmt: skip
        check(self._lib.rg_elastic_shard(self.handle, ctypes.byref(part)))

    def put(self, name: str, value: bytes) -> None:
        """Makes bytes part of the state; after the start, changes them."""
        check(self._lib.rg_elastic_object(self.handle, name.encode(), value, len(value)))

    def get(self, name: str) -> bytes:
        """The current value of bytes of the state."""
        return _library.content(self._lib.rg_elastic_object_get, self.handle, name.encode())

    def start(self) -> None:
        """Begins to join. No more state can be registered."""
        check(self._lib.rg_elastic_start(self.handle))

    def next(self) -> Optional[_library.Session]:
        """Waits for the next generation; None when the training is complete. Raises WorkerExit if
        it continues or ends without this process, which has a lower priority from then on."""
        session = _library.Session(size=ctypes.sizeof(_library.Session))
        while True:
            status = self._lib.rg_elastic_next(self.handle, _library.POLL_MS, ctypes.byref(session))
            if status == _library.END:
                return None
            if status == _library.STOPPED or status == _library.TIMEOUT and self.stopping:
                raise WorkerExit("stopped")
            if status == _library.LEFT:
                os.nice(_NICER)
                raise WorkerExit("removed")
            if status != _library.TIMEOUT:
                check(status)
                return session

    def leave(self, how: int, why: str = "") -> None:
        """Ends this process's part in the generation."""
        check(self._lib.rg_elastic_leave(self.handle, how, why.encode("utf-8", "replace")))

    def record(self, epoch: int, address: int, count: int) -> None:
        """Ends a step of this rank, which trained on samples of an epoch: count int64 indices at an
        address."""
        check(self._lib.rg_elastic_record(self.handle, epoch, address, count))

    def record_for(self, epoch: int, address: int, count: int) -> None:
        """The same for other ranks, before commit_alone."""
        check(self._lib.rg_elastic_record_for(self.handle, epoch, address, count))

    def end_step(self) -> None:
        """Ends a step that consumes no samples, on this rank."""
        check(self._lib.rg_elastic_record(self.handle, 0, None, 0))

    def stop(self) -> None:
        """Makes all ranks leave at their next commit. It may be called at any time, also in a
        signal handler."""
        self.stopping = True
        check(self._lib.rg_elastic_stop(self.handle))

    def commit_due(self) -> bool:
        """Whether the members are about to change, or the job is being stopped. All ranks must call
        it, and get the same result."""
        status = self._lib.rg_elastic_check_updates(self.handle)
        if status in (_library.PLANNED, _library.STOPPED):
            return True
        check(status)
        return False

    def commit(self) -> None:
        """Commits the state. Then raises HostsUpdatedInterrupt if the members are about to change."""
        check(self._lib.rg_elastic_commit(self.handle))

    def commit_live(self) -> None:
        """Commits the state without a copy of what is live, unless a rank calls commit, or it is time
        for a copy."""
        check(self._lib.rg_elastic_commit_live(self.handle))

    def agree(self, live: bool) -> bool:
        """Agrees on the commit that follows, commit_live if live; returns whether it copies what is live, which must
        be in the registered memory then."""
        copies = ctypes.c_int32()
        check(self._lib.rg_elastic_agree(self.handle, live, ctypes.byref(copies)))
        return bool(copies.value)

    def ballot(self) -> Optional[Any]:
        """What this rank has to say in the next commit_live, as an array of BALLOT int64; None if there is nothing to agree on
        before it, on any rank."""
        values = (ctypes.c_int64 * _library.BALLOT)()
        status = self._lib.rg_elastic_ballot(self.handle, values)
        if status == _library.END:
            return None
        check(status)
        return values

    def agreed(self, greatest: Any) -> None:
        """Says what the greatest of these values on all ranks are, so that the next commit_live waits
        for nobody. No rank may know them before all have what the step needs of others."""
        check(self._lib.rg_elastic_agreed(self.handle, greatest))

    def alike(self, digest: bytes) -> None:
        """Says what must be equal on all ranks at their next commit, else a DivergedError."""
        check(self._lib.rg_elastic_alike(self.handle, int.from_bytes(digest[:8], "little")))

    def changed(self) -> None:
        """Says that what is live is not that of the last commit any more. Waits until live parts are copied."""
        check(self._lib.rg_elastic_changed(self.handle))

    def withdraw(self) -> None:
        """Gives up the last commit of a sharded state: live parts have changed while it may have been copying them."""
        check(self._lib.rg_elastic_withdraw(self.handle))

    def copy_next(self) -> None:
        """Makes the next commit a copy, as hold needs it. All ranks call it at the same step, and so the next three."""
        check(self._lib.rg_elastic_copy_next(self.handle))

    def hold(self) -> bool:
        """Keeps the newest commit until it is known whether it is right; whether that was a copy."""
        held = ctypes.c_int32()
        check(self._lib.rg_elastic_hold(self.handle, ctypes.byref(held)))
        return bool(held.value)

    def verify(self) -> None:
        """Says that no member had computed wrongly before the commit that is held."""
        check(self._lib.rg_elastic_verify(self.handle))

    def distrust(self) -> Optional[int]:
        """Says that a member computes wrongly: from the next generation on the newest commit is the last one that was
        verified. Returns its step; None if there is none, and nothing changes."""
        step = ctypes.c_int64()
        check(self._lib.rg_elastic_distrust(self.handle, ctypes.byref(step)))
        return step.value if step.value >= 0 else None

    def unchanged(self) -> bool:
        """Whether what is live is as in the last commit, which was copied. It costs a pass over it."""
        same = ctypes.c_int32()
        check(self._lib.rg_elastic_unchanged(self.handle, ctypes.byref(same)))
        return bool(same.value)

    def commit_alone(self) -> None:
        """After a loss in a commit_live: makes the state a commit as it is."""
        check(self._lib.rg_elastic_commit_alone(self.handle))

    def restore(self) -> None:
        """Returns to the last commit, on this rank."""
        check(self._lib.rg_elastic_restore(self.handle))

    def report(self, metrics: dict) -> None:
        """Shows metrics with the job."""
        check(self._lib.rg_elastic_report(self.handle, json.dumps(metrics).encode()))

    def ledger(self) -> dict:
        """The account of consumed samples."""
        return json.loads(_library.text(self._lib.rg_elastic_ledger, self.handle))

    def close(self) -> None:
        """Ends the training; the registered memory may be freed then."""
        check(self._lib.rg_elastic_close(self.handle))


def communicator(session: _library.Session) -> Communicator:
    """The communicator of a session, which must not be closed."""
    return Communicator(session.comm, session.rank, session.world)
