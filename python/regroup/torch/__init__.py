"""Regroup for PyTorch in Horovod's words::

    import regroup.torch as hvd        # was: import horovod.torch as hvd

Importing it also registers the backend ``regroup`` of torch.distributed, see
regroup.torch.distributed.
"""

from __future__ import annotations

from typing import Any, Callable, List

from .. import membership as _membership
from ..errors import (
    DivergedError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidArgumentError,
    RegroupError,
    WorkerLostError,
)
from . import calls, distributed, elastic, functions, operations, process_sets
from .compression import Compression, Compressor
from .elastic.prologue import RECORDED as _RECORDED
from .elastic.prologue import recorded as _recorded
from .follower import follow
from .functions import *  # noqa: F403
from .operations import *  # noqa: F403
from .optimizer import DistributedOptimizer
from .process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .sync_batch_norm import SyncBatchNorm
from .timeline import start_timeline, stop_timeline
from .world import world as _world

# fmt: off
__all__ = [
    "ALONE", "Compression", "Compressor", "DistributedOptimizer", "DivergedError", "ELASTIC",
    "HorovodInternalError", "HostsUpdatedInterrupt", "InvalidArgumentError", "ProcessSet",
    "RegroupError", "STATIC", "SyncBatchNorm", "WorkerLostError", "add_process_set", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "describe", "distributed", "elastic",
    "follow", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous",
    "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_sets", "rank", "remove_process_set",
    "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]
# fmt: on
__all__ += functions.__all__ + operations.__all__


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Initializes Regroup and connects the ranks. Call it before everything else; further calls do
    nothing.

    Under ``regroup run --recovery in-process`` it joins the job: rank() and size() are those of its
    generation and change with each. For a worker that joins a job in training they are the expected
    ones.
    """
    if comm not in (None, []):
        raise InvalidArgumentError("init: comm is not offered: use process_sets")
    calls.begin()
    _world.init()
    for process_set in _given(process_sets):
        if getattr(process_set, "process_set_id", None) is None:
            add_process_set(process_set)


def _given(process_sets: Any) -> List[Any]:
    if process_sets is None or process_sets == "dynamic":
        return []
    return [process_sets] if isinstance(process_sets, ProcessSet) else list(process_sets)


def shutdown() -> None:
    """Leaves the world, and removes the process sets."""
    if is_initialized():
        process_sets.forget()
    _world.shutdown()


def is_initialized() -> bool:
    """Whether init was called."""
    return _world.mode is not None


def rank() -> int:
    """The rank of this process."""
    return _world.initialized().rank


def size() -> int:
    """The number of processes."""
    return _world.initialized().size


def local_rank() -> int:
    """The rank of this process on its node."""
    return _world.initialized().local_rank


def local_size() -> int:
    """The number of processes on this node."""
    return _world.initialized().local_size


def cross_rank() -> int:
    """The rank of this node among those that have a process with this local rank."""
    return _world.initialized().cross_rank


def cross_size() -> int:
    """The number of nodes that have a process with this local rank."""
    return _world.initialized().cross_size


def describe() -> str:
    """How GPU tensors are transferred: with NCCL, and which one; or through the host's memory, and
    why."""
    return _world.gpus()


def is_homogeneous() -> bool:
    """Whether all nodes have the same number of processes, as far as this one can tell."""
    m = _world.initialized()
    return m.local_size * m.cross_size == m.size


def _no(name: str) -> Callable[..., bool]:
    def answer(*_: Any, **__: Any) -> bool:
        return False

    answer.__name__ = name
    answer.__doc__ = "Whether Horovod has this part. There is no such part here."
    return answer


mpi_threads_supported = _no("mpi_threads_supported")
mpi_enabled, mpi_built = _no("mpi_enabled"), _no("mpi_built")
gloo_enabled, gloo_built = _no("gloo_enabled"), _no("gloo_built")
nccl_built, ddl_built, ccl_built = _no("nccl_built"), _no("ddl_built"), _no("ccl_built")
cuda_built, rocm_built = _no("cuda_built"), _no("rocm_built")

for _name in _RECORDED:  # replayed for a worker that joins a job in training
    if _name in globals():
        globals()[_name] = _recorded(globals()[_name])

#: The mode of this process, for tests and for the curious: alone, static or elastic.
ALONE, STATIC, ELASTIC = _membership.ALONE, _membership.STATIC, _membership.ELASTIC
