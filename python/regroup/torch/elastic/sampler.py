"""ElasticSampler: every sample of an epoch once, however the world changes."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Optional, Set

import torch
import torch.utils.data

from ... import _library as lib
from ...errors import DivergedError, InvalidArgumentError
from ..world import world
from .positions import PositionSet

#: Positions of an order that are computed at a time.
_PIECE = 1 << 16


class ElasticSampler(torch.utils.data.Sampler):
    """Partitions the samples of a data set among the ranks, and the rest of the epoch again when
    the world changes.

    The order of an epoch is a permutation that depends on ``seed`` and the epoch alone; it is
    computed, not stored. A pass begins with an epoch, a generation, and a restore: rank r takes
    positions r, r + size, r + 2 * size and so on of the rest. Nothing is padded: at the end of an
    epoch the ranks' last batches may differ in length, and DistributedOptimizer weights gradients
    accordingly. Only if some ranks would have no last batch at all, they get one sample with weight
    0, so that all ranks make the same number of steps.

    ``record_batch`` records that this rank has trained on its next samples. Each commit merges what
    all ranks have recorded, however uneven it is. ``set_epoch`` begins another epoch, at the end of
    one; with the current epoch it does nothing, so it is safe at the start of one that is resumed.
    Iterating again continues after what was recorded; in an epoch that this rank has completed it
    repeats the pass, which does not count. A sampler that is restored at the end of an epoch yields
    nothing until ``set_epoch``.

    ``batch_size`` is that of one rank. It is learnt from what is recorded, and only matters before
    that: in an epoch of a single step.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0, batch_size: Optional[int] = None):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self._batch = batch_size
        self._samples = len(dataset)
        self._done = PositionSet(self._samples)  # of the epoch, at the start of the pass
        #: Whether at the last commit all ranks had recorded as much as they could if each took as
        #: large batches as the others, in their order.
        self.alike = False
        self._fresh = False  # something was recorded since the last commit
        self._split = False  # in a pass that has ended since
        self.reset()

    def reset(self) -> None:
        """Begins a pass: partitions the rest of the epoch among the current ranks."""
        if getattr(self, "_recorded", 0) or getattr(self, "_ahead", None):
            self._done = self._known()
        self.rank, self.num_replicas = world.membership.rank, world.membership.size
        self._left = self._done.left()
        more = self._left % self.num_replicas
        self._own = self._share_of(self.rank)
        self._short = self.rank >= more > 0  # it has one sample less than others
        self._recorded = 0  # of this rank's share, from its start
        self._asked = 0  # the same, if it had the largest share
        self._ahead: Set[int] = set()  # recorded samples beyond that
        self._from = 0  # where in the share the iteration began
        self._counted: Optional[List[int]] = None  # what all ranks had recorded at the last commit; None = nothing
        self._split = self._split or self._fresh
        self._others: Optional[List[dict]] = None  # progress of all ranks

    @property
    def _gets_filler(self) -> bool:
        """Whether this rank gets a filler sample, because the others would otherwise make one step
        more."""
        return self._short and (self._batch is None or self._own % self._batch == 0)

    @property
    def num_samples(self) -> int:
        """The number of samples that this rank gets in the pass."""
        return self._own + self._gets_filler

    # Processed samples.

    @property
    def processed_num(self) -> int:
        """The number of samples of the epoch that were trained on: what all ranks had recorded at
        the last commit and, since then, as many on each rank as on this one."""
        return self._known().count()

    @property
    def processed_indices(self) -> Set[int]:
        """The same, as indices of the data set. They are computed on each access."""
        known = self._known()
        whole = self._indices(0, known.whole).tolist()
        return {*whole, *(i for p in known.more for i in self._indices(p, 1).tolist())}

    def _known(self) -> PositionSet:
        """The positions of the epoch that were trained on, as far as this rank knows."""
        if self._others is not None:
            more = self._asked - self._others[self.rank]["asked"]
            reports = [
                {**s, "recorded": min(s["recorded"] + more, self._share_of(r))} for r, s in enumerate(self._others)
            ]
            reports[self.rank] = self.progress()
            return self._merged(reports)
        mine = self.progress()
        alike = self._done.with_dealt(range(min(self._asked * self.num_replicas, self._left)))
        return alike.with_more(self._done, (k * self.num_replicas + self.rank for k in mine["ahead"]))

    def _share_of(self, rank: int) -> int:
        whole, more = divmod(self._left, self.num_replicas)
        return whole + (rank < more)

    def progress(self) -> dict:
        """What this rank has recorded in the pass, for merge."""
        return {
            "epoch": self.epoch,
            "batch": self._batch or 0,
            "asked": self._asked,
            "recorded": self._recorded,
            "ahead": sorted(self._ahead),
        }

    def _merged(self, reports: List[dict]) -> PositionSet:
        """The positions that the ranks of this pass have trained on."""
        size = self.num_replicas
        least = min(min(s["recorded"], self._left // size) for s in reports)
        known = self._done.with_dealt(range(min(least * size, self._left)))
        beyond = (
            k * size + r for r, s in enumerate(reports) for ks in (range(least, s["recorded"]), s["ahead"]) for k in ks
        )
        return known.with_more(self._done, (j for j in beyond if j < self._left))

    def merge(self, reports: List[dict]) -> None:
        """Merges the progress of all ranks, in the order of the ranks. They are in the same pass."""
        for rank, s in enumerate(reports):
            if s["epoch"] != self.epoch:
                raise DivergedError(
                    f"rank {rank} is in epoch {s['epoch']} of its sampler and this one in {self.epoch}: set_epoch is for "
                    "all ranks, between the same two commits"
                )
        self._learn(max(s["batch"] for s in reports))
        self._others = list(reports) if len(reports) == self.num_replicas else None
        self.alike = self._others is not None and all(
            s["recorded"] == min(self._asked, self._share_of(r)) and not s["ahead"] for r, s in enumerate(reports)
        )

    def committed(self) -> None:
        """Notes that what was merged last is in a commit."""
        self._counted = None if self._others is None else [s["recorded"] for s in self._others]
        self._fresh = self._split = False

    def assume(self, training: Any) -> bool:
        """Records for all other ranks that they have trained on as much as this one since the last
        commit, if they always have. Returns whether that is so."""
        if not self.alike or self._split or self._ahead:
            return False
        for rank in range(self.num_replicas):
            lo = 0 if self._counted is None else self._counted[rank]
            hi = min(self._asked, self._share_of(rank))
            if rank != self.rank and lo < hi and world.sampler is self:
                numbers = range(rank + lo * self.num_replicas, rank + hi * self.num_replicas, self.num_replicas)
                memory = torch.tensor(list(self._chosen(numbers)), dtype=torch.int64)
                training.record_for(self.epoch, memory.data_ptr(), len(memory))
        return True

    # The rest of the epoch.

    @property
    def total_size(self) -> int:
        """The number of samples of the rest of the epoch at the start of the pass, over all ranks."""
        return self._left

    @property
    def remaining_indices(self) -> List[int]:
        """The rest of the epoch at the start of the pass, in order. It is computed on each access."""
        return list(self._chosen(range(self._left)))

    @property
    def indices(self) -> List[int]:
        """This rank's share of the pass."""
        return list(self._deal(0))

    def get_indices(self, batch_idx: int, batch_size: int) -> List[int]:
        """The indices of a batch of this rank, counted from the start of the iteration; fewer at
        the end of the share."""
        self._learn(batch_size)
        lo = min(self._from + batch_idx * batch_size, self._own)
        return list(self._chosen(self._share(lo, min(lo + batch_size, self._own))))

    def _share(self, lo: int, hi: int) -> range:
        """Samples lo to hi of this rank's share, as indices into the rest of the epoch."""
        return range(self.rank + lo * self.num_replicas, self.rank + hi * self.num_replicas, self.num_replicas)

    def _indices(self, position: int, count: int) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(position, position + count)
        out = torch.empty(count, dtype=torch.int64)
        if count:
            lib.permutation(self._samples, self.seed, self.epoch, position, out.data_ptr(), count)
        return out

    def _chosen(self, numbers: range) -> Iterator[int]:
        """The data set indices of samples, given as indices into the rest of the epoch at the start
        of the pass."""
        step = max(1, _PIECE // max(1, numbers.step))
        for i in range(0, len(numbers), step):
            piece = numbers[i : i + step]
            for positions in self._done.positions(piece):
                yield from self._indices(positions.start, positions[-1] - positions.start + 1)[
                    :: positions.step
                ].tolist()

    def _deal(self, begin: int) -> Iterator[int]:
        yield from self._chosen(self._share(begin, self._own))
        if self._gets_filler:
            yield from self._chosen(range(self._left - 1, self._left))

    def __iter__(self) -> Iterator[int]:
        if (self.rank, self.num_replicas) != (world.membership.rank, world.membership.size):
            self.reset()
        self._from = self._recorded if self._recorded < self._own else 0
        return self._deal(self._from)

    def __len__(self) -> int:
        return self.num_samples

    # Steps.

    def weight(self) -> float:
        """The weight of this rank's mean gradient in the next step: 1, except in the last one of an
        epoch."""
        if self._batch is None or self._asked * self.num_replicas >= self._left:
            return 1.0
        if self.num_samples - self._recorded > self._batch:
            return 1.0
        own, total = self._own - self._recorded, self._left - self._recorded * self.num_replicas
        return own * self.num_replicas / total

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that this rank has trained on its next batch_size samples, or fewer at the end of
        an epoch. As in Horovod the number of calls counts, and not batch_idx."""
        if batch_size < 1:
            raise InvalidArgumentError(f"a batch of {batch_size} samples")
        self._learn(batch_size)
        self._asked = min(self._asked + batch_size, self._share_of(0))
        lo = self._recorded
        self._record(range(lo, min(lo + batch_size, self._own)))

    def record_indices(self, indices: Iterable[int]) -> None:
        """Records that this rank has trained on these samples. Samples that are not of its share,
        or were recorded before, are ignored."""
        indices = list(indices)
        self._learn(len(indices))
        mine = {index: k for k, index in enumerate(self._chosen(self._share(0, self._own)))}
        self._record(sorted({mine[int(i)] for i in indices if int(i) in mine}))

    def _learn(self, batch_size: int) -> None:
        self._batch = max(self._batch or 0, batch_size) or None

    def _record(self, own: Iterable[int]) -> None:
        """Records samples of this rank's share, by their indices in it."""
        fresh = [k for k in own if k >= self._recorded and k not in self._ahead]
        if world.training is not None and world.sampler is self:
            chosen = [i for run in _runs(fresh) for i in self._chosen(self._share(run.start, run.stop))]
            memory = torch.tensor(chosen, dtype=torch.int64)
            world.training.record(self.epoch, memory.data_ptr(), len(chosen))
        self._fresh = self._fresh or bool(fresh)
        self._ahead.update(fresh)
        while self._recorded in self._ahead:
            self._ahead.remove(self._recorded)
            self._recorded += 1
        self._asked = max(self._asked, self._recorded)

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of another epoch. For the current epoch it does nothing."""
        if epoch == self.epoch:
            return
        self._go(epoch, PositionSet(self._samples))

    def _go(self, epoch: int, done: PositionSet) -> None:
        self.epoch, self._done, self._recorded, self._ahead = epoch, done, 0, set()
        self.reset()

    def state_dict(self) -> Dict[str, Any]:
        """The position in the data."""
        known = self._known()
        state: Dict[str, Any] = {"epoch": self.epoch, "processed_num": known.count()}
        if self._batch is not None:
            state["batch"] = self._batch
        if known.more:
            state["beyond"] = sorted(known.more)
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Moves to a position in the data."""
        beyond = state.get("beyond", ())
        self._learn(state.get("batch", 0))
        self._go(state["epoch"], PositionSet(self._samples, state["processed_num"] - len(beyond), beyond))
        self._fresh = self._split = False


def _runs(numbers: List[int]) -> Iterator[range]:
    """Splits ascending numbers into ranges."""
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield range(numbers[begin], numbers[i - 1] + 1)
            begin = i
