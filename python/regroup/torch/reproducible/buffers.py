"""A model's buffers, like the averages of BatchNorm: each micro-batch of a step starts from the same ones, and those
after the step are those of micro-batch 0."""

from __future__ import annotations

from typing import List, Optional

import torch

from .ranks import Ranks


class Buffers:
    """The buffers of a model, in the course of a step."""

    def __init__(self, model: torch.nn.Module):
        self.all = self._buffers = list(model.buffers())
        self._before: List[torch.Tensor] = []
        self._first: Optional[List[torch.Tensor]] = None  # of micro-batch 0, if this rank has computed it
        self.changed = [False] * len(self._buffers)  # by a micro-batch of this step, on this rank

    def begin(self) -> None:
        """Begins a step."""
        self._before = [b.detach().clone() for b in self._buffers]
        self._first = None
        self.changed = [False] * len(self._buffers)

    def ended(self, micro_batch: Optional[int]) -> None:
        """Notes what a micro-batch has made of them, None if it does not count, and puts back what they were before."""
        if micro_batch == 0:
            self._first = [b.detach().clone() for b in self._buffers]
        self.restore()

    def restore(self) -> None:
        """Makes them what they were at the start of the step."""
        with torch.no_grad():
            for i, (buffer, before) in enumerate(zip(self._buffers, self._before)):
                if not torch.equal(buffer, before):  # PyTorch's BatchNorm does not count it as a new version
                    self.changed[i] = True
                    buffer.copy_(before)

    def forget(self) -> None:
        """Forgets what micro-batch 0 has made."""
        self._first = None

    def finish(self, ranks: Ranks, changed: List[bool]) -> None:
        """Makes those that any rank has changed what micro-batch 0 has made of them. One rank alone has that; its
        bits are added to the zeros of the others."""
        with torch.no_grad():
            for i, buffer in enumerate(self._buffers):
                if not changed[i]:
                    continue
                size = buffer.numel() * buffer.element_size()
                packed = torch.zeros(-(-size // 8), dtype=torch.int64, device=buffer.device)
                flat = packed.view(torch.uint8)[:size]
                if self._first is not None:
                    flat.copy_(self._first[i].contiguous().view(-1).view(torch.uint8))
                ranks.start_sum(packed).wait()
                buffer.copy_(flat.view(buffer.dtype).view(buffer.shape))
