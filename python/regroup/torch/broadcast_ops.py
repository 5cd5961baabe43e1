"""broadcast: one rank's tensor for all."""

from __future__ import annotations

from typing import Any, Optional

import torch

from . import tensors
from .allreduce_ops import allreduced
from .calls import Call, signature
from .gpus import engine
from .handles import Handle
from .operation import Operation, Past
from .reductions import Average
from .world import world


class Broadcast(Operation):
    """Copies a rank's tensor to all. How is the root, a rank of the world."""

    name = "broadcast"

    def how(self, tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None) -> int:
        return root_rank

    def start(self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False) -> Handle:
        with call:
            tensors.check(tensor)
            root = call.group.index(how, "root_rank")
            gpu = engine(call.comm, tensor)
            memory = tensors.Memory([tensor.detach()], gpu, own=inplace)
        request, how = None, {"name": call.name, "detail": signature(tensor)}
        if gpu is not None:
            request = gpu.broadcast(memory.flat, root, start=True, ordered=wait, **how)
        elif call.comm is not None:
            request = call.comm.named.broadcast(*memory.moved(), root, start=not wait, **how)

        def finish() -> torch.Tensor:
            if not inplace:
                return memory.flat.to(tensor.device)
            memory.back()
            return tensor

        return Handle(request, finish)

    def gradient(self, past: Past, gradient: Any) -> Any:
        reduced = allreduced(past.call.part("grad"), gradient, Average)
        return reduced if world.membership.rank == past.how else reduced * 0


BROADCAST = Broadcast()
