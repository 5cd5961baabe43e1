"""Tensors of the state, in memory that the C library reads and writes in place."""

from __future__ import annotations

from typing import Iterable

import torch

from ...errors import UnsupportedError
from ...training import Training
from .. import replicas


class RegisteredTensor:
    """One tensor of the state. ``memory`` is registered with the library, under a name with what must
    be equal on all ranks; the tensor in use shares it where possible."""

    def __init__(self, training: Training, name: str, memory: torch.Tensor):
        self.name, self.memory = name, memory
        training.tensor(self._full(), memory.data_ptr(), memory.nbytes)

    def _full(self) -> str:
        return f"{self.name} {self.memory.dtype} {tuple(self.memory.shape)}"

    def set_live(self, training: Training) -> int:
        """Says that only a step of an optimizer changes the memory; returns its size in bytes."""
        training.live(self._full())
        return self.memory.nbytes

    def capture(self, current: torch.Tensor) -> None:
        """Copies the tensor in use to the memory. Raises UnsupportedError if it has become one that
        the memory cannot hold."""
        memory = self.memory
        if type(current) is not torch.Tensor and type(current) is not torch.nn.Parameter:
            replicas.check(self.name, current)
        if current.shape != memory.shape or current.dtype != memory.dtype:
            raise UnsupportedError(
                f"{self.name} has become {current.dtype} {tuple(current.shape)}, and was {memory.dtype} "
                f"{tuple(memory.shape)} when elastic.run began: a state keeps what it began with"
            )
        if current.data_ptr() != self.memory.data_ptr():
            # Copies from a device go on; see settle.
            self.memory.copy_(current, non_blocking=memory.is_pinned())

    def apply(self, current: torch.Tensor) -> None:
        """Copies the memory to the tensor in use."""
        if current.data_ptr() != self.memory.data_ptr():
            current.copy_(self.memory)


def settle(tensors: Iterable[torch.Tensor]) -> None:
    """Waits until the copies of tensors in use have ended, on all of their devices."""
    for device in {t.device for t in tensors}:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def memory_for(name: str, current: torch.Tensor) -> torch.Tensor:
    """Memory to register for a tensor: its own, if that is contiguous in the host's memory. Raises
    UnsupportedError for a tensor that is more than its bytes, or less."""
    replicas.check(name, current)
    current = current.detach()
    if current.device.type == "cpu" and current.is_contiguous():
        return current
    pin = current.device.type == "cuda"
    return torch.empty(current.shape, dtype=current.dtype, device="cpu", pin_memory=pin)
