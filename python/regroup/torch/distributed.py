"""The backend ``regroup`` of torch.distributed::

    import regroup.torch.distributed
    torch.distributed.init_process_group("regroup")

Everything that uses process groups runs on it as it is: torch.distributed's operations,
DistributedDataParallel. Small tensors of the host's memory are carried out by the calling thread
before the call returns; larger ones go on in the background. Tensors on GPUs: see
regroup.torch.gpus.

Written for torch 1.13 and 2.x.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from . import rendezvous
from .c10d.process_group import ProcessGroup
from .c10d.base_group import BACKEND


def create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    """Creates a group, for torch.distributed."""
    return ProcessGroup(rendezvous.connect(store, rank, size, timeout), timeout)


def register() -> None:
    """Registers the backend with torch.distributed."""
    if hasattr(dist.Backend, BACKEND.upper()):
        return
    more = {}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        more["devices"] = ["cpu", "cuda"]  # torch 2
    dist.Backend.register_backend(BACKEND, create, **more)


if dist.is_available():
    register()
