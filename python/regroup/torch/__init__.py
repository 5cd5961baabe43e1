"""Regroup for PyTorch in Horovod's words::

    import regroup.torch as hvd        # was: import horovod.torch as hvd

Importing it also registers the backend ``regroup`` of torch.distributed, see regroup.torch.distributed.
"""

from __future__ import annotations

from typing import Any

from .. import place as _places
from ..errors import (
    DivergedError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidArgumentError,
    RegroupError,
    WorkerLostError,
)
from . import distributed, elastic
from .broadcasting import (
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    join,
)
from .compression import Compression, Compressor
from .functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from .gathering import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    reducescatter,
    reducescatter_async,
)
from .grouped import (
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from .handles import poll, synchronize
from .operations import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
)
from .optimizer import DistributedOptimizer
from .world import world as _world


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Finds this process's place in the world. Call it before everything else; again does nothing.

    Under torchrun and ``regroup run`` it connects the ranks. Under ``regroup run --recovery in-process`` the ranks come
    with each generation, so until the function decorated with elastic.run is called, size() is 1, and rank() and
    local_rank() are the number of this process's slot on its node.
    """
    if comm not in (None, []) or process_sets not in (None, []):
        raise InvalidArgumentError("init: only all ranks together, no subsets")
    _world.init()


def shutdown() -> None:
    """Leaves the world."""
    _world.shutdown()


def is_initialized() -> bool:
    """Whether init was called."""
    return _world.mode is not None


def rank() -> int:
    """This process's number among all."""
    return _world.initialized().rank


def size() -> int:
    """How many processes there are."""
    return _world.initialized().size


def local_rank() -> int:
    """This process's number among those of its node."""
    return _world.initialized().local_rank


def local_size() -> int:
    """How many processes there are on this node."""
    return _world.initialized().local_size


def cross_rank() -> int:
    """This node's number among those that have a process with this local rank."""
    return _world.initialized().cross_rank


def cross_size() -> int:
    """How many nodes have a process with this local rank."""
    return _world.initialized().cross_size


def describe() -> str:
    """How tensors on GPUs travel: by NCCL, with what was found; or through the host's memory, and why."""
    return _world.gpus()


def is_homogeneous() -> bool:
    """Whether all nodes have as many processes, as far as this one can tell."""
    place = _world.initialized()
    return place.local_size * place.cross_size == place.size


def _no(name: str):
    def answer(*_: Any, **__: Any) -> bool:
        return False

    answer.__name__ = name
    answer.__doc__ = "Whether Horovod has this part. There is no such part here."
    return answer


for _name in (
    "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built "
    "ccl_built cuda_built rocm_built"
).split():
    globals()[_name] = _no(_name)

#: The mode of this process, for tests and for the curious: alone, static or elastic.
ALONE, STATIC, ELASTIC = _places.ALONE, _places.STATIC, _places.ELASTIC
