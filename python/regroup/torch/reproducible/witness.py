"""Finds a rank that computes wrongly: what it computes, another one computes too.

In each step one micro-batch, chosen by the number of the step, is computed by a second rank, the witness. The
gradients of both have the same bits; if they have not, all ranks compute that micro-batch, and those in the minority
are at fault.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Sequence

import torch

from .randomness import mix

_MASK = (1 << 64) - 1
_ROWS = 64

#: The integers as which the elements of a tensor are added up, by their size.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """A sum of the bits of a tensor, as an int64 without dimensions. One changed bit is always in it, and two tensors
    that differ otherwise have the same by chance with a probability of about 2**-38."""
    bits = tensor.detach().contiguous().view(-1).view(_BITS[tensor.element_size()])
    whole = bits.numel() // _ROWS * _ROWS
    rows = bits[:whole].view(_ROWS, -1).sum(1, dtype=torch.int64)
    rows[: bits.numel() - whole] += bits[whole:]
    return (rows * _weights(tensor.device)).sum()


_kept: Dict[torch.device, torch.Tensor] = {}


def _weights(device: torch.device) -> torch.Tensor:
    """An odd number for each row: times one of them no change becomes 0."""
    if device not in _kept:
        odd = [mix(i) | 1 for i in range(_ROWS)]
        _kept[device] = torch.tensor([w - (1 << 64) if w >> 63 else w for w in odd], device=device)
    return _kept[device]


class Checksum:
    """The checksum of several numbered tensors, in any order."""

    def __init__(self) -> None:
        self._sum: Optional[torch.Tensor] = None

    def __call__(self, number: int, tensor: torch.Tensor) -> None:
        """Adds a tensor."""
        odd = mix(1000 + number) | 1
        one = checksum(tensor) * (odd - (1 << 64) if odd >> 63 else odd)
        self._sum = one if self._sum is None else self._sum + one

    def value(self) -> int:
        """The checksum, of 64 bits with a sign; never 0."""
        return 1 if self._sum is None else int(self._sum) or 1


class Duty(NamedTuple):
    """Who computes which micro-batch twice in a step."""

    micro_batch: int
    owner: int
    witness: int


def duty(step: int, shares: Sequence[int]) -> Duty:
    """That of a step, of ranks with so many micro-batches each. Each micro-batch, and each rank as the witness of each
    other one, has its turn."""
    turn = mix(step)
    micro_batch = turn % sum(shares)
    owner = before = 0
    while micro_batch >= before + shares[owner]:
        before, owner = before + shares[owner], owner + 1
    others = [r for r in range(len(shares)) if r != owner]
    return Duty(micro_batch, owner, others[(turn >> 32) % len(others)])


class Verdict(NamedTuple):
    """Which ranks have computed wrongly: always, or only once. unknown: there is no majority."""

    always: List[int]
    once: List[int]
    unknown: bool = False


def judge(first: Dict[int, int], second: Sequence[int]) -> Verdict:
    """Decides on checksums of one thing: first of the ranks that had computed it before, second of all ranks."""
    (right, votes), *_ = Counter(second).most_common(1)
    if 2 * votes <= len(second):
        return Verdict([], [], True)
    always = [r for r, value in enumerate(second) if value != right]
    return Verdict(always, [r for r, value in sorted(first.items()) if value != right and r not in always])
