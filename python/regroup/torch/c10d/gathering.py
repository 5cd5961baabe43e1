"""Operations that move tensors from one to all or from all to one: broadcast, all_gather, gather, scatter."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from ...errors import InvalidArgumentError
from ..gpus import Engine
from ..tensors import check, copied, moved, reachable, staged
from .running import Running, size_of


class Gathering(Running):
    """broadcast, all_gather, gather, scatter."""

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Copies the root's tensor to all."""
        (tensor,) = tensors
        check(tensor)
        near = self._near(tensor)
        if near is not None:
            work = tensor if tensor.is_contiguous() else copied(tensor)
        else:
            work = tensor if reachable(tensor) else staged(tensor)
        finish = None if work is tensor else lambda: tensor.copy_(work)
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, tensors)
        if near is not None:
            call = lambda start: near.broadcast(work, opts.rootRank, start)  # noqa: E731
            return self._run_near(call, tensors, finish, wait=True)
        call = lambda start: self._made.broadcast(  # noqa: E731
            work.data_ptr(), *moved(work), opts.rootRank, start
        )
        return self._run(size_of(tensor), call, tensors, finish, wait=True)

    def allgather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers the ranks' tensors into lists."""
        (into,), (tensor,) = outputs, inputs
        check(tensor)
        self._parts(into, tensor, "output")
        near = self._near(tensor, *into)
        direct = _adjacent(into) and (near is not None or reachable(into[0]))
        place = "cpu" if near is None else tensor.device
        flat = (
            into[0]
            if direct
            else torch.empty(len(into), tensor.numel(), dtype=tensor.dtype, device=place)
        )

        def finish() -> None:
            for part, row in zip(into, flat):
                part.copy_(row.view(part.shape))

        return self._gather(tensor, flat, outputs, None if direct else finish, near)

    def _gather(
        self,
        tensor: torch.Tensor,
        flat: torch.Tensor,
        result: Any,
        finish: Optional[Callable],
        near: Optional[Engine] = None,
    ) -> Any:
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, result)
        if near is not None:
            work = tensor if tensor.is_contiguous() else copied(tensor)
            call = lambda start: near.allgather(work, flat, start)  # noqa: E731
            return self._run_near(call, result, finish, wait=True)
        work = tensor if reachable(tensor) else staged(tensor)
        call = lambda start: self._made.allgather(  # noqa: E731
            work.data_ptr(), flat.data_ptr(), *moved(work), start
        )
        size = size_of(tensor) * self._made.world
        return self._run(size, call, result, finish, wait=True)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Gathers the ranks' tensors into one."""
        check(tensor)
        check(output, "output")
        if output.numel() != tensor.numel() * self._made.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"output has {output.numel()} elements of {output.dtype}, not {self._made.world} times "
                f"{tensor.numel()} of {tensor.dtype}"
            )
        near = self._near(tensor, output)
        if output.is_contiguous() if near is not None else reachable(output):
            return self._gather(tensor, output, output, None, near)
        place = "cpu" if near is None else output.device
        flat = torch.empty(output.shape, dtype=output.dtype, device=place)
        return self._gather(tensor, flat, output, lambda: output.copy_(flat), near)

    def all_gather_into_tensor(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """The same under its newer name."""
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
        root, world = opts.rootRank, self._made.world
        work = staged(tensor)
        counts, kind_ = moved(work)
        receive = root == self._made.rank
        if receive:
            self._parts(outputs[0], tensor, "output")
        flat = torch.empty(world if receive else 0, tensor.numel(), dtype=tensor.dtype)
        self._made.alltoall(
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
        root, world = opts.rootRank, self._made.world
        count, kind_ = moved(output)
        send = root == self._made.rank
        if send:
            self._parts(inputs[0], output, "input")
            work = torch.cat([t.detach().cpu().reshape(-1) for t in inputs[0]])
        else:
            work = torch.empty(0, dtype=output.dtype)
        flat = torch.empty(output.shape, dtype=output.dtype)
        self._made.alltoall(
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
    """Whether tensors lie one behind the other in memory."""
    at = parts[0].data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != at:
            return False
        at += part.numel() * part.element_size()
    return True
