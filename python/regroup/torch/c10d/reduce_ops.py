"""Reductions: all_reduce, reduce, reduce_scatter. Lists have one tensor, except for those of the
..._coalesced ones. Where torch has renamed an operation, both names exist."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist

from ... import _library as lib
from ...errors import InvalidArgumentError
from ..tensors import TYPES, Memory, check, pairs, spread
from .operations import INLINE_BYTES
from .reductions import combination, reduction
from .sparse_ops import SparseOps


class ReduceOps(SparseOps):
    """all_reduce, reduce, reduce_scatter."""

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceOptions()) -> Any:
        """Reduces the ranks' tensors in place."""
        tensor = tensors[0]
        if len(tensors) == 1 and tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous():
            # The fast path of small tensors, which bound the step time of small models.
            op, type_ = reduction(opts, tensor), TYPES.get(tensor.dtype)
            count = tensor.numel()
            size = count * tensor.element_size()
            if op is not None and type_ and 0 < size <= INLINE_BYTES:
                completed = self._inline(size, opts)
                if completed is not None:
                    call = lib.Op(
                        size=lib.OP_SIZE,
                        code=lib.ALLREDUCE,
                        type=type_,
                        reduction=op,
                        recv=tensor.data_ptr(),
                        count=count,
                    )
                    lib.started += 1
                    status = self._here(self._start, self._handle, call, None)
                    if status:
                        raise self._waiter.cause(lib.failure(status))
                    return completed(tensors)
        return self._allreduce_any(tensors, opts)

    def _allreduce_any(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        if tensors[0].layout is not torch.strided:
            return self.allreduce_sparse(tensors, opts)
        for tensor in tensors:
            check(tensor)
        op, numbers = reduction(opts, tensors[0]), [pairs(t) for t in tensors]
        if op is None:
            return self._bitwise(numbers, opts, tensors, lambda all_: spread(all_, tensors))
        gpu = self._gpu_engine(*tensors)
        memory = Memory(numbers, gpu)
        if memory.flat.numel() == 0:
            return self._completed(tensors)
        move = partial(self._comm.allreduce, *memory.reduced(), op)
        if gpu is not None:
            move = partial(gpu.allreduce, memory.flat, op)
        return self._run(memory.size, move, memory, tensors, opts, memory.finish, gpu=gpu)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceCoalescedOptions()) -> Any:
        """Reduces many tensors of one type at once."""
        return self._allreduce_any(tensors, opts)

    def _bitwise(
        self, tensors: Sequence[torch.Tensor], opts: Any, result: Any, into: Callable[[torch.Tensor], Any]
    ) -> Any:
        """Reduces the bits of integers, which are gathered for it; into copies the reduced ones to
        where they belong."""
        gpu = self._gpu_engine(*tensors)
        combine, flat = combination(opts, tensors[0]), Memory(tensors, gpu).flat.reshape(-1)
        finish = lambda rows: into(functools.reduce(combine, rows))  # noqa: E731
        return self._gather_bytes(flat, tensors[0], result, opts, finish, gpu)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Reduces the ranks' tensors at the root; the others keep theirs."""
        (tensor,) = tensors
        check(tensor)
        root, op = opts.rootRank == self._comm.rank, reduction(opts, tensor)
        if op is None:
            into = lambda all_: spread(all_, tensors) if root else None  # noqa: E731
            return self._bitwise(tensors, opts, tensors, into)
        gpu = self._gpu_engine(tensor)
        memory = Memory([pairs(tensor)], gpu, own=root)
        if tensor.numel() == 0:
            return self._completed(tensors)
        move = partial(self._comm.reduce, *memory.reduced(), op, opts.rootRank)
        if gpu is not None:
            move = partial(gpu.reduce, memory.flat, op, opts.rootRank)
        return self._run(memory.size, move, memory, tensors, opts, memory.finish if root else None, wait=True, gpu=gpu)

    def reduce_scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None) -> Any:
        """Reduces the ranks' lists; each rank gets its tensor of the result. The tensors of a list may
        differ in size, on all ranks alike."""
        (output,), (parts,) = outputs, inputs
        even = len(parts) != self._comm.world or len({p.numel() for p in parts}) == 1
        if even:
            self._check_parts(parts, output, "input")
            return self._scatter_reduced(outputs, parts, opts, outputs)
        check(output, "output")
        self._check_parts(parts, None, "input")
        own = parts[self._comm.rank]
        if own.numel() != output.numel() or own.dtype != output.dtype:
            raise InvalidArgumentError(
                f"input {self._comm.rank} has {own.numel()} elements of {own.dtype}, not {output.numel()} of {output.dtype}"
            )
        begin = sum(pairs(p).numel() for p in parts[: self._comm.rank])
        return self._scatter_reduced(outputs, parts, opts, outputs, begin)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Reduces the ranks' tensors; each rank gets its part of the result."""
        self._check_whole(tensor, output, "input")
        return self._scatter_reduced([output], [tensor], opts, output)

    _reduce_scatter_base = reduce_scatter_tensor = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Reduces several tensors of one type at once; each rank gets its part of each of them."""
        for output, tensor in zip(outputs, inputs):
            self._check_whole(tensor, output, "input")
        split = [tensor.reshape(self._comm.world, -1) for tensor in inputs]
        parts = [rows[r] for r in range(self._comm.world) for rows in split]
        return self._scatter_reduced(outputs, parts, opts, outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scatter_reduced(
        self, outputs: Sequence[torch.Tensor], parts: Sequence[torch.Tensor], opts: Any, result: Any, begin: int = -1
    ) -> Any:
        """Reduces what each rank gives, and copies the segment of this rank to outputs: from begin on,
        or -1 = the segments of all ranks are of one size."""
        op = lib.SUM if opts is None else reduction(opts, outputs[0])
        into, numbers = [pairs(t) for t in outputs], [pairs(t) for t in parts]
        count = sum(t.numel() for t in into)
        at = begin if begin >= 0 else self._comm.rank * count
        finish = lambda all_: spread(all_[at : at + count], into)  # noqa: E731
        if op is None:
            return self._bitwise(numbers, opts, result, finish)
        gpu = self._gpu_engine(*numbers, *into)
        memory = Memory(numbers, gpu, own=gpu is not None and begin < 0 and gpu.keeps(numbers[0]))
        if memory.flat.numel() == 0:
            return self._completed(result)
        if gpu is not None and begin < 0:
            got = Memory(into, gpu, filled=False)
            move = partial(gpu.reduce_scatter, memory.flat, got.flat, op)
            return self._run(-1, move, (memory, got), result, opts, got.finish, gpu=gpu)
        # Segments of the engine are of one size: with others all ranks reduce all of the parts.
        reduce = self._comm.reduce_scatter if begin < 0 else self._comm.allreduce
        move = partial(reduce, *memory.reduced(), op)
        if gpu is not None:
            move = partial(gpu.allreduce, memory.flat, op)
        spread_ = lambda: finish(memory.flat.reshape(-1))  # noqa: E731
        return self._run(memory.size, move, memory, result, opts, spread_, gpu=gpu)
