"""Checksums of tensors that do not depend on how they are dealt to the ranks."""

from __future__ import annotations

from typing import Dict, Optional

import torch

from ..randomness import mix

_WORD = 8  # bytes that are one summand
_BLOCK = 2048  # words that have a weight in common


def checksum(tensor: torch.Tensor, first: int = 0) -> torch.Tensor:
    """A sum of the bits of a tensor, as an int64 without dimensions, of which that of the whole is the sum of those of
    its parts: of a part, first is the number of its first element in the whole.

    Words of eight bytes are added up, and each block of them has a weight. One changed bit is always in the sum; two
    tensors that differ otherwise have the same by chance, unless they differ in the order within one block alone.
    """
    content = tensor.detach().contiguous().view(-1).view(torch.uint8)
    start, lead = divmod(first * tensor.element_size(), _WORD)
    whole = content.numel() // _WORD * _WORD
    if lead or content.data_ptr() % _WORD or content.storage_offset() % _WORD:  # no view as words
        whole = 0
    words = content[:whole].view(torch.int64) if whole else torch.empty(0, dtype=torch.int64, device=tensor.device)
    rest = content[whole:]
    total = _weighted(words, start)
    if rest.numel():  # behind zeros, and filled up with zeros
        filled = torch.zeros(-(-(lead + rest.numel()) // _WORD), dtype=torch.int64, device=tensor.device)
        filled.view(torch.uint8)[lead : lead + rest.numel()] = rest
        total = total + _weighted(filled, start + words.numel())
    return total


def _weighted(words: torch.Tensor, start: int) -> torch.Tensor:
    """The sum of words, each times the weight of its block; the first one has the number start."""
    head = min(words.numel(), -start % _BLOCK)
    rows = (words.numel() - head) // _BLOCK
    sums = [words[head : head + rows * _BLOCK].view(rows, _BLOCK).sum(1)]
    if head:
        sums.insert(0, words[:head].sum().view(1))
    if head + rows * _BLOCK < words.numel():
        sums.append(words[head + rows * _BLOCK :].sum().view(1))
    by_block, block = torch.cat(sums), start // _BLOCK
    return (by_block * _weights(block + by_block.numel(), words.device)[block:]).sum()


_kept: Dict[torch.device, torch.Tensor] = {}


def _weights(count: int, device: torch.device) -> torch.Tensor:
    """An odd number for each block: times one of them no change becomes 0."""
    kept = _kept.get(device)
    if kept is None or kept.numel() < count:
        kept = _kept[device] = _mixed(torch.arange(max(count, 64), device=device)) | 1
    return kept[:count]


def _mixed(numbers: torch.Tensor) -> torch.Tensor:
    """mix of each of some int64."""
    z = numbers + (0x9E3779B97F4A7C15 - (1 << 64))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> shift & (1 << 64 - shift) - 1)) * (factor - (1 << 64))
    return z ^ (z >> 31 & (1 << 33) - 1)


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
