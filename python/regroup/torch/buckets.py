"""Gradients in buckets: what is ready is on its way while the backward pass goes on."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch

from .. import _library as lib
from .. import settings
from ..communicator import Communicator
from ..errors import RegroupError
from . import tensors
from .gpus import engine

#: Bytes of the first bucket, at most: it is smaller than the others, so that something is on its way soon.
FIRST_BYTES = 1 << 20

#: Up to how many bytes the thread that computes carries a reduction out itself: to hand it over would take longer.
INLINE_BYTES = 64 << 10


class Bucket:
    """Some parameters of one type and device, and memory for their gradients one behind the other."""

    def __init__(self, members: List[int], parameters: Sequence[torch.Tensor], made: Communicator):
        first = parameters[members[0]]
        self.members, self.dtype = members, first.dtype
        self._near = engine(made, first)
        self._streams: Dict[Any, Any] = {}  # of the GPU, on which gradients came
        count = sum(parameters[i].numel() for i in members)
        if self._near is None:
            self.flat, self._free = _memory(count, first.dtype, made)
        else:
            self.flat = torch.empty(count, dtype=first.dtype, device=first.device)
            self._free = lambda: None
        self.views: Dict[int, torch.Tensor] = {}
        at = 0
        for i in members:
            size = parameters[i].numel()
            self.views[i] = self.flat[at : at + size].view(parameters[i].shape)
            at += size
        self.missing = set(members)
        self.request: Optional[int] = None
        self.launched = False
        self.ctx: Any = None
        self.sent: Optional[torch.Tensor] = None

    def fill(self, member: int, gradient: Optional[torch.Tensor], factor: float) -> bool:
        """Takes a gradient; none counts as zeros. Tells whether the bucket is full."""
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

    def launch(self, made: Communicator, op: int, compression: Any) -> None:
        """Sends it on its way."""
        self.launched = True
        native = self.dtype is torch.float32 and compression.wire is not None
        if self._near is not None:
            self._launch_near(op, compression, compression.wire if native else 0)
            return
        small = self.flat.numel() * self.flat.element_size() <= INLINE_BYTES
        if native:
            self.sent = self.flat
            self.request = made.allreduce_as(
                compression.wire, self.flat.data_ptr(), self.flat.numel(), op, start=not small
            )
            return
        self.sent, self.ctx = compression.compress(self.flat)
        self.request = made.allreduce(
            self.sent.data_ptr(), self.sent.numel(), tensors.kind(self.sent), op, start=not small
        )

    def _launch_near(self, op: int, compression: Any, wire: int) -> None:
        """The same on the GPU. What computes the next gradients goes on beside it."""
        for stream in self._streams.values():
            torch.cuda.current_stream(self.flat.device).wait_stream(stream)
        self._streams.clear()
        self.sent, self.ctx = (self.flat, None) if wire else compression.compress(self.flat)
        self.request = self._near.allreduce(self.sent, op, wire, start=True)

    def wait(self, compression: Any, factor: float) -> None:
        """Waits until the reduced gradients are in the views, and makes it ready for the next step."""
        if self.request is not None:
            request, self.request = self.request, None
            lib.wait(request)
        if self.sent is not self.flat:
            self.flat.copy_(compression.decompress(self.sent, self.ctx))
        if factor != 1.0:
            self.flat.mul_(factor)
        self.again()

    def again(self) -> None:
        """Makes it ready for the next step."""
        self.missing, self.launched = set(self.members), False
        self.sent = self.ctx = None

    def free(self) -> None:
        """Gives the memory back. Nothing may be on its way."""
        self.views.clear()
        self.flat = self.sent = None
        self._free()


def _memory(count: int, dtype: torch.dtype, made: Communicator):
    """Memory for a bucket, in a part that ranks of this machine read in place if that is to be had."""
    import ctypes

    size = count * torch.empty(0, dtype=dtype).element_size()
    if made.endpoint is not None and size > INLINE_BYTES:
        at = ctypes.c_void_p()
        library = lib.library()
        if library.rg_alloc(made.endpoint.handle, size, ctypes.byref(at)) == lib.OK:
            endpoint = made.endpoint.handle
            return (
                tensors.over(at.value, size).view(dtype),
                lambda: library.rg_free(endpoint, at),
            )
    return torch.empty(count, dtype=dtype), lambda: None


def arrange(parameters: Sequence[torch.Tensor], order: Sequence[int]) -> List[List[int]]:
    """Deals parameters to buckets, in this order, by type and device."""
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
    """The gradients of some parameters on their way among the ranks of one generation.

    Buckets leave in one order, the same on all ranks, whatever becomes ready first here: a rank that took another
    branch of the model must not mix up what the others wait for. After the first step that order is the one in which
    gradients became ready at rank 0.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], made: Communicator, op: int, compression: Any
    ):
        self._parameters, self._made, self._op, self._compression = (
            parameters,
            made,
            op,
            compression,
        )
        self._ready: List[int] = []  # order in which gradients came, in the first step
        self._learning = True
        self._arrange(list(reversed(range(len(parameters)))))

    def _arrange(self, order: List[int]) -> None:
        self._buckets = [
            Bucket(members, self._parameters, self._made)
            for members in arrange(self._parameters, order)
        ]
        self._of = {i: b for b in self._buckets for i in b.members}
        self._next = 0

    def add(self, member: int, gradient: Optional[torch.Tensor], factor: float) -> None:
        """Takes a gradient that is ready."""
        bucket = self._of[member]
        if member not in bucket.missing:
            raise RegroupError(
                "a gradient came twice before step(): more backward passes than backward_passes_per_step"
            )
        if self._learning:
            self._ready.append(member)
        if bucket.fill(member, gradient, factor):
            self._launch()

    def _launch(self) -> None:
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._buckets[self._next].launch(self._made, self._op, self._compression)
            self._next += 1

    def missing(self) -> List[int]:
        """Parameters whose gradients have not come."""
        return [i for b in self._buckets for i in b.members if i in b.missing]

    def idle(self) -> bool:
        """Whether no gradient has come since the last step."""
        return all(len(b.missing) == len(b.members) for b in self._buckets)

    def finish(self, factor: float) -> None:
        """Waits for all buckets and puts the reduced gradients where the parameters have theirs."""
        for bucket in self._buckets:
            bucket.wait(self._compression, factor)
            for i, view in bucket.views.items():
                p = self._parameters[i]
                if p.grad is None:
                    p.grad = view.to(p.device, copy=True)
                else:
                    p.grad.copy_(view)
        self._next = 0
        if self._learning:
            self._learn()

    def _learn(self) -> None:
        self._learning = False
        order = torch.tensor(self._ready, dtype=torch.int64)
        self._made.broadcast(order.data_ptr(), order.numel(), lib.INT64, 0)
        old = self._buckets
        if [i for b in old for i in b.members] != order.tolist():
            for bucket in old:
                bucket.free()
            self._arrange(order.tolist())
        self._ready = []

    def close(self) -> None:
        """Gives memory back. Nothing may be on its way."""
        for bucket in self._buckets:
            bucket.free()
        self._buckets = []
