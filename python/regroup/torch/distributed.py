"""The backend ``regroup`` of torch.distributed::

    import regroup.torch.distributed
    torch.distributed.init_process_group("regroup")

Everything that uses process groups runs on it as it is: torch.distributed's operations,
DistributedDataParallel. Small tensors of the host's memory are executed by the calling thread
before the call returns, unless async_op is set; larger ones continue in the background. Tensors on GPUs: see
regroup.torch.gpus.

Since torch 2.14 the import is not needed, and init_process_group takes enable_reconfigure.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from . import rendezvous
from .c10d import builtin_hooks, features
from .c10d.operations import BACKEND


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Creates a group that torch.distributed does not know."""
    comm = rendezvous.take() or rendezvous.connect(store, rank, size, timeout)
    if features.PYTHON_BACKEND:
        from .c10d.backend import Backend, Options

        return Backend(store, comm, rank, size, Options(BACKEND, timeout))
    from .c10d.process_group import ProcessGroup

    return ProcessGroup(comm, timeout)


def register() -> None:
    """Registers the backend with torch.distributed. It may be called repeatedly."""
    if hasattr(dist.Backend, BACKEND.upper()):
        return
    builtin_hooks.install()
    make = create
    if features.PYTHON_BACKEND:
        from .c10d.group import create_group as make
    extended = features.PYTHON_BACKEND
    dist.Backend.register_backend(BACKEND, make, extended_api=extended, devices=["cpu", "cuda"])


if dist.is_available():
    register()
