"""Operations from one rank to all or from all to one: broadcast, all_gather, gather, scatter."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from ... import _library as lib
from ...errors import InvalidArgumentError
from ..gpus import Engine
from ..tensors import check, copied, moved, reachable, staged
from .operations import Operations, size_of


class GatherOps(Operations):
    """broadcast, all_gather, gather, scatter."""

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Copies the root's tensor to all."""
        (tensor,) = tensors
        check(tensor)
        gpu = self._gpu_engine(tensor)
        if gpu is not None:
            work = tensor if tensor.is_contiguous() else copied(tensor)
        else:
            work = tensor if reachable(tensor) else staged(tensor)
        finish = None if work is tensor else lambda: tensor.copy_(work)
        if tensor.numel() == 0:
            return self._completed(tensors)
        if gpu is not None:
            call = lambda start: gpu.broadcast(work, opts.rootRank, start)  # noqa: E731
            return self._run_on_gpu(call, tensors, finish, wait=True)
        call = lambda start: self._comm.broadcast(  # noqa: E731
            work.data_ptr(), *moved(work), opts.rootRank, start
        )
        return self._run(size_of(tensor), call, tensors, finish, opts, wait=True)

    def allgather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers the ranks' tensors into lists."""
        (into,), (tensor,) = outputs, inputs
        check(tensor)
        self._check_parts(into, tensor, "output")
        gpu = self._gpu_engine(tensor, *into)
        direct = _adjacent(into) and (gpu is not None or reachable(into[0]))
        device = "cpu" if gpu is None else tensor.device
        flat = (
            into[0]
            if direct
            else torch.empty(len(into), tensor.numel(), dtype=tensor.dtype, device=device)
        )

        def finish() -> None:
            for part, row in zip(into, flat):
                part.copy_(row.view(part.shape))

        return self._gather(tensor, flat, outputs, None if direct else finish, gpu, opts)

    def _gather(
        self,
        tensor: torch.Tensor,
        flat: torch.Tensor,
        result: Any,
        finish: Optional[Callable],
        gpu: Optional[Engine],
        opts: Any,
    ) -> Any:
        if tensor.numel() == 0:
            return self._completed(result)
        if gpu is not None:
            work = tensor if tensor.is_contiguous() else copied(tensor)
            call = lambda start: gpu.allgather(work, flat, start)  # noqa: E731
            return self._run_on_gpu(call, result, finish, wait=True)
        work = tensor if reachable(tensor) else staged(tensor)
        call = lambda start: self._comm.allgather(  # noqa: E731
            work.data_ptr(), flat.data_ptr(), *moved(work), start
        )
        size = size_of(tensor)
        size = size if size < 0 else size * self._comm.world
        return self._run(size, call, result, finish, opts, wait=True)

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """Gathers the ranks' tensors into one."""
        self._check_gathered(output, tensor)
        gpu = self._gpu_engine(tensor, output)
        if output.is_contiguous() if gpu is not None else reachable(output):
            return self._gather(tensor, output, output, None, gpu, opts)
        device = "cpu" if gpu is None else output.device
        flat = torch.empty(output.shape, dtype=output.dtype, device=device)
        return self._gather(tensor, flat, output, lambda: output.copy_(flat), gpu, opts)

    _allgather_base = all_gather_into_tensor = all_gather_single

    def _check_gathered(self, output: torch.Tensor, tensor: torch.Tensor) -> None:
        check(tensor)
        check(output, "output")
        if output.numel() != tensor.numel() * self._comm.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"output has {output.numel()} elements of {output.dtype}, not {self._comm.world} times "
                f"{tensor.numel()} of {tensor.dtype}"
            )

    def all_gather_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors at once, each into one."""
        if len(inputs) == 1:
            return self.all_gather_single(outputs[0], inputs[0], opts)
        for output, tensor in zip(outputs, inputs):
            self._check_gathered(output, tensor)
        world = self._comm.world
        rows = [[output.view(world, -1)[r] for output in outputs] for r in range(world)]
        return self._gather_many(rows, inputs, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors: list r of outputs has those of rank r."""
        for i, tensor in enumerate(inputs):
            check(tensor)
            self._check_parts([row[i] for row in outputs], tensor, "output")
        return self._gather_many(outputs, inputs, outputs, opts)

    def _gather_many(
        self,
        rows: Sequence[Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        result: Any,
        opts: Any,
    ) -> Any:
        """Gathers tensors of any types as bytes: row r of rows gets those of rank r."""
        flat = torch.cat([_bytes(t) for t in inputs])
        gathered = torch.empty(self._comm.world, flat.numel(), dtype=torch.uint8)
        if flat.numel() == 0:
            return self._completed(result)
        call = lambda start: self._comm.allgather(  # noqa: E731
            flat.data_ptr(), gathered.data_ptr(), flat.numel(), lib.UINT8, start
        )

        def finish() -> None:
            for row, parts in zip(gathered, rows):
                at = 0
                for part in parts:
                    size = part.numel() * part.element_size()
                    got = row[at : at + size].clone().view(part.dtype)
                    part.copy_(got.view(part.shape))
                    at += size

        return self._run(size_of(inputs[0], gathered), call, result, finish, opts, wait=True)

    def gather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any
    ) -> Any:
        """Gathers the ranks' tensors at the root."""
        (tensor,) = inputs
        check(tensor)
        root, world = opts.rootRank, self._comm.world
        work = staged(tensor)
        counts, kind_ = moved(work)
        receive = root == self._comm.rank
        if receive:
            self._check_parts(outputs[0], tensor, "output")
        flat = torch.empty(world if receive else 0, tensor.numel(), dtype=tensor.dtype)
        call = lambda start: self._comm.alltoall(  # noqa: E731
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [counts if r == root else 0 for r in range(world)],
            [counts if receive else 0] * world,
            start,
        )

        def finish() -> None:
            for part, row in zip(outputs[0] if receive else [], flat):
                part.copy_(row.view(part.shape))

        return self._run(size_of(tensor, flat), call, outputs or inputs, finish, opts, wait=True)

    def scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any
    ) -> Any:
        """Gives each rank its tensor of the root's list."""
        (output,) = outputs
        check(output, "output")
        root, world = opts.rootRank, self._comm.world
        count, kind_ = moved(output)
        send = root == self._comm.rank
        if send:
            self._check_parts(inputs[0], output, "input")
            work = torch.cat([t.detach().cpu().reshape(-1) for t in inputs[0]])
        else:
            work = torch.empty(0, dtype=output.dtype)
        flat = torch.empty(output.shape, dtype=output.dtype)
        call = lambda start: self._comm.alltoall(  # noqa: E731
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [count if send else 0] * world,
            [count if r == root else 0 for r in range(world)],
            start,
        )
        finish = lambda: output.copy_(flat)  # noqa: E731
        return self._run(size_of(output), call, outputs, finish, opts, wait=True)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's elements as bytes, in the host's memory."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _adjacent(parts: Sequence[torch.Tensor]) -> bool:
    """Whether tensors are contiguous in memory."""
    at = parts[0].data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != at:
            return False
        at += part.numel() * part.element_size()
    return True
