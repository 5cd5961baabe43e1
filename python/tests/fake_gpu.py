"""Has every tensor take the way of tensors on GPUs, with the host's engine at its end.

To import this module does it. It shows that what is done around the engine for GPUs is right: which
tensors are copied, in which shape, and what becomes of the result. It shows nothing about GPUs,
streams or NCCL.
"""

import ctypes

from regroup import _library as lib
from regroup.torch.gpus import Gpus
from regroup.torch.tensors import kind


class Engine:
    """What regroup.torch.gpus.Engine offers, of the host's engine."""

    calls = 0  # of all of them

    def __init__(self, comm):
        self.comm = comm

    def of(self, name=None, ordered=False, **how):
        """The operations of the host's engine, by name if there is one, and how they are called."""
        Engine.calls += 1
        if name is None:
            return self.comm, how
        return self.comm.named, {"name": name, **how}

    def allreduce(self, tensor, op, wire=0, **how):
        assert tensor.is_contiguous()
        host, how = self.of(**how)
        return host.allreduce(tensor.data_ptr(), tensor.numel(), kind(tensor), op, wire, **how)

    def broadcast(self, tensor, root, **how):
        assert tensor.is_contiguous()
        host, how = self.of(**how)
        return host.broadcast(tensor.data_ptr(), tensor.nbytes, lib.UINT8, root, **how)

    def allgather(self, tensor, into, **how):
        assert tensor.is_contiguous() and into.is_contiguous()
        assert into.dtype == tensor.dtype
        host, how = self.of(**how)
        if host is self.comm:
            return host.allgather(tensor.data_ptr(), into.data_ptr(), tensor.nbytes, lib.UINT8, **how)
        request = host.allgather(tensor.data_ptr(), 0, 1, lib.UINT8, row=tensor.nbytes, **how)
        found = lib.wait_rows(request, self.comm.world)
        ctypes.memmove(into.data_ptr(), found.address, tensor.nbytes * self.comm.world)
        return None


Gpus.of = lambda self, tensor: Engine(self._comm)


def check():
    """Looks, at the end of all cases, whether tensors have gone that way."""
    assert Engine.calls > 0, "no tensor has gone the way of tensors on GPUs"
