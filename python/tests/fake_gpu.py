"""Has every tensor take the way of tensors on GPUs, with the host's engine at its end.

To import this module does it. It shows that what is done around the engine for GPUs is right: which
tensors are copied, in which shape, and what becomes of the result. It shows nothing about GPUs,
streams or NCCL.
"""

import ctypes

from regroup import _library as lib
from regroup.named import Result
from regroup.torch.gpus import Gpus
from regroup.torch.tensors import kind


class Engine:
    """What regroup.torch.gpus.Engine offers, of the host's engine."""

    calls = 0  # of all of them

    def __init__(self, comm):
        self.comm = comm

    def allreduce(self, tensor, op, wire=0, start=False):
        Engine.calls += 1
        assert tensor.is_contiguous()
        at, count = tensor.data_ptr(), tensor.numel()
        return self.comm.allreduce(at, count, kind(tensor), op, start=start, wire=wire)

    def broadcast(self, tensor, root, start=False):
        Engine.calls += 1
        assert tensor.is_contiguous()
        size = tensor.numel() * tensor.element_size()
        return self.comm.broadcast(tensor.data_ptr(), size, lib.UINT8, root, start=start)

    def allgather(self, tensor, into, start=False):
        Engine.calls += 1
        assert tensor.is_contiguous() and into.is_contiguous()
        assert into.dtype == tensor.dtype
        size = tensor.numel() * tensor.element_size()
        return self.comm.allgather(
            tensor.data_ptr(), into.data_ptr(), size, lib.UINT8, start=start
        )

    def named_allreduce(self, name, detail, tensor, op, wire, ordered):
        Engine.calls += 1
        assert tensor.is_contiguous()
        where = tensor.data_ptr(), tensor.numel(), kind(tensor)
        return self.comm.named.allreduce(name, detail, *where, op, wire)

    def named_broadcast(self, name, detail, tensor, root, ordered):
        Engine.calls += 1
        assert tensor.is_contiguous()
        size = tensor.numel() * tensor.element_size()
        return self.comm.named.broadcast(name, detail, tensor.data_ptr(), size, lib.UINT8, root)

    def named_allgather(self, name, detail, tensor, into, ordered):
        Engine.calls += 1
        assert tensor.is_contiguous() and into.is_contiguous()
        assert into.dtype == tensor.dtype
        size = tensor.numel() * tensor.element_size()
        request = self.comm.named.allgather(name, detail, tensor.data_ptr(), 1, size, lib.UINT8)
        found = Result(*lib.wait_result(request, self.comm.world))
        ctypes.memmove(into.data_ptr(), found.address, size * self.comm.world)
        return None


Gpus.of = lambda self, tensor: Engine(self._comm)


def check():
    """Looks, at the end of all cases, whether tensors have gone that way."""
    assert Engine.calls > 0, "no tensor has gone the way of tensors on GPUs"
