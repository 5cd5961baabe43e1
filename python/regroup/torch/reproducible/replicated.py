"""The totals of a step's gradients on this rank, and their sum over all ranks."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

import torch

from ...errors import InvalidArgumentError
from . import fixed_point
from .additions import Additions, Repeated
from .exchange import parts_within
from .fixed_point import Magnitude
from .ranks import Ranks

#: Bytes of totals that make a bucket: so much is summed up at once, while the next one is computed. The first bucket is
#: small, so that the sums begin early.
BUCKET_BYTES, FIRST_BYTES = 16 << 20, 1 << 20

#: Elements of gradients that are added at once, if they have not to be added before: 1 MiB, which stays in a cache.
ENOUGH = 1 << 18


def _groups(members: Sequence[int], parameters: Sequence[torch.Tensor]) -> Iterator[List[int]]:
    """The members of a bucket, in their order, as many as it takes to have enough elements."""
    group: List[int] = []
    elements = 0
    for i in members:
        group.append(i)
        elements += parameters[i].numel()
        if elements >= ENOUGH:
            yield group
            group, elements = [], 0
    if group:
        yield group


def _split(parameters: Sequence[torch.Tensor], bucket_bytes: int) -> Iterator[List[int]]:
    """The parameters by bucket, from the last one to the first: as many as it takes to reach the size of a bucket, as
    DistributedDataParallel does it, of one device and type."""
    members: List[int] = []
    size, limit = 0, min(bucket_bytes, FIRST_BYTES)
    for i in reversed(range(len(parameters))):
        p = parameters[i]
        if members and (
            size >= limit or (p.device, p.dtype) != (parameters[members[0]].device, parameters[members[0]].dtype)
        ):
            yield members
            members, size, limit = [], 0, bucket_bytes
        members.append(i)
        size += 8 * p.numel()
    yield members


class _Bucket:
    """Parameters of one device and type, and memory for their totals. It ends with zeros, so that up to most ranks have
    parts of one size."""

    def __init__(self, members: List[int], parameters: Sequence[torch.Tensor], most: int):
        self.members, self._most = members, most
        self._dtype, self._device = parameters[members[0]].dtype, parameters[members[0]].device
        self._at: Dict[int, slice] = {}
        self._count = 0
        for i in members:
            self._at[i] = slice(self._count, self._count + parameters[i].numel())
            self._count = self._at[i].stop
        self._direct = False  # this rank's gradients are sent as they are
        self._memory: Dict[torch.dtype, torch.Tensor] = {}  # of totals, and of gradients
        self._parts: Dict[int, torch.Tensor] = {}  # of what is used of that, by member
        self._empty = set(members)  # whose memory is to be overwritten
        #: As many members as it takes to have enough elements, in their order.
        self.groups = [Repeated(g, parameters) for g in _groups(members, parameters)]
        self.missing = set(members)
        self.started = False
        self._exchange: Any = None
        self._of: Any = None  # whose it is
        self._shapes = {i: parameters[i].shape for i in members}
        self._whole = torch.empty(0)
        self._means: Dict[int, torch.Tensor] = {}  # the parts of it

    def _own(self) -> torch.Tensor:
        """The totals of this rank; or its gradients."""
        dtype = self._dtype if self._direct else torch.int64
        if dtype not in self._memory:
            self._memory[dtype] = torch.zeros(self._count + self._most - 1, dtype=dtype, device=self._device)
        return self._memory[dtype]

    def begin(self, direct: bool, shifts: Optional[List[int]]) -> None:
        """Begins a pass, or goes on with one whose gradients are no longer sent as they are."""
        if not self._parts or self._direct != direct:
            before, self._direct = self._parts, direct
            self._parts = {member: self._own()[at] for member, at in self._at.items()}
            for member in set(before) - self._empty if shifts is not None and not direct else ():
                fixed_point.add(self._parts[member], before[member], shifts[member], first=True)
        for group in self.groups if shifts is not None else ():
            group.prepare([self._parts[i] for i in group.members], [shifts[i] for i in group.members], direct)

    def clear(self) -> None:
        """Forgets what was added."""
        self._empty = set(self.members)

    def add(self, additions: Additions, member: int, gradient: torch.Tensor, shift: int) -> None:
        """Has a gradient added."""
        own, first = self._parts[member], member in self._empty
        if first:
            self._empty.discard(member)
        if self._direct:
            additions.copy(member, own, gradient)
        else:
            additions.add(member, own, gradient, shift, first)

    def add_all(self, group: Repeated, gradients: List[torch.Tensor]) -> List[Magnitude]:
        """Adds the gradients of one of the groups; returns their magnitudes."""
        return group.add(gradients, self._empty)

    def forget(self, members: Iterable[int]) -> None:
        """Forgets gradients that would have been sent as they are."""
        self._empty.update(set(members).intersection(self.members))

    def interrupted(self) -> None:
        """Forgets an exchange that was started."""
        if self.started:
            self._exchange, self.started = None, False

    def start(self, ranks: Ranks) -> None:
        """Starts to add up; what this rank has computed stays, for the next attempt if a rank is lost."""
        for member in self._empty:
            self._parts[member].zero_()
        if self._exchange is None or self._of != (ranks.entry(), self._direct):
            own = self._own()[: -(-self._count // ranks.size) * ranks.size]
            self._exchange, self._of = ranks.exchange(own, self._dtype), (ranks.entry(), self._direct)
        self._exchange.start()
        self.started = True

    def share(self, shifts: List[int], summands: int) -> None:
        """Waits for what is to be added up on this rank, and gives the others the means that it makes of that."""
        parts, inside = self._exchange.parts(), list(parts_within(self._exchange.span, self._at.values()))
        lengths, by = [at.stop - at.start for _, at in inside], [shifts[self.members[i]] for i, _ in inside]
        fixed_point.mean(self._exchange.means, parts, lengths, by, summands)
        self._exchange.share()

    def finish(self) -> None:
        """Waits for the means of all ranks."""
        whole, self.started = self._exchange.whole(), False
        if whole is not self._whole:
            self._whole = whole
            self._means = {member: whole[at].view(self._shapes[member]) for member, at in self._at.items()}

    def mean(self, member: int) -> torch.Tensor:
        """The mean over all ranks' micro-batches, in the form of the parameter. The next step has its memory."""
        return self._means[member]


def _caller(method: Callable, *of: Any) -> Callable:
    """A hook that calls a method. Python does not see that a parameter has its hooks: with a reference to the method's
    object both would stay for good."""
    reference = weakref.WeakMethod(method)

    def accumulated(_: torch.Tensor) -> None:
        called = reference()
        if called is not None:
            called(*of)

    return accumulated


class ReplicatedTotals:
    """int64 totals of the gradients of parameters that each rank has, in buckets that are summed up in the order in
    which a backward pass makes their gradients: from the last parameter to the first.

    arrived is called with the numbers of parameters and the magnitudes of their gradients. There are at most most ranks.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], names: List[str], arrived: Callable, bucket_bytes: int, most: int
    ):
        self._parameters, self._names, self._arrived = parameters, names, arrived
        self._buckets: List[_Bucket] = []
        self._of: Dict[int, _Bucket] = {}
        self._shifts: Optional[List[int]] = None  # None = nothing is added
        self.seen: Optional[Callable] = None  # called with the number of a parameter and its gradient
        self._open = False  # in a micro-batch
        self._came: Dict[int, int] = {}  # by parameter: how many gradients of the micro-batch have come
        #: By parameter: how many gradients of a micro-batch were added that was interrupted. It is to be gone on with.
        self.partial: Dict[int, int] = {}
        self._skips: Dict[int, int] = {}  # the same, of the micro-batch that goes on
        self.several = False  # gradients of a parameter came in a micro-batch of what is kept
        self._additions = Additions(len(parameters))
        self._next = 0  # the bucket whose sum is started next: all ranks start them in one order
        self._ranks: Optional[Ranks] = None  # in the last micro-batch of this rank: of the sums that are started
        for members in _split(parameters, bucket_bytes):
            self._buckets.append(_Bucket(members, parameters, most))
            self._of.update((i, self._buckets[-1]) for i in members)
        self._hooks: List[Any] = []
        self._together: Optional[bool] = None  # whether the hooks are of groups; None = there are none

    def clear(self) -> None:
        """Forgets what was added."""
        self._additions.clear()
        self.partial.clear()
        self.several = False
        for bucket in self._buckets:
            bucket.clear()

    def begin_pass(self, direct: bool, shifts: Optional[List[int]], once: bool) -> None:
        """Begins a pass over the step's micro-batches. If gradients come once in each, several are taken together; if it
        is direct, too, each rank has one micro-batch."""
        self._direct = direct
        if self._together != once:
            self._hook(once)
        for bucket in self._buckets:
            bucket.begin(direct, shifts)

    def begin(self, shifts: Optional[List[int]], ranks: Optional[Ranks], goes_on: bool) -> None:
        """Begins a micro-batch, or goes on with one that was interrupted; with ranks the last one of this rank, in which
        buckets are summed up as soon as they have all of it, which is when its gradients have come once."""
        self._shifts, self._open = shifts, True
        self._skips = dict(self.partial) if goes_on else {}
        for p in self._parameters:
            p.grad = None
        self._ranks = ranks if shifts is not None else None
        if ranks is not None:
            for bucket in self._buckets:
                bucket.missing = set(bucket.members)

    def end(self) -> None:
        """Ends a micro-batch. No sum is started: that may fail when the micro-batch is complete, and start does it."""
        self._ranks = None
        if self._together and any(p.grad is not None for p in self._parameters):
            self._take_rest()
        self._finish_additions()
        self._came.clear()
        if self._shifts is not None:
            self.partial.clear()
        self._open = False

    def interrupted(self) -> None:
        """Notes what a micro-batch has added that did not end, and forgets sums that were started."""
        if self._open and self._shifts is not None:
            if self._direct:
                self._additions.clear()
                for bucket in self._buckets:
                    bucket.forget(self._came)
            else:
                self._finish_additions()
                self.partial.update((i, max(n, self.partial.get(i, 0))) for i, n in self._came.items())
        self._came.clear()
        self._open = False
        self._next, self._ranks = 0, None
        for bucket in self._buckets:
            bucket.interrupted()

    def _hook(self, together: bool) -> None:
        """Has gradients taken as they come; or together, when all of a group have come. Python takes longer to be called
        in the middle of a backward pass than for a dozen gradients, so it is called with one of the last two of a group
        in the order of their buckets: of a layer's weight and bias either one may be the last."""
        for hook in self._hooks:
            hook.remove()
        takers: Dict[int, Any] = {i: (self._add, i) for i in range(len(self._parameters))}
        if together:
            takers = {
                i: (self._add_groups, b, k)
                for b in self._buckets
                for k, group in enumerate(b.groups)
                for i in group.members[-2:]
            }
        self._hooks = [
            self._parameters[i].register_post_accumulate_grad_hook(_caller(*taker)) for i, taker in takers.items()
        ]
        self._together = together

    def _take_rest(self) -> None:
        """Takes what came later than expected."""
        for bucket in self._buckets:
            for group in bucket.groups:
                self._add_group(bucket, group)
        for member, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                self._add(member)

    def _add_groups(self, bucket: _Bucket, number: int) -> None:
        """Takes the gradients of a group, and those before it that were not complete when they should have been."""
        for i, group in enumerate(bucket.groups[: number + 1] if self._open else ()):
            if i == number or group.members[0] not in self._came:
                self._add_group(bucket, group)

    def _add_group(self, bucket: _Bucket, group: Repeated) -> None:
        """Takes the gradients of a group if all have come."""
        gradients = group.gradients()
        if gradients is None:
            return
        first = self._shifts is not None and not self._skips and self._came.keys().isdisjoint(group.members)
        if not first or not all(map(fixed_point.fast, gradients)):
            for member in group.members:
                self._add(member)
            return
        if self.seen is not None:
            for member, gradient in zip(group.members, gradients):
                self.seen(member, gradient)
        self._came.update(dict.fromkeys(group.members, 1))
        self._arrived(group.members, bucket.add_all(group, gradients))
        if self._ranks is not None:
            bucket.missing.difference_update(group.members)
            self._start_whole(self._ranks)

    def _add(self, member: int) -> None:
        """Takes the gradient of one parameter."""
        if not self._open:
            return
        parameter = self._parameters[member]
        gradient, parameter.grad = parameter.grad, None
        if gradient.layout is not torch.strided:
            raise InvalidArgumentError(f"the gradient of {self._names[member]} is sparse: make it dense (sparse=False)")
        if self.seen is not None:
            self.seen(member, gradient)
        bucket, times, skips = self._of[member], self._came.get(member, 0), self._skips.get(member, 0)
        self._came[member] = times + 1
        void = False
        if times > 0:
            self.several = True
            void = self._direct or bucket.started  # then so is the pass
        if self._shifts is None or void or times < skips:
            self._arrived([member], [fixed_point.magnitude(gradient)])
        else:
            bucket.add(self._additions, member, gradient, self._shifts[member])
            if self._additions.elements >= ENOUGH:
                self._finish_additions()
        if self._ranks is not None:
            bucket.missing.discard(member)
            self._start_whole(self._ranks)

    def _finish_additions(self) -> None:
        self._arrived(*self._additions.finish())

    def _start_whole(self, ranks: Ranks) -> None:
        """Starts the sums of the buckets that have all of this rank, up to the first that has not."""
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._start(ranks)

    def _start(self, ranks: Ranks) -> None:
        self._finish_additions()
        self._buckets[self._next].start(ranks)
        self._next += 1

    def start(self, ranks: Ranks) -> None:
        """Starts the sums that have not begun, for parameters without a gradient."""
        while self._next < len(self._buckets):
            self._start(ranks)

    def finish(self, shifts: List[int], summands: int) -> None:
        """Waits for all sums, and makes the means of so many summands of them."""
        for bucket in self._buckets:
            bucket.share(shifts, summands)
        for bucket in self._buckets:
            bucket.finish()
        self._next, self._ranks = 0, None

    def mean(self, member: int) -> torch.Tensor:
        """The mean over all ranks' micro-batches, in the form of the parameter."""
        return self._of[member].mean(member)

    def counts(self, member: int) -> bool:
        """Whether this rank's part of a parameter is to be counted: it is all of it."""
        return True

    def local(self, tensor: torch.Tensor) -> torch.Tensor:
        """What this rank has of a gradient."""
        return tensor
