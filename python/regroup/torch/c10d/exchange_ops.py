"""Operations between pairs of ranks: all_to_all, send, recv."""

from __future__ import annotations

from typing import Any, List

import torch

from ...errors import InvalidArgumentError
from ..tensors import TYPES, check, moved, reachable, staged
from .operations import Operations, size_of
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
        into = self._split(output, output_splits, "output")
        work = tensor if reachable(tensor) else staged(tensor)
        own = reachable(output) and output.data_ptr() != work.data_ptr()
        flat = output if own else torch.empty(output.shape, dtype=output.dtype)
        _, kind_ = moved(work)
        width = work.element_size() if work.dtype not in TYPES else 1
        call = lambda start: self._comm.alltoall(  # noqa: E731
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [n * width for n in out],
            [n * width for n in into],
            start,
        )
        finish = None if own else lambda: output.copy_(flat)
        return self._run(size_of(tensor, flat), call, output, finish, opts, wait=True)

    alltoall_base = all_to_all_single

    def _split(self, tensor: torch.Tensor, splits: List[int], name: str) -> List[int]:
        """The number of elements for or from each rank."""
        world = self._comm.world
        rows = tensor.shape[0] if tensor.dim() else 1
        width = tensor.numel() // rows if rows else 0
        if not splits:
            if rows % world:
                raise InvalidArgumentError(
                    f"{name} has {rows} rows, no multiple of {world} ranks: give splits"
                )
            splits = [rows // world] * world
        if len(splits) != world or sum(splits) != rows:
            raise InvalidArgumentError(
                f"splits {splits} do not divide {rows} rows of {name} among {world} ranks"
            )
        return [n * width for n in splits]

    def alltoall(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Sends tensor i of inputs to rank i."""
        for name, parts in (("output", outputs), ("input", inputs)):
            if len(parts) != self._comm.world:
                raise InvalidArgumentError(
                    f"{len(parts)} tensors of {name} for {self._comm.world} ranks"
                )
            for part in parts:
                check(part, name)
        work = torch.cat([t.detach().cpu().reshape(-1) for t in inputs])
        flat = torch.empty(sum(t.numel() for t in outputs), dtype=outputs[0].dtype)
        _, kind_ = moved(work)
        width = work.element_size() if work.dtype not in TYPES else 1
        call = lambda start: self._comm.alltoall(  # noqa: E731
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [t.numel() * width for t in inputs],
            [t.numel() * width for t in outputs],
            start,
        )
        finish = lambda: _split_into(flat, outputs)  # noqa: E731
        return self._run(size_of(inputs[0], flat), call, outputs, finish, opts, wait=True)

    def send(self, tensors: List[torch.Tensor], dst: int, tag: int) -> Any:
        """Sends a tensor to a rank that receives one of the same length with this tag."""
        (tensor,) = tensors
        check(tensor)
        _check_tag(tag)
        work = tensor if reachable(tensor) else staged(tensor)
        request = self._comm.send(
            work.data_ptr(), work.numel() * work.element_size(), dst, tag, start=True
        )
        return self._pending(StartedOp(request, tensors, None, work))

    def recv(self, tensors: List[torch.Tensor], src: int, tag: int) -> Any:
        """Receives the next tensor of a rank with this tag."""
        (tensor,) = tensors
        check(tensor)
        _check_tag(tag)
        work = tensor if reachable(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
        request = self._comm.recv(
            work.data_ptr(), work.numel() * work.element_size(), src, tag, start=True
        )
        finish = None if work is tensor else lambda: tensor.copy_(work)
        return self._pending(StartedOp(request, tensors, finish, work))

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int) -> Any:
        """Receives the next tensor with this tag, of any rank."""
        (tensor,) = tensors
        check(tensor)
        _check_tag(tag)
        work = tensor if reachable(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
        request, source = self._comm.recv_any(
            work.data_ptr(), work.numel() * work.element_size(), tag
        )
        finish = None if work is tensor else lambda: tensor.copy_(work)
        return self._pending(StartedOp(request, tensors, finish, work, source))


def _check_tag(tag: int) -> None:
    if tag < 0:
        raise InvalidArgumentError(f"tag {tag} is negative: those are the package's own")


def _split_into(flat: torch.Tensor, parts: List[torch.Tensor]) -> None:
    """Copies consecutive elements to tensors."""
    at = 0
    for part in parts:
        part.copy_(flat[at : at + part.numel()].view(part.shape))
        at += part.numel()
