"""Finds a rank that computes wrongly: what it computes, another one computes too.

In each step one micro-batch, chosen by the number of the step, is computed by a second rank, the witness. The
gradients of both have the same bits; if they have not, all ranks compute that micro-batch, and those in the minority
are at fault.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Sequence

from ..randomness import mix


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
