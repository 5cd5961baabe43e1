"""Operations between pairs of ranks: all_to_all, send, recv."""

from __future__ import annotations

from typing import Any, List

import torch

from ...errors import InvalidArgumentError
from ..tensors import Memory, check
from .operations import Operations
from .work import StartedOp


class ExchangeOps(Operations):
    """all_to_all, send, recv."""

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: List[int],
        input_splits: List[int],
        opts: Any = None,
    ) -> Any:
        """Sends rows to all ranks, as many as the splits say; empty splits = equal parts."""
        check(tensor)
        check(output, "output")
        if output.dtype != tensor.dtype:
            raise InvalidArgumentError(f"output is of {output.dtype}, input of {tensor.dtype}")
        out = self._split(tensor, input_splits, "input")
        back = self._split(output, output_splits, "output")
        gpu = self._gpu_engine(tensor, output)
        given = Memory([tensor], gpu)
        into = Memory([output], gpu, own=output.data_ptr() != given.flat.data_ptr(), filled=False)
        return self._exchange(given, out, into, back, output, opts, gpu)

    alltoall_base = all_to_all_single

    def _split(self, tensor: torch.Tensor, splits: List[int], name: str) -> List[int]:
        """The number of elements for or from each rank."""
        world = self._comm.world
        rows = tensor.shape[0] if tensor.dim() else 1
        width = tensor.numel() // rows if rows else 0
        if not splits:
            if rows % world:
                raise InvalidArgumentError(f"{name} has {rows} rows, no multiple of {world} ranks: give splits")
            splits = [rows // world] * world
        if len(splits) != world or sum(splits) != rows:
            raise InvalidArgumentError(f"splits {splits} do not divide {rows} rows of {name} among {world} ranks")
        return [n * width for n in splits]

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Any:
        """Sends tensor i of inputs to rank i."""
        self._check_parts(outputs, None, "output")
        self._check_parts(inputs, None, "input")
        out, back = [t.numel() for t in inputs], [t.numel() for t in outputs]
        gpu = self._gpu_engine(*inputs, *outputs)
        into = Memory(outputs, gpu, own=False, filled=False)
        return self._exchange(Memory(inputs, gpu), out, into, back, outputs, opts, gpu)

    def send(self, tensors: List[torch.Tensor], dst: int, tag: int) -> Any:
        """Sends a tensor to a rank that receives one of the same length with this tag."""
        memory = _message(tensors, tag)
        request = self._comm.send(*memory.bytes(), dst, tag, start=True)
        return self._pending(StartedOp(request, tensors, None, memory))

    def recv(self, tensors: List[torch.Tensor], src: int, tag: int) -> Any:
        """Receives the next tensor of a rank with this tag."""
        memory = _message(tensors, tag, filled=False)
        request = self._comm.recv(*memory.bytes(), src, tag, start=True)
        return self._pending(StartedOp(request, tensors, memory.finish, memory))

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int) -> Any:
        """Receives the next tensor with this tag, of any rank."""
        memory = _message(tensors, tag, filled=False)
        request, source = self._comm.recv_any(*memory.bytes(), tag)
        return self._pending(StartedOp(request, tensors, memory.finish, memory, source))


def _message(tensors: List[torch.Tensor], tag: int, filled: bool = True) -> Memory:
    """The memory of a message that is one tensor."""
    (tensor,) = tensors
    check(tensor)
    if tag < 0:
        raise InvalidArgumentError(f"tag {tag} is negative: those are the package's own")
    return Memory([tensor], filled=filled)
