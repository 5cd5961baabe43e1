"""Reductions: all_reduce, reduce, reduce_scatter. Lists have one tensor, except for those of the
..._coalesced ones. Where torch has renamed an operation, both names exist."""

from __future__ import annotations

import functools
from threading import get_ident
from time import monotonic
from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist

from ... import _library as lib
from ...errors import InvalidArgumentError
from ..tensors import TYPES, check, kind, reachable, staged
from .operations import INLINE_BYTES, size_of
from .reductions import combination, reduction
from .sparse_ops import SparseOps


class ReduceOps(SparseOps):
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
            size = count * tensor.element_size()
            if op is not None and type_ and 0 < size <= INLINE_BYTES:
                completed = self._inline(size, opts)
                if completed is not None:
                    waiter, thread = self._waiter, get_ident()
                    if not waiter.watching:
                        waiter.watch()
                    waiter.inline[thread] = monotonic()
                    try:
                        call = lib.Op(
                            size=lib.OP_SIZE,
                            code=lib.ALLREDUCE,
                            type=type_,
                            reduction=op,
                            recv=tensor.data_ptr(),
                            count=count,
                        )
                        status = self._start(self._handle, call, None)
                    finally:
                        del waiter.inline[thread]
                    if status:
                        raise waiter.cause(lib.failure(status))
                    return completed(tensors)
        return self._allreduce_any(tensors, opts)

    def _allreduce_any(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        if tensors[0].layout is not torch.strided:
            return self.allreduce_sparse(tensors, opts)
        for tensor in tensors:
            check(tensor)
        op = reduction(opts, tensors[0])
        if op is None:
            flat = flattened(tensors)
            return self._bitwise(flat, opts, tensors, lambda all_: unflatten(all_, tensors))
        gpu = self._gpu_engine(*tensors)
        first = tensors[0]
        within = first.is_contiguous() if gpu is not None else reachable(first)
        if len(tensors) == 1 and within and not first.is_complex():
            flat, finish = first, None
        else:
            flat = flattened(tensors, "cpu" if gpu is None else first.device)
            finish = lambda: unflatten(flat, tensors)  # noqa: E731
        if flat.numel() == 0:
            return self._completed(tensors)
        if gpu is not None:
            return self._run_on_gpu(
                lambda start: gpu.allreduce(flat, op, start=start), tensors, finish
            )
        call = lambda start: self._comm.allreduce(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        return self._run(size_of(first, flat), call, tensors, finish, opts)

    def allreduce_coalesced(
        self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceCoalescedOptions()
    ) -> Any:
        """Reduces many tensors of one type at once."""
        return self._allreduce_any(tensors, opts)

    def _bitwise(
        self, flat: torch.Tensor, opts: Any, result: Any, into: Callable[[torch.Tensor], Any]
    ) -> Any:
        """Reduces the bits of a contiguous tensor of integers, which are gathered for it; into
        copies the reduced ones to where they belong."""
        combine, world = combination(opts, flat), self._comm.world
        gathered = torch.empty(world, flat.numel(), dtype=flat.dtype)
        if flat.numel() == 0:
            return self._completed(result)
        call = lambda start: self._comm.allgather(  # noqa: E731
            flat.data_ptr(),
            gathered.data_ptr(),
            flat.numel() * flat.element_size(),
            lib.UINT8,
            start,
        )
        finish = lambda: into(functools.reduce(combine, gathered))  # noqa: E731
        return self._run(size_of(flat, gathered), call, result, finish, opts)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Reduces the ranks' tensors at the root; the others keep theirs."""
        (tensor,) = tensors
        check(tensor)
        root = opts.rootRank == self._comm.rank
        op = reduction(opts, tensor)
        if op is None:
            into = (lambda all_: tensor.copy_(all_.view(tensor.shape))) if root else (lambda _: None)
            return self._bitwise(flattened([tensor]), opts, tensors, into)
        pairs = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        own = root and reachable(pairs)
        work = pairs if own else staged(pairs)
        finish = (lambda: pairs.copy_(work)) if root and not own else None
        if tensor.numel() == 0:
            return self._completed(tensors)
        call = lambda start: self._comm.reduce(  # noqa: E731
            work.data_ptr(), work.numel(), kind(work), op, opts.rootRank, start
        )
        return self._run(size_of(tensor), call, tensors, finish, opts, wait=True)

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None
    ) -> Any:
        """Reduces the ranks' lists; each rank gets its tensor of the result. The tensors of a list may
        differ in size, on all ranks alike."""
        (output,), (parts,) = outputs, inputs
        if len(parts) != self._comm.world or len({p.numel() for p in parts}) == 1:
            self._check_parts(parts, output, "input")
            return self._scatter_reduced([output], flattened(parts), opts, outputs)
        check(output, "output")
        for part in parts:
            check(part, "input")
        own = parts[self._comm.rank]
        if own.numel() != output.numel() or own.dtype != output.dtype:
            raise InvalidArgumentError(
                f"input {self._comm.rank} has {own.numel()} elements of {own.dtype}, not {output.numel()} of {output.dtype}"
            )
        return self._scatter_uneven(output, parts, opts, outputs)

    def _scatter_uneven(
        self, output: torch.Tensor, parts: List[torch.Tensor], opts: Any, result: Any
    ) -> Any:
        """Reduces all of the parts on all ranks: segments of the engine are of one size."""
        flat = flattened(parts)
        pairs = 2 if output.is_complex() else 1
        begin = pairs * sum(p.numel() for p in parts[: self._comm.rank])
        segment = slice(begin, begin + pairs * output.numel())
        op = lib.SUM if opts is None else reduction(opts, output)
        if op is None:
            return self._bitwise(flat, opts, result, lambda all_: unflatten(all_[segment], [output]))
        call = lambda start: self._comm.allreduce(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        finish = lambda: unflatten(flat[segment], [output])  # noqa: E731
        return self._run(size_of(output, flat), call, result, finish, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """Reduces the ranks' tensors; each rank gets its part of the result."""
        self._check_scattered(output, tensor)
        return self._scatter_reduced([output], flattened([tensor]), opts, output)

    _reduce_scatter_base = reduce_scatter_tensor = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Reduces several tensors of one type at once; each rank gets its part of each of them."""
        for output, tensor in zip(outputs, inputs):
            self._check_scattered(output, tensor)
        world = self._comm.world
        split = [tensor.reshape(world, -1) for tensor in inputs]
        flat = flattened([rows[r] for r in range(world) for rows in split])
        return self._scatter_reduced(outputs, flat, opts, outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _check_scattered(self, output: torch.Tensor, tensor: torch.Tensor) -> None:
        check(tensor)
        check(output, "output")
        if tensor.numel() != output.numel() * self._comm.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"input has {tensor.numel()} elements of {tensor.dtype}, not {self._comm.world} times "
                f"{output.numel()} of {output.dtype}"
            )

    def _scatter_reduced(
        self, outputs: List[torch.Tensor], flat: torch.Tensor, opts: Any, result: Any
    ) -> Any:
        """Reduces flat, a copy of what each rank gives, to the segments of the ranks, each of which
        has the elements of outputs."""
        count = flat.numel() // self._comm.world
        segment = slice(self._comm.rank * count, (self._comm.rank + 1) * count)
        op = lib.SUM if opts is None else reduction(opts, outputs[0])
        if op is None:
            return self._bitwise(flat, opts, result, lambda all_: unflatten(all_[segment], outputs))
        if flat.numel() == 0:
            return self._completed(result)
        call = lambda start: self._comm.reduce_scatter(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        finish = lambda: unflatten(flat[segment], outputs)  # noqa: E731
        return self._run(size_of(outputs[0], flat), call, result, finish, opts)


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
