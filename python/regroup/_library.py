"""libregroup.so through ctypes: its functions with their types, and its statuses as exceptions.

The names are those of regroup.h, which says what they do.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from ctypes import POINTER, c_char, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, List, Optional, Sequence

from . import errors

OK, INVALID, PEER_LOST, ABORTED, DIVERGED, REFUSED, CLOSED = range(7)
TIMEOUT, FORKED, UNSUPPORTED, FAILED, PLANNED, STOPPED, END, STUCK = range(7, 15)
LEFT = 15

#: How far the ranks of a session are, see regroup.h.
TRAINING, TOGETHER, LATE, EXCLUDED, ARRANGING = range(5)

INT8, UINT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = range(1, 10)
SUM, AVERAGE, PRODUCT, MIN, MAX = range(5)

#: What an Op does.
ALLREDUCE, REDUCE_SCATTER, REDUCE, BROADCAST, ALLGATHER, ALLTOALL, BARRIER, SEND, RECV, JOIN = range(1, 11)

#: How many values Training.ballot returns.
BALLOT = 8

ABI_MAJOR = 2
ABI_MINOR = 8


class Op(ctypes.Structure):
    """rg_op: an operation for start."""

    _fields_ = [
        ("size", c_uint64),
        ("code", c_int32),
        ("type", c_int32),
        ("reduction", c_int32),
        ("wire", c_int32),
        ("peer", c_int32),
        ("ordered", c_int32),
        ("count", c_int64),
        ("row", c_int64),
        ("tag", c_int64),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("send_counts", POINTER(c_int64)),
        ("recv_counts", POINTER(c_int64)),
        ("name", c_char_p),
        ("detail", c_char_p),
        ("stream", c_void_p),
        ("source", POINTER(c_int32)),
    ]


OP_SIZE = ctypes.sizeof(Op)


class Session(ctypes.Structure):
    """rg_session."""

    _fields_ = [
        ("size", c_uint64),
        ("generation", c_uint64),
        ("comm", c_uint64),
        ("rank", c_int32),
        ("world", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("cross_rank", c_int32),
        ("cross_size", c_int32),
        ("step", c_uint64),
        ("stage", c_int32),
        ("reserved", c_int32),
        ("traceparent", c_char * 56),
    ]


class Shard(ctypes.Structure):
    """rg_shard: a part of a global tensor."""

    _fields_ = [
        ("size", c_uint64),
        ("name", c_char_p),
        ("type", c_char_p),
        ("width", c_int32),
        ("dims", c_int32),
        ("shape", POINTER(c_int64)),
        ("offset", POINTER(c_int64)),
        ("extent", POINTER(c_int64)),
        ("memory", c_void_p),
        ("bytes", c_int64),
        ("unchanged", c_int32),
    ]


class Fixed(ctypes.Structure):
    """rg_fixed: a gradient, and what it is added to."""

    _fields_ = [
        ("to", c_void_p),
        ("values", c_void_p),
        ("len", c_int64),
        ("shift", c_int32),
        ("how", c_int32),
        ("largest", c_float),
    ]


_handle, _memory, _out = c_uint64, c_void_p, POINTER(c_uint64)

_functions = {
    "rg_endpoint_new": (c_char_p, _out),
    "rg_endpoint_address": (_handle, c_char_p, c_size_t),
    "rg_endpoint_close": (_handle,),
    "rg_alloc": (_handle, c_int64, POINTER(c_void_p)),
    "rg_free": (_handle, _memory),
    "rg_comm_new": (_handle, c_char_p, _out),
    "rg_comm_close": (_handle,),
    "rg_comm_origin": (_handle, c_int32, _out),
    "rg_comm_abort": (_handle, c_int32, c_char_p),
    "rg_comm_failed": (_handle,),
    "rg_comm_wait_failed": (_handle, c_int64),
    "rg_comm_describe": (_handle, c_char_p, c_size_t),
    "rg_start": (_handle, POINTER(Op), _out),
    "rg_allgather_bytes": (_handle, c_char_p, c_int64, POINTER(c_void_p), POINTER(c_int64)),
    "rg_wait": (_handle, c_int64),
    "rg_watch": (_handle,),
    "rg_wait_any": (_handle, c_int64, _out, POINTER(c_int32)),
    "rg_wait_result": (_handle, c_int64, POINTER(c_void_p), POINTER(c_int64)),
    "rg_named_options": (_handle, c_char_p),
    "rg_named_refuse": (_handle, c_char_p, c_char_p),
    "rg_named_deadlocks": (_handle, POINTER(c_int64)),
    "rg_subset": (_handle, c_char_p, POINTER(c_int32), c_int32, _out),
    "rg_timeline_start": (_handle, c_char_p, c_int32),
    "rg_timeline_stop": (_handle,),
    "rg_elastic_new": (c_char_p, _out),
    "rg_elastic_tensor": (_handle, c_char_p, _memory, c_int64),
    "rg_elastic_live": (_handle, c_char_p),
    "rg_elastic_away": (_handle, c_char_p),
    "rg_elastic_brought": (_handle, c_int32),
    "rg_elastic_sharded": (_handle, c_int32, c_int32),
    "rg_elastic_shard": (_handle, POINTER(Shard)),
    "rg_elastic_object": (_handle, c_char_p, c_char_p, c_int64),
    "rg_elastic_object_get": (_handle, c_char_p, POINTER(c_void_p), POINTER(c_int64)),
    "rg_elastic_data": (_handle, c_uint64, c_uint64, c_int32),
    "rg_elastic_record": (_handle, c_uint64, _memory, c_int64),
    "rg_elastic_record_for": (_handle, c_uint64, _memory, c_int64),
    "rg_elastic_prologue_add": (_handle, c_char_p, c_int64),
    "rg_elastic_prologue_get": (_handle, c_int64, POINTER(c_void_p), POINTER(c_int64)),
    "rg_elastic_start": (_handle,),
    "rg_elastic_next": (_handle, c_int64, POINTER(Session)),
    "rg_elastic_leave": (_handle, c_int32, c_char_p),
    "rg_elastic_consume": (_handle, c_int64, _memory, c_int64),
    "rg_elastic_stop": (_handle,),
    "rg_elastic_check_updates": (_handle,),
    "rg_elastic_commit": (_handle,),
    "rg_elastic_commit_live": (_handle,),
    "rg_elastic_agree": (_handle, c_int32, POINTER(c_int32)),
    "rg_elastic_ballot": (_handle, POINTER(c_int64)),
    "rg_elastic_agreed": (_handle, POINTER(c_int64)),
    "rg_elastic_alike": (_handle, c_uint64),
    "rg_elastic_changed": (_handle,),
    "rg_elastic_withdraw": (_handle,),
    "rg_elastic_copy_next": (_handle,),
    "rg_elastic_hold": (_handle, POINTER(c_int32)),
    "rg_elastic_verify": (_handle,),
    "rg_elastic_distrust": (_handle, POINTER(c_int64)),
    "rg_elastic_unchanged": (_handle, POINTER(c_int32)),
    "rg_elastic_commit_alone": (_handle,),
    "rg_elastic_restore": (_handle,),
    "rg_elastic_report": (_handle, c_char_p),
    "rg_elastic_ledger": (_handle, c_char_p, c_size_t),
    "rg_elastic_close": (_handle,),
    "rg_gpu_open": (_handle, c_char_p, _handle, _out),
    "rg_gpu_describe": (_handle, c_char_p, c_size_t),
    "rg_gpu_close": (_handle,),
    "rg_permutation": (c_uint64, c_uint64, c_uint64, c_uint64, _memory, c_int64),
    "rg_fixed_add": (POINTER(Fixed), c_int64),
    "rg_fixed_mean": (
        c_int32,
        POINTER(_memory),
        c_int32,
        _memory,
        POINTER(c_int64),
        POINTER(c_int32),
        c_int32,
        c_int64,
    ),
}

_loaded: Optional[ctypes.CDLL] = None


def path() -> str:
    """Where the library is: REGROUP_LIBRARY, or beside this file, where the wheel and ``make
    libregroup`` put it."""
    return os.environ.get("REGROUP_LIBRARY") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "libregroup.so"
    )


def library() -> ctypes.CDLL:
    """The library, loaded on first use."""
    global _loaded
    if _loaded is None:
        _loaded = _load(path())
    return _loaded


def _load(file: str) -> ctypes.CDLL:
    if not os.path.exists(file):
        raise errors.RegroupError(
            f"libregroup is not there: {file}. In a checkout: make libregroup; or set REGROUP_LIBRARY."
        )
    lib = ctypes.CDLL(file)
    lib.rg_abi.restype = c_uint32
    major, minor = divmod(lib.rg_abi(), 1 << 16)
    if major != ABI_MAJOR or minor < ABI_MINOR:
        raise errors.RegroupError(
            f"{file} has ABI {major}.{minor}, this package needs {ABI_MAJOR}.{ABI_MINOR}: "
            "they are of different versions of Regroup"
        )
    for name in ("rg_version", "rg_last_error"):
        getattr(lib, name).restype = c_char_p
        getattr(lib, name).argtypes = []
    lib.rg_lost_rank.restype = c_int32
    lib.rg_release.argtypes, lib.rg_release.restype = [c_void_p], None
    for name, arguments in _functions.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = list(arguments), c_int
    return lib


_exceptions = {
    INVALID: errors.InvalidArgumentError,
    DIVERGED: errors.DivergedError,
    CLOSED: errors.ClosedError,
    TIMEOUT: errors.WaitTimeoutError,
    FORKED: errors.ForkedError,
    UNSUPPORTED: errors.UnsupportedError,
    STUCK: errors.StuckError,
    PLANNED: errors.HostsUpdatedInterrupt,
    STOPPED: errors.JobStoppedInterrupt,
}


def failure(status: int) -> Exception:
    """The exception for a status that the calling thread has just received."""
    lib = library()
    message = lib.rg_last_error().decode("utf-8", "replace")
    if status in (PEER_LOST, ABORTED, REFUSED):
        lost = lib.rg_lost_rank()
        return errors.WorkerLostError(message, None if lost < 0 else lost)
    if status in (PLANNED, STOPPED):
        return _exceptions[status]()
    return _exceptions.get(status, errors.RegroupError)(message)


def check(status: int) -> None:
    """Raises the exception for a status that is an error."""
    if status != OK:
        raise failure(status)


def made(function: Any, *arguments: Any) -> int:
    """The handle that a function stores at its last parameter."""
    out = c_uint64()
    check(function(*arguments, ctypes.byref(out)))
    return out.value


def content(function: Any, *arguments: Any) -> Optional[bytes]:
    """The bytes whose address and number a function stores at its last parameters; None for END."""
    at, size = c_void_p(), c_int64()
    status = function(*arguments, ctypes.byref(at), ctypes.byref(size))
    if status == END:
        return None
    check(status)
    try:
        return ctypes.string_at(at, size.value)
    finally:
        library().rg_release(at)


#: How many operations were started, by the program and on its behalf.
started = 0


def start(
    handle: int, code: int, start: bool = False, name: Optional[str] = None, detail: str = "", **fields: Any
) -> Optional[int]:
    """Carries out the operation that the fields of an Op describe, and returns None when it has ended.
    With start it is started instead, and its request returned, for wait. With a name it meets the
    operations of this name on the other ranks, where detail must be equal.

        start(comm.handle, ALLREDUCE, type=FLOAT32, recv=address, count=10)
    """
    global started
    started += 1
    if name is not None:
        fields.update(name=name.encode(), detail=detail.encode())
    request = c_uint64() if start else None
    status = library().rg_start(handle, Op(size=OP_SIZE, code=code, **fields), request)
    if status:
        raise failure(status)
    return None if request is None else request.value


def counts(numbers: Optional[Sequence[int]]) -> Any:
    """Numbers as an Op takes them, None if there are none."""
    return None if numbers is None else (c_int64 * len(numbers))(*numbers)


#: How long a wait stays in C. In between the interpreter handles signals, so that Ctrl-C works.
POLL_MS = 200


def wait(request: int, end: Optional[float] = None) -> bool:
    """Waits for a started operation until a time of time.monotonic, None = for ever. Returns
    whether it has ended, which frees its request. Raises if it failed."""
    lib, poll = library(), POLL_MS
    while True:
        if end is not None:
            poll = max(0, min(POLL_MS, math.ceil((end - time.monotonic()) * 1000)))
        status = lib.rg_wait(request, poll)
        if status != TIMEOUT:
            check(status)
            return True
        if end is not None and time.monotonic() >= end:
            return False


def test(request: int) -> bool:
    """Whether a started operation has ended, which frees its request. Raises if it failed."""
    return wait(request, 0.0)


class Rows:
    """The result of an operation whose length it has found out: ``rows[r]`` rows of rank r, at an
    address of the C library's memory that is freed with this object."""

    def __init__(self, address: int, rows: List[int]):
        self.address, self.rows = address, rows
        self._release = library().rg_release

    def __del__(self) -> None:
        if self.address:
            self._release(self.address)


def wait_rows(request: int, world: int) -> Rows:
    """Waits for an operation that has rows as its result."""
    while True:
        found = test_rows(request, world, POLL_MS)
        if found is not None:
            return found


def test_rows(request: int, world: int, within_ms: int = 0) -> Optional[Rows]:
    """wait_rows with a timeout; None if the operation has not ended."""
    at, rows = c_void_p(), (c_int64 * world)()
    status = library().rg_wait_result(request, within_ms, ctypes.byref(at), rows)
    if status == TIMEOUT:
        return None
    check(status)
    return Rows(at.value or 0, list(rows))


def text(function: Any, handle: int) -> str:
    """Returns the text of a function that fills a buffer."""
    size = 1 << 10
    while True:
        buffer = ctypes.create_string_buffer(size)
        status = function(handle, buffer, size)
        if status == OK:
            return buffer.value.decode()
        if status != INVALID or size > 1 << 24:
            raise failure(status)
        size *= 8


def permutation(samples: int, seed: int, epoch: int, position: int, out: int, count: int) -> None:
    """Writes count int64 sample indices, beginning at a position in the order of an epoch, to the
    address out."""
    check(library().rg_permutation(samples, seed & (1 << 64) - 1, epoch, position, out, count))


#: What fixed_add does with a gradient.
FIXED_ADD, FIXED_FIRST, FIXED_COPY = 0, 1, 2


def fixed_add(gradients: ctypes.Array[Fixed], count: int) -> None:
    """Adds so many of the gradients to their totals, and finds the largest magnitude of each. A call takes as long as a
    hundred thousand elements, where nothing of Regroup was in the caches."""
    check(library().rg_fixed_add(gradients, count))


def fixed_mean(
    kind: int, sources: Sequence[int], values: int, lens: Sequence[int], shifts: Sequence[int], summands: int
) -> None:
    """Makes float32 values at an address, the means of so many summands, of the sums of several totals, INT64; or of
    gradients that have not been made summands, FLOAT32. Each has pieces of these lengths, in elements, with these
    shifts."""
    n, parts = len(sources), len(lens)
    addresses = (_memory * n)(*sources)
    lens, shifts = (c_int64 * parts)(*lens), (c_int32 * parts)(*shifts)
    check(library().rg_fixed_mean(kind, addresses, n, values, lens, shifts, parts, summands))
