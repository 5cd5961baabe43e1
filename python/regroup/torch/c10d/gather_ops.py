"""Operations from one rank to all or from all to one: broadcast, all_gather, gather, scatter."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from ...errors import InvalidArgumentError
from ..gpus import Engine
from ..tensors import check, copied, moved, reachable, staged
from .base_group import BaseProcessGroup, size_of


class GatherOps(BaseProcessGroup):
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
            return self._run(0, lambda start: None, tensors)
        if gpu is not None:
            call = lambda start: gpu.broadcast(work, opts.rootRank, start)  # noqa: E731
            return self._run_on_gpu(call, tensors, finish, wait=True)
        call = lambda start: self._comm.broadcast(  # noqa: E731
            work.data_ptr(), *moved(work), opts.rootRank, start
        )
        return self._run(size_of(tensor), call, tensors, finish, wait=True)

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

        return self._gather(tensor, flat, outputs, None if direct else finish, gpu)

    def _gather(
        self,
        tensor: torch.Tensor,
        flat: torch.Tensor,
        result: Any,
        finish: Optional[Callable],
        gpu: Optional[Engine] = None,
    ) -> Any:
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, result)
        if gpu is not None:
            work = tensor if tensor.is_contiguous() else copied(tensor)
            call = lambda start: gpu.allgather(work, flat, start)  # noqa: E731
            return self._run_on_gpu(call, result, finish, wait=True)
        work = tensor if reachable(tensor) else staged(tensor)
        call = lambda start: self._comm.allgather(  # noqa: E731
            work.data_ptr(), flat.data_ptr(), *moved(work), start
        )
        size = size_of(tensor) * self._comm.world
        return self._run(size, call, result, finish, wait=True)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Gathers the ranks' tensors into one."""
        check(tensor)
        check(output, "output")
        if output.numel() != tensor.numel() * self._comm.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"output has {output.numel()} elements of {output.dtype}, not {self._comm.world} times "
                f"{tensor.numel()} of {tensor.dtype}"
            )
        gpu = self._gpu_engine(tensor, output)
        if output.is_contiguous() if gpu is not None else reachable(output):
            return self._gather(tensor, output, output, None, gpu)
        device = "cpu" if gpu is None else output.device
        flat = torch.empty(output.shape, dtype=output.dtype, device=device)
        return self._gather(tensor, flat, output, lambda: output.copy_(flat), gpu)

    def all_gather_into_tensor(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """The newer name of the same operation."""
        return self._allgather_base(output, tensor, opts)

    def allgather_coalesced(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors: list r of outputs has those of rank r."""
        for i, tensor in enumerate(inputs):
            self.allgather([[row[i] for row in outputs]], [tensor]).wait()
        return self._run(0, lambda start: None, outputs)

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
        self._comm.alltoall(
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [counts if r == root else 0 for r in range(world)],
            [counts if receive else 0] * world,
        )
        if receive:
            for part, row in zip(outputs[0], flat):
                part.copy_(row.view(part.shape))
        return self._run(0, lambda start: None, outputs or inputs)

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
        self._comm.alltoall(
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [count if send else 0] * world,
            [count if r == root else 0 for r in range(world)],
        )
        output.copy_(flat)
        return self._run(0, lambda start: None, outputs)


def _adjacent(parts: Sequence[torch.Tensor]) -> bool:
    """Whether tensors are contiguous in memory."""
    at = parts[0].data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != at:
            return False
        at += part.numel() * part.element_size()
    return True
