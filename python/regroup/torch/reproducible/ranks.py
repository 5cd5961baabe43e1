"""The ranks that a step's micro-batches are dealt to, and what they do together."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, List, Optional, Protocol

import torch
import torch.distributed as dist

from .. import operations
from ..reductions import Max, Sum
from ..world import allgather_bytes, world
from . import exchange


class Ranks(Protocol):
    """The ranks of a generation. All of them call its operations, in the same order."""

    rank: int
    size: int
    device: torch.device  #: where what they exchange is
    direct: bool  #: whether exchange takes gradients that have not been made integers

    def entry(self) -> int:
        """A number that changes with the members."""

    def start_sum(self, tensor: torch.Tensor) -> Any:
        """Starts to add up a tensor in place; what it returns has wait()."""

    def start_greatest(self, tensor: torch.Tensor) -> Any:
        """Starts to make each element the greatest of all ranks, in place; what it returns has wait()."""

    def gather(self, row: torch.Tensor) -> List[torch.Tensor]:
        """The rows of all ranks, int64 of one length in the host's memory, by rank."""

    def exchange(self, own: torch.Tensor, dtype: torch.dtype) -> exchange.Exchange:
        """What adds up what is in this rank's memory, flat, of which means of a type are made. Its length is a multiple
        of size."""


class Alone:
    """This process, without others."""

    rank, size, device, direct = 0, 1, torch.device("cpu"), False

    def entry(self) -> int:
        return 0

    def start_sum(self, tensor: torch.Tensor) -> Any:
        return _Done()

    def start_greatest(self, tensor: torch.Tensor) -> Any:
        return _Done()

    def gather(self, row: torch.Tensor) -> List[torch.Tensor]:
        return [row]

    def exchange(self, own: torch.Tensor, dtype: torch.dtype) -> exchange.Exchange:
        return exchange.Everywhere(own, dtype)


class _Done:
    def wait(self) -> None:
        pass


class TorchRanks:
    """Those of a group of torch.distributed, whatever its backend."""

    def __init__(self, group: Optional[Any], device: torch.device):
        self._group, self.device = group, device

    @property
    def rank(self) -> int:
        return dist.get_rank(self._group)

    @property
    def size(self) -> int:
        return dist.get_world_size(self._group)

    @property
    def direct(self) -> bool:
        return self.device.type == "cpu" and self.size > 1

    def entry(self) -> int:
        return world.entries

    def start_sum(self, tensor: torch.Tensor) -> Any:
        return dist.all_reduce(tensor, dist.ReduceOp.SUM, self._group, async_op=True)

    def start_greatest(self, tensor: torch.Tensor) -> Any:
        return dist.all_reduce(tensor, dist.ReduceOp.MAX, self._group, async_op=True)

    def gather(self, row: torch.Tensor) -> List[torch.Tensor]:
        sent = row.to(self.device)
        rows = [torch.empty_like(sent) for _ in range(self.size)]
        dist.all_gather(rows, sent, self._group)
        return [r.cpu() for r in rows]

    def exchange(self, own: torch.Tensor, dtype: torch.dtype) -> exchange.Exchange:
        if self.size == 1:
            return exchange.Everywhere(own, dtype)
        return (exchange.Direct if self.device.type == "cpu" else exchange.Scattered)(own, dtype, self._group)


class EngineRanks:
    """Those of this process's world, on Regroup's engine."""

    device, direct = torch.device("cpu"), False

    def __init__(self, name: str):
        self._name, self._entry, self._calls = name, -1, 0

    @property
    def rank(self) -> int:
        return world.initialized().rank

    @property
    def size(self) -> int:
        return world.initialized().size

    def entry(self) -> int:
        return world.entries

    def start_sum(self, tensor: torch.Tensor) -> Any:
        return _Started(operations.allreduce_async_(tensor, op=Sum, name=self._next()))

    def start_greatest(self, tensor: torch.Tensor) -> Any:
        return _Started(operations.allreduce_async_(tensor, op=Max, name=self._next()))

    def gather(self, row: torch.Tensor) -> List[torch.Tensor]:
        return [torch.tensor(list(memoryview(b).cast("q"))) for b in allgather_bytes(row.numpy().tobytes())]

    def exchange(self, own: torch.Tensor, dtype: torch.dtype) -> exchange.Exchange:
        if self.size == 1:
            return exchange.Everywhere(own, dtype)
        return exchange.Everywhere(own, dtype, self.start_sum)  # in shared memory as fast as in parts

    def _next(self) -> str:
        """The name of the next operation: a backward pass may start it on a thread of its own, where operations have no
        numbers. A generation begins anew."""
        if self._entry != world.entries:
            self._entry, self._calls = world.entries, 0
        self._calls += 1
        return f"{self._name}.{self._calls}"


class _Started:
    def __init__(self, handle: Any):
        self._handle = handle

    def wait(self) -> None:
        operations.synchronize(self._handle)


_accumulators = itertools.count()


def ranks_of(group: Optional[Any], device: torch.device) -> Ranks:
    """The ranks of a group of torch.distributed; None is its default group, or this process's world where
    torch.distributed is not used."""
    if group is not None or dist.is_initialized():
        return TorchRanks(group, device)
    if world.mode is not None:
        return EngineRanks(f"reproducible.{next(_accumulators)}")
    return Alone()


def digest(text: str) -> int:
    """63 bits of a hash."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
