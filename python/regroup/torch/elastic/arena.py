"""Memory that is used again from one generation to the next: fresh memory costs several times what it
takes to fill memory that is there."""

from __future__ import annotations

import ctypes
from typing import Iterator, List, Sequence

import torch

_ALIGNED = 64  # bytes, a cache line


class Arena:
    """Memory for tensors on the host, all of which are replaced at once."""

    def __init__(self) -> None:
        self._blocks: List[torch.Tensor] = []
        self._used = 0  # of them, by what was given out last

    def allocate(self, sizes: Sequence[int]) -> Iterator[ctypes.Array]:
        """Yields memory of so many bytes each, whose content is undefined. What was given out before
        may be part of it, and is kept where at least two thirds of it are needed."""
        sizes = [(size + _ALIGNED - 1) // _ALIGNED * _ALIGNED for size in sizes]
        total, there = sum(sizes), sum(map(len, self._blocks))
        if 3 * total < 2 * there:
            self._blocks = []
        self._used = 0
        at, block = 0, 0
        for i, size in enumerate(sizes):
            while block < len(self._blocks) and at + size > len(self._blocks[block]):
                at, block = 0, block + 1
            if block == len(self._blocks):
                self._blocks.append(torch.empty(sum(sizes[i:]), dtype=torch.uint8))
            owner = self._blocks[block]
            memory = (ctypes.c_uint8 * size).from_address(owner.data_ptr() + at)
            memory.owner = owner  # type: ignore[attr-defined]
            at += size
            self._used = block + 1
            yield memory

    def trim(self) -> None:
        """Frees what was not given out again."""
        del self._blocks[self._used :]


def trim_heap() -> None:
    """Gives memory that was freed back to the system: glibc keeps tensors of less than 32 MiB in its
    heap, where those of the next generation, which have other sizes, may not fit."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    if trim is not None:
        trim(0)


def tensor_of(memory: ctypes.Array, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor in memory of an arena. Its storage is no larger than it is."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(tuple(shape))
