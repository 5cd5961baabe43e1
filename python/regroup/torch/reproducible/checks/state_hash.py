"""The hash of a training's state: weights, buffers, and what the optimizer keeps.

It is the same for equal states, however many ranks there are and however they have dealt the model among them. It
protects against accidents and not against those who want equal hashes.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch

from ..ranks import Ranks
from .checksum import checksum

try:
    from torch.distributed.tensor import DTensor, Shard
except ImportError:  # torch without distributed
    DTensor = None  # type: ignore[assignment,misc]

Named = Iterable[Tuple[str, torch.Tensor]]

_MASK = (1 << 64) - 1

#: Hashes of single tensors in a report. Of a model with more, those with the beginning of their names in common have
#: one together.
MOST = 256


class StateHash(NamedTuple):
    """The hash of a state after so many steps."""

    step: int
    hash: str  #: 32 hexadecimal digits
    tensors: Dict[str, str]  #: by name: weights, buffers, and weight/state of the optimizer

    def grouped(self, most: int = MOST) -> Dict[str, str]:
        """The hashes of at most so many tensors or groups of them: layers.3.* is all that begins with layers.3."""
        if len(self.tensors) <= most:
            return dict(self.tensors)
        deepest = max(name.count(".") for name in self.tensors)
        for depth in range(deepest, -1, -1):
            groups: Dict[str, List[str]] = {}
            for name, value in self.tensors.items():
                parts = name.split(".")
                groups.setdefault(name if len(parts) <= depth else ".".join([*parts[:depth], "*"]), []).append(value)
            if len(groups) <= most:
                break
        return {name: values[0] if not name.endswith("*") else _digest(values)[:16] for name, values in groups.items()}


def state_of(
    parameters: Named, buffers: Named, optimizer: Optional[torch.optim.Optimizer], device: torch.device
) -> Named:
    """The tensors that a training keeps from one step to the next, by name."""
    names = {}
    for name, p in parameters:
        names[p] = name
        yield name, p
    for name, b in buffers:
        yield name, b.to(device)
    if optimizer is None:
        return
    for g, group in enumerate(optimizer.param_groups):
        for n, p in enumerate(group["params"]):
            state = optimizer.state.get(p) or {}
            for key in sorted(state):
                if isinstance(state[key], torch.Tensor):
                    yield f"{names.get(p, f'group {g} {n}')}/{key}", state[key].to(device)


def hash_state(step: int, tensors: Named, ranks: Ranks, sharded: bool) -> StateHash:
    """The hash of a state after so many steps. sharded: all ranks have parts of it, and call this at the same place;
    else each can find it alone."""
    names, sums = [], []
    for name, tensor in tensors:
        names.append(name)
        sums.append(_part(tensor, ranks) if sharded else checksum(tensor))
    row = torch.stack(sums)
    if sharded:
        ranks.start_sum(row).wait()
    values = [f"{v & _MASK:016x}" for v in row.tolist()]
    total = _digest(f"{name} {value}" for name, value in zip(names, values))
    return StateHash(step, total[:32], dict(zip(names, values)))


def _part(tensor: Any, ranks: Ranks) -> torch.Tensor:
    """The checksum of what this rank has of a tensor; of one that is whole on each rank of a sharded model, rank 0
    has it."""
    if DTensor is None or not isinstance(tensor, DTensor):
        return checksum(tensor) if ranks.rank == 0 else torch.zeros((), dtype=torch.int64, device=tensor.device)
    none = torch.zeros((), dtype=torch.int64, device=tensor.device)
    mesh, placements, place = tensor.device_mesh, tensor.placements, tensor.device_mesh.get_coordinate()
    cut = [d for d, p in enumerate(placements) if p == Shard(0)]
    copied = [d for d, p in enumerate(placements) if p.is_replicate()]
    if place is not None and len(cut) == 1 and len(cut) + len(copied) == mesh.ndim:
        if any(place[d] > 0 for d in copied):
            return none
        # As torch.chunk cuts: the first ranks have so many rows each, and the last ones what is left.
        rows = -(-tensor.shape[0] // mesh.size(cut[0]))
        before = min(place[cut[0]] * rows, tensor.shape[0])
        return checksum(tensor.to_local(), before * math.prod(tensor.shape[1:]))
    whole = tensor.full_tensor()
    return checksum(whole) if ranks.rank == 0 else none


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
