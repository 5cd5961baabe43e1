"""This rank's parts of tensors, in memory that the C library reads and writes in place."""

from __future__ import annotations

import ctypes
from typing import Optional, Tuple

import torch

from ...errors import UnsupportedError
from ...training import GlobalTensor, Training
from .. import replicas
from . import layout
from .arena import tensor_of
from .writes import Former, Place


class Part:
    """A part of a tensor of a model: a DTensor, or one that is the same on all ranks."""

    def __init__(self, name: str, tensor: torch.Tensor):
        self.name, self._like = name, tensor
        self._offset = layout.offset(name, tensor)
        self._use(layout.local(tensor).detach())

    def _use(self, local: torch.Tensor) -> None:
        """Chooses the memory to register for a tensor in use: its own where possible."""
        why = replicas.unkept(local)
        if why:
            raise UnsupportedError(f"{self.name} is {why}")
        self._local = self._memory = local
        if local.device.type != "cpu" or not local.is_contiguous():
            self._memory = torch.empty(local.shape, dtype=local.dtype, pin_memory=local.device.type == "cuda")

    def away(self) -> bool:
        """Whether the memory that is registered is not that of the tensor in use."""
        return self._memory is not self._local

    def used(self) -> torch.Tensor:
        """The tensor in use."""
        return self._local

    def watched(self) -> Place:
        """Where the tensor in use is."""
        return Place(self.name, self._local, self._in_use())

    def bring(self) -> None:
        """Copies the tensor in use to the memory, if that is another; from a device this may go on."""
        if self._memory is not self._local:
            self._memory.copy_(self._local, non_blocking=self._memory.is_pinned())

    def place(self) -> Optional[Place]:
        """Where it is, if the memory that is registered is that of the tensor in use."""
        return None if self.away() else self.watched()

    def _in_use(self) -> torch.Tensor:
        return self._like

    def _whole(self) -> GlobalTensor:
        return GlobalTensor(self.name, str(self._local.dtype), self._local.element_size(), tuple(self._like.shape))

    def register(self, training: Training, former: Former) -> None:
        """Registers the memory."""
        memory = self._memory
        extent = memory.shape if memory.numel() else (0,) * memory.dim()
        address, unchanged = memory.data_ptr() if memory.numel() else 0, former.unchanged(self.name, memory)
        training.shard(self._whole(), self._offset, extent, address, memory.nbytes, unchanged)

    def capture(self, tensor: Optional[torch.Tensor]) -> torch.Tensor:
        """Raises UnsupportedError for a tensor in use that is not the one from before; returns it."""
        if tensor is None:
            raise UnsupportedError(f"{self.name} was removed since build was called: make all of the model there")
        now = layout.local(tensor)
        if now.data_ptr() != self._local.data_ptr() or now.shape != self._local.shape:
            raise UnsupportedError(
                f"{self.name} was replaced since build made it, and what is sharded stays in its memory until build is "
                "called again: copy into its tensors"
            )
        return tensor

    def apply(self) -> None:
        """Updates the tensor in use from the memory."""
        if self._memory is not self._local:
            self._local.copy_(self._memory)


class StatePart(Part):
    """A part of a tensor that an optimizer makes for a parameter at its first step: of the shape of
    the parameter, or a number, on a device. outline is what it makes for a parameter of the shape
    stand_in. memory is for it, if it is on the host and no number."""

    def __init__(
        self,
        name: str,
        parameter: torch.Tensor,
        outline: torch.Tensor,
        stand_in: Tuple[int, ...],
        device: torch.device,
        memory: Optional[ctypes.Array] = None,
    ):
        self.name = name
        number = outline.dim() == 0
        if not number and tuple(outline.shape) != stand_in:
            raise UnsupportedError(
                f"{name} has neither the shape of its parameter nor that of a number: it has no parts"
            )
        if memory is not None:
            self._like, self._offset = parameter, layout.offset(name, parameter)
            self._use(tensor_of(memory, layout.local(parameter).shape, outline.dtype))
        elif number:
            self._like, self._offset = outline, ()
            self._use(torch.zeros((), dtype=outline.dtype, device=device))
        else:
            self._like, self._offset = parameter, layout.offset(name, parameter)
            self._use(torch.zeros_like(layout.local(parameter).detach(), dtype=outline.dtype))
        self._tensor = self._local if number else _as(parameter, self._local)

    @staticmethod
    def size(parameter: torch.Tensor, outline: torch.Tensor) -> int:
        """How many bytes of memory the constructor needs; 0 = none."""
        local = layout.local(parameter)
        if outline.dim() == 0 or local.device.type != "cpu" or not local.is_contiguous():
            return 0
        return local.numel() * outline.element_size()

    def _in_use(self) -> torch.Tensor:
        return self._tensor

    def clear(self) -> None:
        """Makes it what an optimizer begins with."""
        self._local.zero_()

    def tensor(self) -> torch.Tensor:
        """The tensor for the optimizer, with what is in the memory."""
        self.apply()
        return self._tensor

    def capture(self, tensor: Optional[torch.Tensor]) -> torch.Tensor:
        """Notes the tensor in use; returns the one to use from now on."""
        if not torch.is_tensor(tensor):
            raise UnsupportedError(f"{self.name} has become a {type(tensor).__name__}")
        local = layout.local(tensor)
        if local.shape != self._local.shape or local.dtype != self._local.dtype:
            raise UnsupportedError(
                f"{self.name} has become {local.dtype} {tuple(local.shape)}, and was {self._local.dtype} "
                f"{tuple(self._local.shape)}"
            )
        if local.data_ptr() != self._local.data_ptr():
            self._local.copy_(local)
        return self._tensor


def _as(parameter: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """A tensor that is dealt to the ranks like a parameter, with this rank's part."""
    if not layout.dtensor(parameter):
        return local
    from torch.distributed.tensor import DTensor

    p: DTensor = parameter  # type: ignore[assignment]
    return DTensor.from_local(local, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride())
