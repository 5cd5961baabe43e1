"""Operations from one rank to all or from all to one: broadcast, all_gather, gather, scatter."""

from __future__ import annotations

from functools import partial
from typing import Any, List, Sequence

import torch

from ..tensors import Memory, check
from .operations import Operations


class GatherOps(Operations):
    """broadcast, all_gather, gather, scatter."""

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Copies the root's tensor to all."""
        (tensor,) = tensors
        check(tensor)
        gpu, root = self._gpu_engine(tensor), opts.rootRank
        memory = Memory(tensors, gpu)
        if tensor.numel() == 0:
            return self._completed(tensors)
        move = partial(self._comm.broadcast, *memory.moved(), root)
        if gpu is not None:
            move = partial(gpu.broadcast, memory.flat, root)
        return self._run(memory.size, move, memory, tensors, opts, memory.finish, wait=True, gpu=gpu)

    def allgather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Any:
        """Gathers the ranks' tensors into lists."""
        (into,), (tensor,) = outputs, inputs
        check(tensor)
        self._check_parts(into, tensor, "output")
        return self._gather(tensor, into, outputs, opts)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Gathers the ranks' tensors into one."""
        self._check_whole(output, tensor, "output")
        return self._gather(tensor, [output], output, opts)

    _allgather_base = all_gather_into_tensor = all_gather_single

    def _gather(self, tensor: torch.Tensor, into: List[torch.Tensor], result: Any, opts: Any) -> Any:
        """Gathers the ranks' tensors into tensors that follow each other."""
        gpu = self._gpu_engine(tensor, *into)
        given, got = Memory([tensor], gpu), Memory(into, gpu, filled=False)
        if tensor.numel() == 0:
            return self._completed(result)
        address, *what = given.moved()
        move = partial(self._comm.allgather, address, got.flat.data_ptr(), *what)
        if gpu is not None:
            move = partial(gpu.allgather, given.flat, got.flat)
        size = got.size if given.size >= 0 else -1
        return self._run(size, move, (given, got), result, opts, got.finish, wait=True, gpu=gpu)

    def all_gather_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors at once, each into one."""
        if len(inputs) == 1:
            return self.all_gather_single(outputs[0], inputs[0], opts)
        for output, tensor in zip(outputs, inputs):
            self._check_whole(output, tensor, "output")
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
        self, rows: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], result: Any, opts: Any
    ) -> Any:
        """Gathers tensors of any types as bytes: row r of rows gets those of rank r."""

        def finish(gathered: torch.Tensor) -> None:
            for row, parts in zip(gathered, rows):
                for part, got in zip(parts, row.split([part.nbytes for part in parts])):
                    # clone: a view needs the alignment of its type
                    part.copy_(got.clone().view(part.dtype).view(part.shape))

        gpu = self._gpu_engine(*inputs, *(part for row in rows for part in row))
        parts = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in inputs]
        flat = torch.cat(parts if gpu is not None else [part.cpu() for part in parts])
        return self._gather_bytes(flat, inputs[0], result, opts, finish, gpu)

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any) -> Any:
        """Gathers the ranks' tensors at the root."""
        (tensor,) = inputs
        check(tensor)
        n, ranks, root = tensor.numel(), range(self._comm.world), opts.rootRank
        receive = root == self._comm.rank
        if receive:
            self._check_parts(outputs[0], tensor, "output")
        gpu = self._gpu_engine(tensor, *(outputs[0] if receive else ()))
        into = Memory(outputs[0] if receive else [tensor.new_empty(0)], gpu, filled=False)
        counts = [n * (r == root) for r in ranks], [n * receive for _ in ranks]
        return self._exchange(Memory([tensor], gpu), counts[0], into, counts[1], outputs or inputs, opts, gpu)

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any) -> Any:
        """Gives each rank its tensor of the root's list."""
        (output,) = outputs
        check(output, "output")
        n, ranks, root = output.numel(), range(self._comm.world), opts.rootRank
        send = root == self._comm.rank
        if send:
            self._check_parts(inputs[0], output, "input")
        gpu = self._gpu_engine(output, *(inputs[0] if send else ()))
        given = Memory(inputs[0] if send else [output.new_empty(0)], gpu)
        counts = [n * send for _ in ranks], [n * (r == root) for r in ranks]
        return self._exchange(given, counts[0], Memory(outputs, gpu, filled=False), counts[1], outputs, opts, gpu)
