"""Regroup: training that survives the loss and the arrival of workers.

``regroup.torch`` has Horovod's interface, ``regroup.torch.distributed`` a backend for
torch.distributed. This package itself needs the standard library only, and imports nothing else.
"""

from .errors import (
    DivergedError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidArgumentError,
    JobStoppedInterrupt,
    RegroupError,
    WorkerLostError,
)
from .reporting import generation, on, record, report

__all__ = [
    "DivergedError",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "InvalidArgumentError",
    "JobStoppedInterrupt",
    "RegroupError",
    "WorkerLostError",
    "generation",
    "on",
    "record",
    "report",
]

__version__ = "0.1.0"
