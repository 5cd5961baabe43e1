"""Regroup: training that survives the loss and the arrival of workers.

``regroup.torch`` has Horovod's interface, ``regroup.torch.distributed`` a backend for
torch.distributed. This package itself needs the standard library only, and imports nothing else.
"""

from typing import Any

from .errors import (
    DivergedError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidArgumentError,
    JobStoppedInterrupt,
    RegroupError,
    WorkerLostError,
)
from .reporting import generation, on, record, report, traceparent

# fmt: off
__all__ = [
    "Client", "ClientError", "DivergedError", "HorovodInternalError", "HostsUpdatedInterrupt",
    "InvalidArgumentError", "JobStoppedInterrupt", "RegroupError", "WorkerLostError", "generation",
    "on", "record", "report", "traceparent",
]
# fmt: on


def __getattr__(name: str) -> Any:
    """Client is loaded when it is used: workers do not need it."""
    if name in ("Client", "ClientError"):
        from . import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
