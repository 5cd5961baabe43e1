"""ElasticSampler: every sample of an epoch once, whatever becomes of the world."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional

import torch
import torch.utils.data

from ... import _library as lib
from ...errors import InvalidArgumentError
from ..world import world

#: Places of an order that are computed at a time.
_PIECE = 1 << 16


class ElasticSampler(torch.utils.data.Sampler):
    """Deals the samples of a data set to the ranks, and goes on where the last recorded step ended.

    The order of an epoch is a permutation that depends on ``seed`` and the epoch alone; it is computed, not stored.
    Rank r takes places r, r + size, r + 2 * size and so on of what is left, so the steps together consume it from front
    to back. Nothing is padded: at the end of an epoch the ranks' last batches may differ in length, and
    DistributedOptimizer weights gradients by it. Only where some ranks would have no last batch at all they get one
    sample, which counts for nothing (weight 0) and keeps all ranks at the same number of steps.

    Call ``record_batch`` once for each step, on all ranks, after the step; ``set_epoch`` at the end of an epoch. Without
    the latter the next iteration after a finished epoch begins the next one.

    ``batch_size`` is that of one rank. It is learnt from ``record_batch``, and only matters before that: in an epoch of
    a single step.
    """

    def __init__(
        self, dataset: Any, shuffle: bool = True, seed: int = 0, batch_size: Optional[int] = None
    ):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0
        self._batch = batch_size
        self._samples = len(dataset)
        self.reset()

    def reset(self) -> None:
        """Deals what is left of the epoch among the ranks that there are now."""
        self.rank, self.num_replicas = world.place.rank, world.place.size
        if world.place.generation == 0:  # not yet known: the sampler is reset when it is
            self.rank, self.num_replicas = 0, 1
        self._begin = self.processed_num
        left = self._samples - self._begin
        whole, more = divmod(left, self.num_replicas)
        self._own = whole + (self.rank < more)
        # The ranks that have a sample less get one for company if the others would otherwise make a step more.
        alone = more > 0 and self.rank >= more
        self._company = alone and (self._batch is None or whole % self._batch == 0)
        self.num_samples = self._own + self._company

    @property
    def total_size(self) -> int:
        """Samples that are left of the epoch, over all ranks."""
        return self._samples - self._begin

    @property
    def remaining_indices(self) -> List[int]:
        """What is left of the epoch, in order. It is computed when it is asked for."""
        return self._indices(self.processed_num, self._samples - self.processed_num).tolist()

    def _indices(self, position: int, count: int) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(position, position + count)
        out = torch.empty(count, dtype=torch.int64)
        lib.permutation(self._samples, self.seed, self.epoch, position, out.data_ptr(), count)
        return out

    def __iter__(self) -> Iterator[int]:
        if self.processed_num >= self._samples > 0:
            self.set_epoch(self.epoch + 1)
        self.reset()
        return self._deal(self._begin, self.rank, self.num_replicas, self._company)

    def _deal(self, begin: int, rank: int, size: int, company: bool) -> Iterator[int]:
        piece = max(1, _PIECE // size) * size
        for position in range(begin, self._samples, piece):
            count = min(piece, self._samples - position)
            yield from self._indices(position, count)[rank::size].tolist()
        if company:
            yield int(self._indices(self._samples - 1, 1))

    def __len__(self) -> int:
        return self.num_samples

    def _step(self, batch_size: Optional[int]) -> Dict[str, int]:
        """The step that comes next: how many samples all ranks take, and how many of them this one."""
        done = (self.processed_num - self._begin) // self.num_replicas  # of this rank
        left = self._samples - self.processed_num
        if batch_size is None or self.num_samples - done > batch_size:
            total = left if batch_size is None else batch_size * self.num_replicas
            return {"total": total, "own": batch_size or 0, "last": 0}
        return {"total": left, "own": self._own - done, "last": 1}

    def weight(self) -> float:
        """What this rank's mean gradient is worth in the step that comes next: 1, but in the last one of an epoch."""
        if self._batch is None or self.processed_num >= self._samples:
            return 1.0
        step = self._step(self._batch)
        return step["own"] * self.num_replicas / step["total"] if step["last"] else 1.0

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Says that all ranks have made a step with batches of batch_size samples, the last of an epoch maybe fewer.

        Under Regroup this is a small collective operation: it adds what was consumed to the account.
        """
        if batch_size < 1:
            raise InvalidArgumentError(f"a batch of {batch_size} samples")
        if self.processed_num >= self._samples:
            return
        self._batch = max(self._batch or 0, batch_size)
        step = self._step(batch_size)
        total = step["total"]
        if world.training is not None and world.sampler is self:
            mine = self._indices(self.processed_num, total)[self.rank :: self.num_replicas]
            world.training.consume(total, mine.tolist())
            world.consumed = True
        self.processed_num += total

    def set_epoch(self, epoch: int) -> None:
        """Goes to the begin of another epoch. In the one that it is in already it stays where it is."""
        if epoch == self.epoch:
            return
        if world.training is not None and world.sampler is self:
            if 0 < self.processed_num < self._samples:
                world.training.skip()
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def state_dict(self) -> Dict[str, int]:
        """The place in the data."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Goes to a place in the data."""
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        self.reset()
