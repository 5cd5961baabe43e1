"""The totals of a model that fully_shard has dealt to the ranks.

Each rank has the totals of its part of each parameter: the integers of a micro-batch are added up over all ranks by one
reduce-scatter for each group of parameters, within the backward pass, as fully_shard does it with floats.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ...errors import InvalidArgumentError, UnsupportedError
from ..parameter_groups import parameter_groups
from . import fixed_point
from .additions import Additions
from .ranks import Ranks

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # torch without distributed
    DTensor = None  # type: ignore[assignment,misc]


class _Part(NamedTuple):
    """A parameter in what its group sends."""

    member: int  #: its number in the model
    offset: int  #: of its part, in elements
    padded: int  #: the size of the part of each rank, in elements
    size: Sequence[int]  #: of this rank's part, without what it is padded with


class _Group:
    """Parameters whose gradients are reduced together."""

    def __init__(self, module: torch.nn.Module, group: Any, number: Dict[int, int], names: List[str]):
        self.module, self.parts = module, []  # type: torch.nn.Module, List[_Part]
        offset = 0
        for p in group.fsdp_params:
            if not p.sharded_param.requires_grad:
                continue
            padded = p.padded_sharded_param_size.numel()
            self.parts.append(_Part(number[id(p.sharded_param)], offset, padded, tuple(p.sharded_size)))
            offset += padded
        self.names = [names[p.member] for p in self.parts]
        #: The ranks that have the same parts, and whether this is the first of them; None = no other has this one's.
        self.replicas: Any = getattr(group.mesh_info, "replicate_process_group", None)
        self.first = self.replicas is None or self.replicas.rank() == 0
        self.length, self.world = offset, group._reduce_scatter_process_group.size()
        device = group.device
        self.own = torch.zeros(offset, dtype=torch.int64, device=device)


class ShardedTotals:
    """int64 totals of this rank's parts of the gradients.

    arrived is called with the numbers of parameters and the magnitudes of their gradients on this rank.
    """

    def __init__(self, model: torch.nn.Module, parameters: Sequence[torch.Tensor], names: List[str], arrived: Callable):
        self._parameters, self._arrived = parameters, arrived
        self._groups: List[_Group] = []
        self._additions = Additions(len(parameters))
        self._shifts: Optional[List[int]] = None  # None = this pass finds the magnitudes
        self._counts = True  # what this rank computes counts
        self._finished: Tuple[List[int], int] = ([], 1)
        self.seen: Optional[Callable] = None  # called with the number of a parameter and a part of its gradient
        self.several, self.partial = False, None  # there is no such thing
        number = {id(p): i for i, p in enumerate(parameters)}
        for module, group in parameter_groups(model):
            if any(id(p.sharded_param) in number for p in group.fsdp_params):
                self._add(module, group, number, names)
        dealt = {p.member for g in self._groups for p in g.parts}
        whole = [names[i] for i in range(len(parameters)) if i not in dealt]
        if whole:
            raise UnsupportedError(f"{whole[0]} belongs to no module of fully_shard: apply it to the whole model, too")

    def _add(self, module: Any, group: Any, number: Dict[int, int], names: List[str]) -> None:
        added = _Group(module, group, number, names)
        self._groups.append(added)
        if added.replicas is not None:
            if added.world == 1:
                raise UnsupportedError(
                    f"{added.names[0]} is whole on each rank: a model without parts is not for fully_shard here; use it "
                    "as it is, or in DistributedDataParallel"
                )
            module.set_requires_all_reduce(False, recurse=False)  # which would add up floats
        module.set_custom_reduce_scatter(_ReduceScatter(self, self._groups[-1]))

    def clear(self) -> None:
        """Forgets what was added."""
        for group in self._groups:
            group.own.zero_()

    def begin_pass(self, direct: bool, shifts: Optional[List[int]], once: bool) -> None:
        """Does nothing: what of it matters is for replicas."""

    def begin(self, shifts: Optional[List[int]], counts: bool) -> None:
        """Begins a micro-batch. One that does not count is computed because others compute one, in whose collective
        operations this rank takes part."""
        self._shifts, self._counts = shifts, counts
        for p in self._parameters:
            p.grad = None

    def interrupted(self) -> None:
        """Forgets what was not added."""
        self._additions.clear()

    def start(self, ranks: Ranks) -> None:
        """Does nothing: what was added was summed up, but for replicas."""

    def finish(self, shifts: List[int], summands: int) -> None:
        """Adds up what the replicas have: each micro-batch was added to the totals of one of them. The means are of so
        many summands."""
        self._finished = shifts, summands
        replicated = [g for g in self._groups if g.replicas is not None]
        for work in [dist.all_reduce(g.own, group=g.replicas, async_op=True) for g in replicated]:
            work.wait()

    def end(self) -> None:
        """Ends a micro-batch. A rank alone reduces nothing, and has its gradients in its parameters."""
        for group in self._groups:
            for part in group.parts:
                p = self._parameters[part.member]
                if group.world == 1 and p.grad is not None:
                    self._take(part, p.grad.to_local(), group.own[part.offset :])
                p.grad = None
        self._finish_additions()

    def _take(self, part: _Part, gradient: torch.Tensor, total: torch.Tensor) -> None:
        if self.seen is not None:
            self.seen(part.member, gradient)
        if self._shifts is None or not self._counts:
            self._arrived([part.member], [fixed_point.magnitude(gradient)])
        else:
            gradient = gradient.contiguous()
            total = total[: gradient.numel()]
            self._additions.add(part.member, total, gradient, self._shifts[part.member], first=False)

    def _finish_additions(self) -> None:
        self._arrived(*self._additions.finish())

    def reduce_scatter(self, group: _Group, output: torch.Tensor, given: torch.Tensor, ranks: Any) -> None:
        """Adds a group's gradients of one micro-batch of each rank to the totals. given has, for each rank, its part
        of each parameter. Nothing is left to PyTorch, which would add up floats."""
        if given.numel() != group.length * group.world:
            raise UnsupportedError(
                f"one of {', '.join(group.names)} has no gradient in a micro-batch: all parameters of a module of "
                "fully_shard must have one"
            )
        if given.dtype is torch.float16:
            raise InvalidArgumentError("gradients in float16 are scaled before they are added: reduce them as bfloat16")
        output.zero_()
        totals = torch.zeros(given.shape, dtype=torch.int64, device=given.device)
        for r in range(group.world):
            for part in group.parts:
                at = r * group.length + part.offset
                self._take(part, given[at : at + part.padded], totals[at:])
        self._finish_additions()
        if self._shifts is None:
            return
        sums = torch.empty_like(group.own)
        dist.reduce_scatter_tensor(sums, totals, group=ranks)
        group.own += sums

    def mean(self, member: int) -> torch.Tensor:
        """The mean over all micro-batches, as a tensor like the parameter."""
        group, part = next((g, p) for g in self._groups for p in g.parts if p.member == member)
        p: Any = self._parameters[member]
        shifts, summands = self._finished
        count = math.prod(part.size)
        flat = torch.empty(count, dtype=p.dtype, device=group.own.device)
        total = group.own[part.offset : part.offset + count]
        fixed_point.mean(flat, [total], [count], [shifts[member]], summands)
        return DTensor.from_local(
            flat.view(part.size), p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride()
        )

    def local(self, tensor: Any) -> torch.Tensor:
        """What this rank has of a gradient."""
        return tensor.to_local()

    def counts(self, member: int) -> bool:
        """Whether this rank is the first of those that have its part of a parameter."""
        return next(g.first for g in self._groups for p in g.parts if p.member == member)


class _ReduceScatter:
    """What fully_shard calls in a backward pass (torch.distributed.fsdp's ReduceScatter)."""

    def __init__(self, totals: ShardedTotals, group: _Group):
        self._totals, self._group = totals, group

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        self._totals.reduce_scatter(self._group, output_tensor, input_tensor, group)
