"""Finds a rank that computes wrongly: what it computes, another one computes too.

In each step one micro-batch or more, chosen by the number of the step, are computed by a second rank, the witness. The
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


def duties(step: int, shares: Sequence[int], count: int) -> List[Duty]:
    """Those of a step, of ranks with so many micro-batches each, for so many of these. Each micro-batch, and each rank
    as the witness of each other one, has its turn."""
    owners = [r for r, share in enumerate(shares) for _ in range(share)]
    turns = {m: mix(mix(step) ^ m) for m in range(len(owners))}
    found = []
    for m in sorted(turns, key=lambda m: turns[m])[:count]:
        others = [r for r in range(len(shares)) if r != owners[m]]
        found.append(Duty(m, owners[m], others[turns[m] % len(others)]))
    return found


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
