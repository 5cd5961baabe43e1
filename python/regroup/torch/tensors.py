"""Tensors for the engine: an address, a count, a type."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from . import replicas

TYPES = {
    torch.int8: lib.INT8,
    torch.uint8: lib.UINT8,
    torch.bool: lib.UINT8,
    torch.int16: lib.INT16,
    torch.int32: lib.INT32,
    torch.int64: lib.INT64,
    torch.float16: lib.FLOAT16,
    torch.bfloat16: lib.BFLOAT16,
    torch.float32: lib.FLOAT32,
    torch.float64: lib.FLOAT64,
}


def kind(tensor: torch.Tensor) -> int:
    """The engine's type of a tensor's elements."""
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise InvalidArgumentError(f"{tensor.dtype} cannot be reduced")
    return found


def unit(tensor: torch.Tensor) -> Tuple[int, int]:
    """The engine's type for elements that are only copied, and how many of it one is: of any type,
    as bytes if necessary."""
    found = TYPES.get(tensor.dtype)
    return (lib.UINT8, tensor.element_size()) if found is None else (found, 1)


def boolean(tensor: torch.Tensor, op: int) -> int:
    """The reduction on bytes of 0 and 1 that corresponds to op on booleans."""
    if tensor.dtype is not torch.bool:
        return op
    if op == lib.AVERAGE:
        raise InvalidArgumentError("booleans have no average")
    return lib.MAX if op in (lib.SUM, lib.MAX) else lib.MIN


def pairs(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with complex numbers as pairs of numbers."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def check(tensor: torch.Tensor, name: str = "tensor") -> None:
    """Raises for values that no operation accepts."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"{name} is a {type(tensor).__name__}, not a tensor")
    if type(tensor) is not torch.Tensor and replicas.part(tensor):
        raise InvalidArgumentError(f"{name} is {replicas.part(tensor)}: give its to_local(), or its full_tensor()")
    if tensor.layout is not torch.strided:
        raise InvalidArgumentError(f"{name} is sparse: make it dense, for gradients with sparse_as_dense=True")


class Memory:
    """Contiguous memory for the engine, in place of tensors of one type that follow each other in it:
    their own, where own allows it, or a copy, in the host's memory unless there is a GPU engine.

    A copy is filled from the tensors, or with filled=False left as it is. It is pinned if the tensors
    are on a GPU, so that copying is fast.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], gpu: Any = None, own: bool = True, filled: bool = True):
        first, count = tensors[0], sum(t.numel() for t in tensors)
        self._tensors, self.own = tensors, own and (gpu is not None or first.is_cpu) and _adjacent(tensors)
        if self.own:
            self.flat = first if len(tensors) == 1 else first.as_strided((count,), (1,))
            return
        if any(t.dtype != first.dtype for t in tensors):
            raise InvalidArgumentError("tensors of several types in one operation")
        self.flat = torch.empty(
            first.shape if len(tensors) == 1 else count,
            dtype=first.dtype,
            device="cpu" if gpu is None else first.device,
            pin_memory=gpu is None and first.is_cuda,
        )
        for part, tensor in _parts(self.flat, tensors) if filled else ():
            part.copy_(tensor)

    def back(self) -> None:
        """Copies a copy to the tensors."""
        if not self.own:
            spread(self.flat, self._tensors)

    @property
    def finish(self) -> Optional[Callable[[], None]]:
        """What is left to do when an operation has written to it: back, or nothing."""
        return None if self.own else self.back

    @property
    def size(self) -> int:
        """Its number of bytes; -1 if it stands for tensors on a GPU."""
        return self.flat.numel() * self.flat.element_size() if self._tensors[0].is_cpu else -1

    def reduced(self) -> Tuple[int, int, int]:
        """Its address, count and type for an operation that reduces."""
        return self.flat.data_ptr(), self.flat.numel(), kind(self.flat)

    def moved(self) -> Tuple[int, int, int]:
        """The same for one that only copies."""
        kind_, width = unit(self.flat)
        return self.flat.data_ptr(), self.flat.numel() * width, kind_

    def bytes(self) -> Tuple[int, int]:
        """Its address and number of bytes."""
        return self.flat.data_ptr(), self.flat.numel() * self.flat.element_size()


def spread(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies consecutive elements to tensors."""
    for part, tensor in _parts(flat, tensors):
        tensor.copy_(part)


def _parts(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
    """Tensors, and before each the elements of flat that are its own."""
    for part, tensor in zip(flat.reshape(-1).split([t.numel() for t in tensors]), tensors):
        yield part.view(tensor.shape), tensor.detach()


def _adjacent(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors are contiguous in memory, one after the other."""
    if len(tensors) == 1:
        return tensors[0].is_contiguous()
    at, storage = tensors[0].data_ptr(), tensors[0].untyped_storage().data_ptr()
    for t in tensors:
        if not t.is_contiguous() or t.data_ptr() != at or t.untyped_storage().data_ptr() != storage:
            return False
        at += t.numel() * t.element_size()
    return True


def over(address: int, size: int, owner: object = None) -> torch.Tensor:
    """A tensor of bytes over memory of the C library; it references owner."""
    memory = (ctypes.c_char * size).from_address(address)
    memory.owner = owner
    return torch.frombuffer(memory, dtype=torch.uint8)
