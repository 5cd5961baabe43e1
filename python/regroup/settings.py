"""Settings from the environment, validated where they are read."""

from __future__ import annotations

import os
from typing import Optional, Tuple

from .errors import InvalidArgumentError


def number(name: str, default: int, least: int = 0, expected: str = "a whole number") -> int:
    """An integer from the environment; the default if it is unset or empty."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    try:
        found = int(value)
    except ValueError:
        found = least - 1
    if found < least:
        raise InvalidArgumentError(f"{name}={value!r}: must be {expected}, {least} or more")
    return found


def decimal(name: str, default: float, expected: str) -> float:
    """A non-negative number from the environment; the default if it is unset or empty."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise InvalidArgumentError(f"{name}={value!r}: must be {expected}, 0 or more")
    return found


def ports(name: str) -> Tuple[int, int]:
    """A range of ports, low-high, or one port; 0, 0 if it is unset: any."""
    value = os.environ.get(name, "").strip()
    if not value:
        return 0, 0
    low, dash, high = value.partition("-")
    try:
        found = int(low), int(high if dash else low)
    except ValueError:
        found = 0, 0
    if not 0 < found[0] <= found[1] < 1 << 16:
        raise InvalidArgumentError(f"{name}={value!r}: must be a range of ports such as 29000-29100, or one port")
    return found


def bucket_bytes() -> int:
    """The size of a gradient bucket; 0 = each gradient is reduced alone. HOROVOD_FUSION_THRESHOLD
    has the same meaning, for scripts that were written for it."""
    default = number("HOROVOD_FUSION_THRESHOLD", 25 << 20, expected="a number of bytes")
    return number("REGROUP_BUCKET_BYTES", default, expected="a number of bytes")


def gpus() -> bool:
    """Whether GPU tensors may use NCCL. With REGROUP_GPU=0 they are copied through the host, for
    comparison."""
    return number("REGROUP_GPU", 1, expected="0 or 1") != 0


def inline_bytes() -> int:
    """The number of bytes up to which the calling thread executes an operation of
    torch.distributed."""
    return number("REGROUP_INLINE_BYTES", 256 << 10, expected="a number of bytes")


def named() -> dict:
    """The options of named operations, for rg_named_options. The variables are Horovod's, except
    REGROUP_DEADLOCK_SECONDS: how long all ranks may wait for different operations of each other
    before that is an error on all of them; 0 = no limit."""
    stall = number("HOROVOD_STALL_CHECK_TIME_SECONDS", 60, expected="seconds")
    limit = number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0, expected="seconds")
    if number("HOROVOD_STALL_CHECK_DISABLE", 0, expected="0 or 1"):
        stall = limit = 0
    fusion = number("HOROVOD_FUSION_THRESHOLD", 64 << 20, expected="a number of bytes")
    return {
        "cycle_ms": decimal("HOROVOD_CYCLE_TIME", 1.0, expected="milliseconds"),
        "fusion_bytes": fusion or -1,
        "stall_warning_ms": 1000 * stall or -1,
        "stall_limit_ms": 1000 * limit or -1,
        "deadlock_ms": 1000 * decimal("REGROUP_DEADLOCK_SECONDS", 10.0, expected="seconds") or -1,
    }


def timeline(generation: int) -> Optional[Tuple[str, bool]]:
    """The file of HOROVOD_TIMELINE for a generation, and whether cycles are marked in it
    (HOROVOD_TIMELINE_MARK_CYCLES=1); None = there is none. From the second generation on the name has
    its number before the extension. With DYNAMIC start_timeline begins one later."""
    path = os.environ.get("HOROVOD_TIMELINE")
    if not path or path == "DYNAMIC":
        return None
    if generation > 1:
        path = f".{generation}".join(os.path.splitext(path))
    return os.path.abspath(path), os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES", "0") not in ("", "0")
