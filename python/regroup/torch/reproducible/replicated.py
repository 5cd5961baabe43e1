"""The totals of a step's gradients on this rank, and their sum over all ranks."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ...errors import InvalidArgumentError, RegroupError
from . import fixed_point
from .ranks import Ranks

#: Bytes of totals of a bucket: so much is summed up at once, while the next one is computed. The first bucket is
#: small, so that the sums begin early.
BUCKET_BYTES, FIRST_BYTES = 16 << 20, 1 << 20


class _Bucket:
    """Parameters of one device, and memory for their totals."""

    def __init__(self, members: List[int], parameters: Sequence[torch.Tensor]):
        self.members = members
        count = sum(parameters[i].numel() for i in members)
        self.own = torch.zeros(count, dtype=torch.int64, device=parameters[members[0]].device)
        self.sums = torch.empty_like(self.own)
        self.missing = set(members)
        self.work: Any = None
        self._at: Dict[int, slice] = {}
        at = 0
        for i in members:
            self._at[i] = slice(at, at + parameters[i].numel())
            at += parameters[i].numel()

    def total(self, member: int, of: torch.Tensor) -> torch.Tensor:
        return of[self._at[member]]

    def start(self, ranks: Ranks) -> None:
        """Starts the sum; what this rank has computed stays, for the next attempt if a rank is lost."""
        self.sums.copy_(self.own)
        self.work = ranks.start_sum(self.sums)


class ReplicatedTotals:
    """int64 totals of the gradients of parameters that each rank has, in buckets that are summed up in the order in
    which a backward pass makes their gradients: from the last parameter to the first.

    arrived is called with the number of a parameter and the magnitude of its gradient.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], names: List[str], arrived: Callable, bucket_bytes: int):
        self._parameters, self._names, self._arrived = parameters, names, arrived
        self._buckets: List[_Bucket] = []
        self._of: Dict[int, _Bucket] = {}
        self._shifts: Optional[List[int]] = None  # None = nothing is added
        self.seen: Optional[Callable] = None  # called with the number of a parameter and its gradient
        self._added: List[Tuple[int, torch.Tensor]] = []  # what the micro-batch has added, by parameter
        self._open = False  # in a micro-batch
        # Whether each gradient comes once in a micro-batch, so that it is whole when it comes; None = not known yet.
        self._once: Optional[bool] = None
        self._next = 0  # the bucket whose sum is started next: all ranks start them in one order
        self._ranks: Optional[Ranks] = None  # in the last micro-batch of this rank: of the sums that are started
        members: List[int] = []
        size = 0
        for i in reversed(range(len(parameters))):
            bytes_of = parameters[i].numel() * 8
            most = bucket_bytes if self._buckets else min(bucket_bytes, FIRST_BYTES)
            if members and (size + bytes_of > most or parameters[i].device != parameters[members[0]].device):
                self._add_bucket(members)
                members, size = [], 0
            members.append(i)
            size += bytes_of
        self._add_bucket(members)
        for i, p in enumerate(parameters):
            p.register_post_accumulate_grad_hook(self._hook(i))

    def _add_bucket(self, members: List[int]) -> None:
        bucket = _Bucket(members, self._parameters)
        self._buckets.append(bucket)
        self._of.update((i, bucket) for i in members)

    def clear(self) -> None:
        """Forgets what was added."""
        for bucket in self._buckets:
            bucket.own.zero_()

    def begin(self, shifts: Optional[List[int]], ranks: Optional[Ranks]) -> None:
        """Begins a micro-batch; with ranks the last one of this rank, in which buckets are summed up as soon as they
        have all of it."""
        self._shifts, self._open = shifts, True
        for p in self._parameters:
            p.grad = None
        self._ranks = ranks if shifts is not None and self._once else None
        if ranks is not None:
            for bucket in self._buckets:
                bucket.missing = set(bucket.members)

    def end(self) -> None:
        """Ends a micro-batch."""
        if self._added:
            several = len({member for member, _ in self._added}) < len(self._added)
            self._once = not several and self._once is not False
        self._added.clear()
        self._open = False

    def interrupted(self) -> None:
        """Takes back what a micro-batch has added that did not end, and forgets sums that were started. They keep the
        memory that they may still write to."""
        for member, gradient in self._added:
            if self._shifts is not None:
                bucket = self._of[member]
                fixed_point.subtract(bucket.total(member, bucket.own), gradient, self._shifts[member])
        self.end()
        self._next, self._ranks = 0, None
        for bucket in self._buckets:
            if bucket.work is not None:
                bucket.sums, bucket.work = torch.empty_like(bucket.own), None

    def _hook(self, member: int) -> Callable:
        def accumulated(parameter: torch.Tensor) -> None:
            if self._open:
                self._add(member, parameter)

        return accumulated

    def _add(self, member: int, parameter: torch.Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        if gradient.layout is not torch.strided:
            raise InvalidArgumentError(f"the gradient of {self._names[member]} is sparse: make it dense (sparse=False)")
        self._added.append((member, gradient))
        if self.seen is not None:
            self.seen(member, gradient)
        if self._shifts is None:
            self._arrived(member, fixed_point.magnitude(gradient))
            return
        bucket = self._of[member]
        if bucket.work is not None:
            raise RegroupError(
                f"the gradient of {self._names[member]} has come twice in a micro-batch, and never before: call "
                "backward() as often in the first step as later"
            )
        self._arrived(member, fixed_point.add(bucket.total(member, bucket.own), gradient, self._shifts[member]))
        if self._ranks is not None:
            bucket.missing.discard(member)
            while self._next < len(self._buckets) and not self._buckets[self._next].missing:
                self._start(self._ranks)

    def _start(self, ranks: Ranks) -> None:
        self._buckets[self._next].start(ranks)
        self._next += 1

    def start(self, ranks: Ranks) -> None:
        """Starts the sums that have not begun, for parameters without a gradient."""
        while self._next < len(self._buckets):
            self._start(ranks)

    def finish(self) -> None:
        """Waits for all sums."""
        for bucket in self._buckets:
            bucket.work.wait()
            bucket.work = None
        self._next, self._ranks = 0, None

    def mean(self, member: int, shift: int, summands: int) -> torch.Tensor:
        """The mean over all ranks' micro-batches, in the form of the parameter."""
        bucket, parameter = self._of[member], self._parameters[member]
        flat = fixed_point.mean(bucket.total(member, bucket.sums), shift, summands, parameter.dtype)
        return flat.view(parameter.shape)

    def local(self, tensor: torch.Tensor) -> torch.Tensor:
        """What this rank has of a gradient."""
        return tensor
