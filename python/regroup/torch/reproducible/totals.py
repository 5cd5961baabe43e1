"""The totals of a step's gradients on this rank, and their sum over all ranks."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch

from . import fixed_point
from .ranks import Ranks

#: Bytes of gradients of a bucket: so much is summed up at once, while the next one is computed.
BUCKET_BYTES = 8 << 20


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


class Totals:
    """int64 totals of parameters' gradients, in buckets that are summed up in the order in which a backward pass makes
    their gradients: from the last parameter to the first."""

    def __init__(self, parameters: Sequence[torch.Tensor], bucket_bytes: int = BUCKET_BYTES):
        self._parameters = parameters
        self._buckets: List[_Bucket] = []
        self._of: Dict[int, _Bucket] = {}
        members: List[int] = []
        size = 0
        for i in reversed(range(len(parameters))):
            bytes_of = parameters[i].numel() * 8
            if members and (size + bytes_of > bucket_bytes or parameters[i].device != parameters[members[0]].device):
                self._add(members)
                members, size = [], 0
            members.append(i)
            size += bytes_of
        if members:
            self._add(members)
        self._next = 0  # the bucket whose sum is started next: all ranks start them in one order
        self._ranks: Optional[Ranks] = None

    def _add(self, members: List[int]) -> None:
        bucket = _Bucket(members, self._parameters)
        self._buckets.append(bucket)
        self._of.update((i, bucket) for i in members)

    def clear(self) -> None:
        """Forgets what was added."""
        for bucket in self._buckets:
            bucket.own.zero_()

    def add(self, member: int, gradient: torch.Tensor, shift: int) -> torch.Tensor:
        """Adds a gradient of a parameter; returns its magnitude."""
        bucket = self._of[member]
        return fixed_point.add(bucket.total(member, bucket.own), gradient, shift)

    def take_back(self, member: int, gradient: torch.Tensor, shift: int) -> None:
        """Subtracts what add has added: integers have no rounding, so nothing of it is left."""
        bucket = self._of[member]
        fixed_point.subtract(bucket.total(member, bucket.own), gradient, shift)

    def begin_last(self, ranks: Ranks) -> None:
        """Says that each parameter's next gradient is this rank's last: a bucket that has all of them is summed up."""
        self._ranks = ranks
        for bucket in self._buckets:
            bucket.missing = set(bucket.members)

    def arrived(self, member: int) -> None:
        """Says that the last gradient of a parameter was added."""
        if self._ranks is None:
            return
        self._of[member].missing.discard(member)
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._start(self._ranks)

    def _start(self, ranks: Ranks) -> None:
        self._buckets[self._next].start(ranks)
        self._next += 1

    def finish(self, ranks: Ranks) -> None:
        """Starts the sums that have not begun, for parameters without a gradient, and waits for all."""
        while self._next < len(self._buckets):
            self._start(ranks)
        for bucket in self._buckets:
            bucket.work.wait()
            bucket.work = None
        self._next, self._ranks = 0, None

    def abandon(self) -> None:
        """Forgets sums that were started, and will not end: they keep the memory that they may still write to."""
        self._next, self._ranks = 0, None
        for bucket in self._buckets:
            if bucket.work is not None:
                bucket.sums, bucket.work = torch.empty_like(bucket.own), None

    def mean(self, member: int, shift: int, summands: int) -> torch.Tensor:
        """The mean over all ranks' micro-batches, in the form of the parameter."""
        bucket, parameter = self._of[member], self._parameters[member]
        flat = fixed_point.mean(bucket.total(member, bucket.sums), shift, summands, parameter.dtype)
        return flat.view(parameter.shape)
