"""Tensors for the engine: an address, a count, a type."""

from __future__ import annotations

from typing import Tuple

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


def moved(tensor: torch.Tensor) -> Tuple[int, int]:
    """Count and type of a tensor that is only copied: any type, as bytes if necessary."""
    found = TYPES.get(tensor.dtype)
    if found is None:
        return tensor.numel() * tensor.element_size(), lib.UINT8
    return tensor.numel(), found


def boolean(tensor: torch.Tensor, op: int) -> int:
    """The reduction on bytes of 0 and 1 that corresponds to op on booleans."""
    if tensor.dtype is not torch.bool:
        return op
    if op == lib.AVERAGE:
        raise InvalidArgumentError("booleans have no average")
    return lib.MAX if op in (lib.SUM, lib.MAX) else lib.MIN


def reachable(tensor: torch.Tensor) -> bool:
    """Whether the engine can operate on the tensor's own memory."""
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def check(tensor: torch.Tensor, name: str = "tensor") -> None:
    """Raises for values that no operation accepts."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"{name} is a {type(tensor).__name__}, not a tensor")
    if type(tensor) is not torch.Tensor and replicas.part(tensor):
        raise InvalidArgumentError(
            f"{name} is {replicas.part(tensor)}: give its to_local(), or its full_tensor()"
        )
    if tensor.layout is not torch.strided:
        raise InvalidArgumentError(
            f"{name} is sparse: make it dense, for gradients with sparse_as_dense=True"
        )


def staged(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in the host's memory; pinned if the tensor is on a GPU, so that copies are
    fast."""
    pin = tensor.device.type == "cuda"
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pin)
    return copy.copy_(tensor)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy on the tensor's device."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.detach())


def over(address: int, size: int, owner: object = None) -> torch.Tensor:
    """A tensor of bytes over memory of the C library; it references owner."""
    import ctypes

    memory = (ctypes.c_char * size).from_address(address)
    memory.owner = owner
    return torch.frombuffer(memory, dtype=torch.uint8)
