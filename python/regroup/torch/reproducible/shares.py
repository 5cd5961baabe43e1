"""Which rank computes which micro-batches."""

from __future__ import annotations

from typing import List, Sequence


def share(micro_batches: Sequence[int], rank: int, world: int) -> List[int]:
    """A rank's share of micro-batches, in contiguous parts whose sizes differ by one at most, as docs/samples.md
    cuts them: of 7 for 3 ranks the first gets three, the others two."""
    whole, more = divmod(len(micro_batches), world)
    begin = whole * rank + min(rank, more)
    return list(micro_batches[begin : begin + whole + (rank < more)])
