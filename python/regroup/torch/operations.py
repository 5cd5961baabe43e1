"""Horovod's operations: the public functions.

Operations are matched across ranks by their names, so they may be started in any order and from any
thread; those without a name are numbered, and only allowed on the thread that has called init. An
operation is executed only if it is the same on all ranks: a difference is an error on all of them.
How they are called is said in the module operation.
"""

from __future__ import annotations

from typing import Any, Callable, List, Union

import torch

from .. import _library as lib
from .allreduce_ops import ALLREDUCE, GroupedAllreduce
from .broadcast_ops import BROADCAST
from .calls import Call
from .gather_ops import ALLGATHER, ALLTOALL
from .handles import poll, synchronize
from .operation import Each, Pair, started, sync
from .process_sets import group_of
from .reducescatter_ops import REDUCESCATTER
from .reductions import Adasum, Average, Max, Min, Product, Sum
from .sparse import sparse_allreduce_async

# fmt: off
__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allgather_async",
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async",
    "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "join", "poll", "reducescatter", "reducescatter_async",
    "sparse_allreduce_async", "synchronize",
]
# fmt: on

_One, _Many = Callable[..., torch.Tensor], Callable[..., List[torch.Tensor]]

_grouped_allreduce = GroupedAllreduce()
_grouped_allgather, _grouped_reducescatter = Each(ALLGATHER), Each(REDUCESCATTER)

allreduce: _One = sync(ALLREDUCE, "Reduces the ranks' tensors, by default to their average. The result has a gradient.")
allreduce_: _One = sync(ALLREDUCE, "Reduces the ranks' tensors in place.", inplace=True)
allreduce_async = started(ALLREDUCE)
allreduce_async_ = started(ALLREDUCE, inplace=True)

grouped_allreduce: _Many = sync(_grouped_allreduce, "Reduces many tensors at once. The results have gradients.")
grouped_allreduce_: _Many = sync(_grouped_allreduce, "Reduces many tensors in place.", inplace=True)
grouped_allreduce_async = started(_grouped_allreduce)
grouped_allreduce_async_ = started(_grouped_allreduce, inplace=True)

allgather: _One = sync(
    ALLGATHER,
    """Concatenates the ranks' tensors along the first dimension, which may differ. The result has a
    gradient.""",
)
allgather_async = started(ALLGATHER)
grouped_allgather: _Many = sync(_grouped_allgather, "An allgather of each tensor. The results have gradients.")
grouped_allgather_async = started(_grouped_allgather, "Starts an allgather of each tensor; the results are a list.")

broadcast: _One = sync(BROADCAST, "Returns root_rank's tensor. The result has a gradient.")
broadcast_: _One = sync(BROADCAST, "Copies root_rank's tensor into the others'.", inplace=True)
broadcast_async = started(BROADCAST)
broadcast_async_ = started(BROADCAST, inplace=True)

alltoall: Callable[..., Union[torch.Tensor, Pair]] = sync(
    ALLTOALL,
    """Sends rows to all ranks, splits[i] of them to rank i, in order; without splits the same
    number to each.

    Returns the received rows in the order of the ranks; with splits also the number from each rank.
    """,
)
alltoall_async = started(
    ALLTOALL, "Starts alltoall. The result is a pair: the received rows, and the number from each rank."
)

reducescatter: _One = sync(
    REDUCESCATTER,
    """Reduces the ranks' tensors and returns this rank's rows; the first ranks have one more if the
    number is not divisible.""",
)
reducescatter_async = started(REDUCESCATTER)
grouped_reducescatter: _Many = sync(
    _grouped_reducescatter, "A reducescatter of each tensor. The results have gradients."
)
grouped_reducescatter_async = started(
    _grouped_reducescatter, "Starts a reducescatter of each tensor; the results are a list."
)


def barrier(process_set: Any = None) -> None:
    """Returns when every rank has called it."""
    call = Call("barrier", None, process_set)
    if call.comm is not None:
        call.comm.named.barrier(name=call.name)


def join(device: Any = -1) -> int:
    """Declares that this rank has no more data, and waits until all ranks have called it. Returns
    the rank that joined last.

    Until then this rank takes part in the allreduces of the others, also those of
    DistributedOptimizer, with identity elements; an average still divides by the number of all
    ranks. Other operations of theirs, except barrier, fail. ``device`` is accepted for
    compatibility with Horovod. elastic.ElasticSampler needs no join: with it all ranks make the
    same number of steps.
    """
    comm = group_of(None).comm
    if comm is None:
        return 0
    result = lib.wait_rows(comm.named.join(), comm.world)
    comm.named.joined()
    return result.rows[0]
