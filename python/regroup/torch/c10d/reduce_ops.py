"""Reductions: all_reduce, reduce, reduce_scatter. Lists have one tensor, except for the
..._coalesced ones."""

from __future__ import annotations

from typing import Any, List, Sequence

import torch
import torch.distributed as dist

from ... import _library as lib
from ...errors import InvalidArgumentError
from ..tensors import TYPES, check, kind, reachable, staged
from .reductions import bitwise, reduction
from .base_group import INLINE_BYTES, BaseProcessGroup, size_of
from .work import CompletedWork, called_by_python, completed_work


class ReduceOps(BaseProcessGroup):
    """all_reduce, reduce, reduce_scatter."""

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceOptions()) -> Any:
        """Reduces the ranks' tensors in place."""
        tensor = tensors[0]
        if (
            len(tensors) == 1
            and tensor.is_cpu
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
        ):
            # The fast path of small tensors, which bound the step time of small models.
            op, type_ = reduction(opts, tensor), TYPES.get(tensor.dtype)
            count = tensor.numel()
            if op is not None and type_ and 0 < count * tensor.element_size() <= INLINE_BYTES:
                status = self._allreduce(self._handle, tensor.data_ptr(), count, type_, op, None)
                if status:
                    raise lib.failure(status)
                return CompletedWork(tensors) if called_by_python() else completed_work(tensors)
        return self._allreduce_any(tensors, opts)

    def _allreduce_any(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        for tensor in tensors:
            check(tensor)
        op = reduction(opts, tensors[0])
        if op is None:
            bitwise(self._comm, opts, tensors)
            return self._run(0, lambda start: None, tensors)
        gpu = self._gpu_engine(*tensors)
        first = tensors[0]
        within = first.is_contiguous() if gpu is not None else reachable(first)
        if len(tensors) == 1 and within and not first.is_complex():
            flat, finish = first, None
        else:
            flat = flattened(tensors, "cpu" if gpu is None else first.device)
            finish = lambda: unflatten(flat, tensors)  # noqa: E731
        if flat.numel() == 0:
            return self._run(0, lambda start: None, tensors)
        if gpu is not None:
            return self._run_on_gpu(
                lambda start: gpu.allreduce(flat, op, start=start), tensors, finish
            )
        size = flat.numel() * flat.element_size()
        call = lambda start: self._comm.allreduce(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        return self._run(size if tensors[0].is_cpu else 0, call, tensors, finish)

    def allreduce_coalesced(
        self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceCoalescedOptions()
    ) -> Any:
        """Reduces many tensors of one type at once."""
        return self._allreduce_any(tensors, opts)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Reduces the ranks' tensors at the root; the others keep theirs."""
        (tensor,) = tensors
        check(tensor)
        root = opts.rootRank == self._comm.rank
        op = reduction(opts, tensor)
        if op is None:
            raise InvalidArgumentError("reduce has no bitwise operations: use all_reduce")
        pairs = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        own = root and reachable(pairs)
        work = pairs if own else staged(pairs)
        finish = (lambda: pairs.copy_(work)) if root and not own else None
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, tensors)
        call = lambda start: self._comm.reduce(  # noqa: E731
            work.data_ptr(), work.numel(), kind(work), op, opts.rootRank, start
        )
        return self._run(size_of(tensor), call, tensors, finish, wait=True)

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None
    ) -> Any:
        """Reduces the ranks' lists; each rank gets its tensor of the result."""
        (output,), (parts,) = outputs, inputs
        self._check_parts(parts, output, "input")
        return self._scatter_reduced(output, flattened(parts), opts, outputs)

    def _reduce_scatter_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """Reduces the ranks' tensors; each rank gets its part of the result."""
        check(tensor)
        check(output, "output")
        if tensor.numel() != output.numel() * self._comm.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"input has {tensor.numel()} elements of {tensor.dtype}, not {self._comm.world} times "
                f"{output.numel()} of {output.dtype}"
            )
        return self._scatter_reduced(output, staged(tensor).reshape(-1), opts, output)

    def reduce_scatter_tensor(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """The newer name of the same operation."""
        return self._reduce_scatter_base(output, tensor, opts)

    def _scatter_reduced(
        self, output: torch.Tensor, flat: torch.Tensor, opts: Any, result: Any
    ) -> Any:
        op = lib.SUM if opts is None else reduction(opts, flat)
        if op is None:
            raise InvalidArgumentError("reduce_scatter has no bitwise operations")
        mine = flat[self._comm.rank * output.numel() :][: output.numel()]
        if flat.numel() == 0:
            return self._run(0, lambda start: None, result)
        call = lambda start: self._comm.reduce_scatter(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        finish = lambda: output.copy_(mine.view(output.shape))  # noqa: E731
        return self._run(size_of(flat) if output.is_cpu else 0, call, result, finish)


def flattened(tensors: Sequence[torch.Tensor], device: Any = "cpu") -> torch.Tensor:
    """A contiguous copy of tensors, by default in the host's memory; complex numbers as pairs."""
    if len({t.dtype for t in tensors}) > 1:
        raise InvalidArgumentError("tensors of several types in one operation")
    parts = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    return torch.cat([t.detach().to(device).reshape(-1) for t in parts])


def unflatten(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies the result of flattened back to the tensors."""
    at = 0
    for t in tensors:
        view = torch.view_as_real(t) if t.is_complex() else t
        view.copy_(flat[at : at + view.numel()].view(view.shape))
        at += view.numel()
