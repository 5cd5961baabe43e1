"""Settings from the environment, validated where they are read."""

from __future__ import annotations

import os
from typing import Callable, Optional, Tuple, TypeVar

from .errors import InvalidArgumentError

_Value = TypeVar("_Value")


def _read(
    name: str, default: _Value, parse: Callable[[str], _Value], valid: Callable[[_Value], bool], expected: str
) -> _Value:
    """A variable of the environment; the default if it is unset or empty."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    try:
        found = parse(value)
        if valid(found):
            return found
    except ValueError:
        pass
    raise InvalidArgumentError(f"{name}={value!r}: must be {expected}")


def number(name: str, default: int, least: int = 0, expected: str = "a whole number") -> int:
    """An integer from the environment; the default if it is unset or empty."""
    return _read(name, default, int, lambda n: n >= least, f"{expected}, {least} or more")


def decimal(name: str, default: float, expected: str) -> float:
    """A non-negative number from the environment; the default if it is unset or empty."""
    return _read(name, default, float, lambda n: 0 <= n < float("inf"), f"{expected}, 0 or more")


def ports(name: str) -> Tuple[int, int]:
    """A range of ports, low-high, or one port; 0, 0 if it is unset: any."""

    def parse(value: str) -> Tuple[int, int]:
        low, dash, high = value.partition("-")
        return int(low), int(high if dash else low)

    expected = "a range of ports such as 29000-29100, or one port"
    return _read(name, (0, 0), parse, lambda p: 0 < p[0] <= p[1] < 1 << 16, expected)


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
