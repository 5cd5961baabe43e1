"""Has every tensor take the way of tensors on GPUs, with the host's engine at its end.

To import this module does it. It shows that what is done around the engine for GPUs is right: which
tensors are copied, in which shape, and what becomes of the result. It shows nothing about GPUs,
streams or NCCL.
"""

import ctypes
import os

from regroup import _library as lib
from regroup.torch.gpus import Gpus
from regroup.torch.tensors import kind


class Engine:
    """What regroup.torch.gpus.Engine offers, of the host's engine."""

    called = set()  # what was called of all of them

    def __init__(self, comm):
        self.comm = comm

    def of(self, method, name=None, ordered=False, **how):
        """The operations of the host's engine, by name if there is one, and how they are called."""
        Engine.called.add(method)
        if name is None:
            return self.comm, how
        return self.comm.named, {"name": name, **how}

    def rows(self, into, request):
        """Waits for an operation by name whose result has rows, and copies that to into."""
        found = lib.wait_rows(request, self.comm.world)
        ctypes.memmove(into.data_ptr(), found.address, into.nbytes)

    def allreduce(self, tensor, op, wire=0, **how):
        assert tensor.is_contiguous()
        host, how = self.of("allreduce", **how)
        return host.allreduce(tensor.data_ptr(), tensor.numel(), kind(tensor), op, wire, **how)

    def broadcast(self, tensor, root, **how):
        assert tensor.is_contiguous()
        host, how = self.of("broadcast", **how)
        return host.broadcast(tensor.data_ptr(), tensor.nbytes, lib.UINT8, root, **how)

    def allgather(self, tensor, into, **how):
        assert tensor.is_contiguous() and into.is_contiguous()
        assert into.dtype == tensor.dtype
        assert into.numel() == tensor.numel() * self.comm.world
        host, how = self.of("allgather", **how)
        if host is self.comm:
            return host.allgather(tensor.data_ptr(), into.data_ptr(), tensor.nbytes, lib.UINT8, **how)
        return self.rows(into, host.allgather(tensor.data_ptr(), 0, 1, lib.UINT8, row=tensor.nbytes, **how))

    def reduce(self, tensor, op, root, **how):
        assert tensor.is_contiguous()
        host, how = self.of("reduce", **how)
        return host.reduce(tensor.data_ptr(), tensor.numel(), kind(tensor), op, root, **how)

    def keeps(self, tensor):
        return False

    def reduce_scatter(self, tensor, into, op, **how):
        assert tensor.is_contiguous() and into.is_contiguous()
        assert tensor.numel() == into.numel() * self.comm.world and into.dtype == tensor.dtype
        host, how = self.of("reduce_scatter", **how)
        mine = tensor.data_ptr() + self.comm.rank * into.nbytes
        if host is self.comm:
            host.reduce_scatter(tensor.data_ptr(), tensor.numel(), kind(tensor), op, **how)
            own = [into.nbytes * (r == host.rank) for r in range(host.world)]
            return host.alltoall(mine, into.data_ptr(), 0, lib.UINT8, own, own, **how)  # a copy, behind the reduction
        lib.wait(host.reduce_scatter(tensor.data_ptr(), self.comm.world, kind(tensor), op, row=into.numel(), **how))
        ctypes.memmove(into.data_ptr(), mine, into.nbytes)
        tensor.zero_()  # the real one leaves anything
        return None

    def alltoall(self, tensor, into, counts, back, **how):
        assert tensor.is_contiguous() and into.is_contiguous() and into.dtype == tensor.dtype
        assert sum(counts) == tensor.numel() and sum(back) == into.numel()
        host, how = self.of("alltoall", **how)
        size = tensor.element_size()
        counts, back = [n * size for n in counts], [n * size for n in back]
        if host is self.comm:
            return host.alltoall(tensor.data_ptr(), into.data_ptr(), 0, lib.UINT8, counts, back, **how)
        return self.rows(into, host.alltoall(tensor.data_ptr(), 0, 0, lib.UINT8, counts, row=1, **how))


Gpus.of = lambda self, tensor: Engine(self._comm)


def check():
    """Looks, at the end of all cases, whether tensors have gone that way."""
    missing = set(os.environ["ON_GPU"].split()) - Engine.called
    assert not missing, f"none of these has gone the way of tensors on GPUs: {missing}"
