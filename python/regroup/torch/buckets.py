"""Gradient buckets: gradients that are ready are reduced while the backward pass runs."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _library as lib
from .. import settings
from ..communicator import Communicator
from ..errors import RegroupError
from . import tensors
from .calls import Call
from .gpus import engine
from .sparse import start_sparse
from .world import world

#: Most bytes of the first bucket, which is small so that a reduction starts early.
FIRST_BYTES = 1 << 20

#: The size from which on a bucket is in memory that the ranks of this machine share.
SHARED_BYTES = 64 << 10


class Bucket:
    """Some parameters of one type and device, and contiguous memory for their gradients."""

    def __init__(self, members: List[int], parameters: Sequence[torch.Tensor], comm: Communicator):
        first = parameters[members[0]]
        self.members, self.dtype = members, first.dtype
        self._gpu_engine = engine(comm, first)
        self._streams: Dict[Any, Any] = {}  # of the GPU, on which gradients arrived
        count = sum(parameters[i].numel() for i in members)
        if self._gpu_engine is None:
            self.flat, self._free = _memory(count, first.dtype, comm)
        else:
            self.flat = torch.empty(count, dtype=first.dtype, device=first.device)
            self._free = lambda: None
        self.views: Dict[int, torch.Tensor] = {}
        at = 0
        for i in members:
            size = parameters[i].numel()
            self.views[i] = self.flat[at : at + size].view(parameters[i].shape)
            at += size
        self.request: Optional[int] = None
        self.again()

    def fill(self, member: int, gradient: Optional[torch.Tensor], factor: float) -> bool:
        """Adds a gradient; None counts as zeros. Returns whether the bucket is full."""
        view = self.views[member]
        if gradient is None:
            view.zero_()
        else:
            view.copy_(gradient)
            if factor != 1.0:
                view.mul_(factor)
        self.missing.discard(member)
        if view.is_cuda:
            stream = torch.cuda.current_stream(view.device)
            self._streams[stream] = stream
        return not self.missing

    def launch(self, comm: Communicator, name: str, detail: str, op: int, compression: Any) -> None:
        self.launched = True
        native = self.dtype is torch.float32 and compression.wire is not None
        if native:
            self.sent, self.ctx = self.flat, None
        else:
            self.sent, self.ctx = compression.compress(self.flat)
        wire, how = compression.wire if native else 0, {"start": True, "name": name, "detail": detail}
        if self._gpu_engine is not None:  # computing the next gradients overlaps with it
            for stream in self._streams.values():
                torch.cuda.current_stream(self.flat.device).wait_stream(stream)
            self._streams.clear()
            self.request = self._gpu_engine.allreduce(self.sent, op, wire, **how)
            return
        where = self.sent.data_ptr(), self.sent.numel(), tensors.kind(self.sent)
        self.request = comm.named.allreduce(*where, op, wire, **how)

    def wait(self, compression: Any, factor: float) -> None:
        """Waits until the reduced gradients are in the views, and resets the bucket for the next
        step."""
        if self.request is not None:
            request, self.request = self.request, None
            lib.wait(request)
        if self.sent is not self.flat:
            self.flat.copy_(compression.decompress(self.sent, self.ctx))
        if factor != 1.0:
            self.flat.mul_(factor)
        self.again()

    def again(self) -> None:
        """Resets the bucket for the next step."""
        self.missing, self.launched = set(self.members), False
        self.sent: Optional[torch.Tensor] = None
        self.ctx: Any = None

    def free(self) -> None:
        """Frees the memory. No reduction may be in progress."""
        self.views.clear()
        self.flat = self.sent = None
        self._free()


def _memory(count: int, dtype: torch.dtype, comm: Communicator):
    """Memory for a bucket, shared with the ranks of this machine if possible."""
    size = count * torch.empty(0, dtype=dtype).element_size()
    if comm.endpoint is not None and size > SHARED_BYTES:
        at = ctypes.c_void_p()
        library = lib.library()
        if library.rg_alloc(comm.endpoint.handle, size, ctypes.byref(at)) == lib.OK:
            endpoint = comm.endpoint.handle
            return (tensors.over(at.value, size).view(dtype), lambda: library.rg_free(endpoint, at))
    return torch.empty(count, dtype=dtype), lambda: None


def arrange(parameters: Sequence[torch.Tensor], order: Sequence[int]) -> List[List[int]]:
    """Assigns parameters to buckets, in this order, by type and device."""
    done: List[List[int]] = []
    filling: Dict[Any, List[int]] = {}
    sizes: Dict[Any, int] = {}
    full = settings.bucket_bytes()
    limit = min(FIRST_BYTES, full)
    for i in order:
        p = parameters[i]
        key = p.dtype, p.device
        filling.setdefault(key, []).append(i)
        sizes[key] = sizes.get(key, 0) + p.numel() * p.element_size()
        if sizes[key] >= limit:
            done.append(filling.pop(key))
            sizes.pop(key)
            limit = full
    return done + list(filling.values())


class Reducer:
    """Reduces the gradients of some parameters among the ranks of one generation.

    The first step finds out in which order gradients arrive at rank 0, and which of them are sparse
    on some rank; it sends nothing before all of them are there. From then on they are reduced in
    buckets of that order. Buckets are always launched in this order, whichever is ready first here,
    so that the ranks need not negotiate which one is next.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[torch.Tensor],
        comm: Communicator,
        op: int,
        compression: Any,
        process_set: Any,
    ):
        self._name, self._parameters, self._comm = name, parameters, comm
        self._op, self._compression, self._process_set = op, compression, process_set
        shapes = [(str(p.dtype), list(p.shape)) for p in parameters]
        self._detail = f"parameters {hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]}"
        self._waiting: Dict[int, Tuple[Any, float]] = {}  # gradients of the first step
        self._learning = True
        self._sparse: Dict[int, Any] = {}  # of these, reductions in progress
        self._buckets: List[Bucket] = []
        self._of: Dict[int, Bucket] = {}
        self._next = 0

    def add(self, member: int, gradient: Optional[torch.Tensor], factor: float) -> None:
        """Adds a gradient that is ready; None counts as zeros."""
        if not self._is_missing(member):
            raise RegroupError(
                "a gradient came twice before step(): more backward passes than backward_passes_per_step"
            )
        if self._learning:
            self._waiting[member] = gradient, factor
        else:
            self._send(member, gradient, factor)

    def _send(self, member: int, gradient: Optional[torch.Tensor], factor: float) -> None:
        if member in self._sparse:
            self._sparse[member] = self._start_sparse(member, gradient, factor)
            return
        if gradient is not None and gradient.is_sparse:
            raise RegroupError(
                f"the gradient of parameter {member} is sparse, and was not on any rank in the first step: "
                "DistributedOptimizer(..., sparse_as_dense=True)"
            )
        if self._of[member].fill(member, gradient, factor):
            self._launch()

    def _start_sparse(self, member: int, gradient: Optional[torch.Tensor], factor: float) -> Any:
        p = self._parameters[member]
        if gradient is None or gradient.is_sparse and gradient._nnz() == 0:
            # zero_grad() leaves an empty one with other dimensions.
            indices = torch.empty((1, 0), dtype=torch.int64, device=p.device)
            values = torch.empty((0,) + tuple(p.shape[1:]), dtype=p.dtype, device=p.device)
            gradient = torch.sparse_coo_tensor(indices, values, p.shape)
        elif not gradient.is_sparse:
            gradient = gradient.to_sparse(1)
        if factor != 1.0:
            gradient = gradient * factor
        call = Call("", None, self._process_set, f"{self._name}.sparse.{member}")
        return start_sparse(call, gradient.coalesce(), self._op)

    def _launch(self) -> None:
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            name = f"{self._name}.bucket.{self._next}"
            bucket = self._buckets[self._next]
            bucket.launch(self._comm, name, self._detail, self._op, self._compression)
            self._next += 1
        if self._next == len(self._buckets) and not self._sparse and world.reduced is not None:
            if self._comm is world.communicator:
                world.reduced()

    def _is_missing(self, member: int) -> bool:
        if self._learning:
            return member not in self._waiting
        if member in self._sparse:
            return self._sparse[member] is None
        return member in self._of[member].missing

    def missing(self) -> List[int]:
        """Parameters whose gradients have not arrived."""
        return [i for i in range(len(self._parameters)) if self._is_missing(i)]

    def idle(self) -> bool:
        """Whether no gradient has arrived since the last step."""
        return len(self.missing()) == len(self._parameters)

    def finish(self, factor: float) -> None:
        """Waits for all reductions and stores the results in the parameters' gradients."""
        if self._learning:
            self._learn()
        for bucket in self._buckets:
            bucket.wait(self._compression, factor)
            for i, view in bucket.views.items():
                p = self._parameters[i]
                if p.grad is None:
                    p.grad = view.to(p.device, copy=True)
                elif p.grad.is_sparse:  # reduced as dense; the optimizer may need a sparse one
                    p.grad = view.to(p.device).to_sparse(1)
                else:
                    p.grad.copy_(view)
        for i, result in self._sparse.items():
            reduced = result()
            self._parameters[i].grad = reduced * factor if factor != 1.0 else reduced
            self._sparse[i] = None
        self._next = 0

    def _learn(self) -> None:
        """Agrees with the other ranks on the order, and reduces the gradients of the first step."""
        named, count = self._comm.named, len(self._parameters)
        # Allreduces only, because they work after a rank has joined. The order of the first step is
        # that of the parameters, reversed.
        place = torch.full((count,), -1, dtype=torch.int64)
        sparse = torch.zeros(count, dtype=torch.int64)
        for n, (i, (gradient, _)) in enumerate(self._waiting.items()):
            if self._comm.rank == 0:
                place[i] = n
            sparse[i] = gradient is not None and gradient.is_sparse
        requests = [
            named.allreduce(
                t.data_ptr(), count, lib.INT64, lib.MAX, start=True, name=f"{self._name}.{what}", detail=self._detail
            )
            for what, t in (("order", place), ("sparse", sparse))
        ]
        for request in requests:
            lib.wait(request)
        self._learning = False
        self._sparse = {i: None for i in range(count) if sparse[i]}
        order = sorted(range(count), key=lambda i: (int(place[i]), -i))
        dense = [i for i in order if i not in self._sparse]
        self._buckets = [Bucket(members, self._parameters, self._comm) for members in arrange(self._parameters, dense)]
        self._of = {i: b for b in self._buckets for i in b.members}
        waiting, self._waiting = self._waiting, {}
        for i, (gradient, factor) in waiting.items():
            self._send(i, gradient, factor)

    def close(self) -> None:
        """Frees the memory. No reduction may be in progress."""
        for bucket in self._buckets:
            bucket.free()
        self._buckets = []
