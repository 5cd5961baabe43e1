"""GradientAccumulator: gradients that do not depend on who computes which micro-batch."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ... import reporting
from ...errors import InvalidArgumentError, RegroupError
from .. import replicas
from ..claims import claim
from ..world import world
from . import fixed_point, norm
from .buffers import Buffers
from .checks.checksum import Checksum
from .dealing import Dealing
from .dealt_steps import DealtSteps
from .magnitudes import Magnitudes
from .checks.inspection import Inspection
from .randomness import seed_all, seed_of
from .ranks import Alone, ranks_of
from .replicated import BUCKET_BYTES, ReplicatedTotals
from .sharded import ShardedTotals
from .checks.state_checks import StateChecks
from .checks.state_hash import StateHash, state_of
from .checks.verified import VerifiedCommits


class _Result(NamedTuple):
    """The reduction of a step."""

    magnitudes: List[float]  #: the largest gradient by parameter
    known: List[float]  #: the same, or that of earlier steps where there is none
    changed: List[bool]  #: by buffer
    told: List[float]  #: what Dealing.check takes
    sums: List[int]  #: what Inspection.disputes takes


class GradientAccumulator:
    """Accumulates the gradients of a step's micro-batches over all ranks, so that the result is the same to the bit
    whatever number of ranks there is, and whichever of them computes a micro-batch::

        gradients = GradientAccumulator(model, micro_batches=12, seed=1)
        for step in range(1000):
            for m in gradients.micro_batches(step):
                x, y = batch(step, m)                  # depends on the step and m alone
                loss_of(model(x), y).backward()        # a mean over the micro-batch
            optimizer.step()

    Each rank gets its share of the micro-batches. When the loop ends, the parameters' ``grad`` is the mean over all
    of them. A micro-batch is computed with random numbers that ``seed``, the step and its number give, and from the
    buffers at the start of the step; after it they are those of micro-batch 0. The loop may give a rank its
    micro-batches once more: in the first step, which finds the size of the gradients, and when they have grown too
    much for that of the step before.

    Each ``check_every`` steps, 0 = never, the ranks compare their state, with that of ``optimizer`` if it is given: a
    rank that differs raises SilentCorruptionError. With ``witness=n``, or True for 1, a second rank computes n of the
    micro-batches of each step too, with the same end for one whose result differs.

    ``micro_batches`` is at least the number of ranks. The model is alike on all ranks, a DistributedDataParallel or
    not; what DistributedDataParallel does in a backward pass is left out.

    What must be kept with the model is in ``state_dict``: the largest gradient of each parameter.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        micro_batches: int,
        seed: int = 0,
        group: Optional[Any] = None,
        bucket_bytes: int = BUCKET_BYTES,
        witness: Union[bool, int] = False,
        optimizer: Optional[torch.optim.Optimizer] = None,
        check_every: int = 100,
    ):
        if not isinstance(micro_batches, int) or micro_batches < 1:
            raise InvalidArgumentError(
                f"micro_batches is {micro_batches!r}: it is the number of them in a step, 1 or more"
            )
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        module = model.module if self._ddp is not None else model
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise InvalidArgumentError("the model has no parameter that requires a gradient")
        self._names, self._parameters = [n for n, _ in named], [p for _, p in named]
        claim(self._parameters, "GradientAccumulator")
        self._count, self._seed = micro_batches, seed
        if group is None and self._ddp is not None:
            group = self._ddp.process_group
        self._device = self._parameters[0].device
        self._ranks = ranks_of(group, self._device)
        self._sizes = Magnitudes(len(named), micro_batches, self._device)
        self._sharded = any(replicas.divides(type(m)) == "FSDPModule" for m in module.modules())
        if self._sharded:
            self._totals: Any = ShardedTotals(module, self._parameters, self._names, self._sizes.arrived)
        else:
            replicas.check_whole("model", model)
            arrived = self._sizes.arrived
            self._totals = ReplicatedTotals(self._parameters, self._names, arrived, bucket_bytes, micro_batches)
        self._buffers = Buffers(module)
        shapes = " ".join(f"{n} {list(p.shape)} {p.dtype}" for n, p in named)
        self._dealing = Dealing(micro_batches, f"{micro_batches} micro-batches, seed {seed}, parameters {shapes}")
        if not isinstance(witness, int) or not 0 <= witness <= micro_batches:
            raise InvalidArgumentError(
                f"witness is {witness!r}: it is how many of the {micro_batches} micro-batches of a step two ranks compute; "
                "True is one"
            )
        self._inspection = Inspection(self._ranks, self._dealing, int(witness), self._sharded) if witness else None
        if not isinstance(check_every, int) or check_every < 0:
            raise InvalidArgumentError(f"check_every is {check_every!r}: it is a number of steps, or 0 for never")
        state = functools.partial(state_of, named, list(module.named_buffers()), optimizer, self._device)
        self._checks = StateChecks(self._ranks, state, check_every, self._sharded)
        self._dealt, self._verified = DealtSteps(), VerifiedCommits()
        # Whether gradients come once in a micro-batch, on all ranks, so that they are whole then; None = not known.
        self._once: Optional[bool] = None
        self._several = False  # a pass of this step has found that they do not
        self._completed: Optional[int] = None  # the last step whose gradients were complete
        self._saved: Optional[int] = None  # the last step whose state was saved
        self._begun: Any = None  # what state_dict was when the totals were begun
        self._adding: Optional[List[int]] = None  # the shifts; None = this pass finds the magnitudes
        self._magnitudes: Optional[List[float]] = None  # of the gradients that the parameters have now
        self._current: Optional[int] = None  # the micro-batch that is computed, if it counts
        self._clock = time.perf_counter
        self._began, self._seconds = 0.0, 0.0  # of the micro-batch; of all in this pass
        self._inside = self._proved = False

    def micro_batches(self, step: int) -> Iterator[int]:
        """The numbers of the micro-batches that this rank computes in a step. All ranks call it with the same step. The
        loop must go to its end."""
        self._open(step)
        self._agree()
        if self._checks.due(step):
            self._checks.check(step, self._dealt.take)
            if self._inspection is not None and self._saved == self._completed and not self._sharded:
                self._verified.compared(self._ranks.size)
        if self._inspection is not None and self._checks.due(step + 1) and not self._sharded:
            self._verified.before_commit()
        while True:
            self._adding = self._sizes.shifts()
            todo, self._seconds = self._dealing.share(self._ranks), 0.0
            direct = self._once is True and self._ranks.direct and self._dealing.one_each(self._ranks)
            self._totals.begin_pass(direct and self._adding is not None, self._adding, self._once is True)
            inspection = self._inspection if self._adding is not None else None
            if inspection is not None:
                inspection.begin(step)
            if todo and self._adding is None and not self._proved:
                yield from self._prove(step, todo[0])
            for i, m in enumerate(todo):
                self._begin(step, m, i == len(todo) - 1, seen=inspection and inspection.watches(m))
                yield m
                self._end(m)
                if inspection is not None:
                    inspection.ended(m, self._sizes.finite())
            # Where all ranks take part in each micro-batch, some compute one that does not count.
            for m in self._dealing.fillers(self._ranks) if self._sharded else ():
                self._begin(step, m, False, counts=False)
                yield m
                self._end(m, counts=False)
            for m, watched in inspection.witnesses() if inspection is not None else ():
                self._begin(step, m, False, counts=False, seen=inspection.watch(m) if watched else None)
                yield m
                self._end(m, counts=False)
            tells = inspection.tells() if inspection is not None else []
            result = self._reduce(self._seconds / len(todo) if todo else 0.0, tells)
            if result is None:
                continue
            done = self._dealing.check(result.told)
            if inspection is not None:
                disputes = inspection.disputes(result.sums)
                for d in disputes:
                    self._begin(step, d.micro_batch, False, counts=False, seen=inspection.watch(d.micro_batch))
                    yield d.micro_batch
                    self._end(d.micro_batch, counts=False)
                    inspection.settle(d, self._sizes.finite(), step)
                if not disputes:
                    self._verified.right(inspection.agreed())
            self._install(result)
            # What a sharded model's ranks have computed before a loss, new ones do not know.
            self._dealt.add(step, reporting.generation(), done.ranks, None if self._sharded else done.again)
            break
        self._completed, self._inside = step, False
        seed_all(seed_of(self._seed, step, self._count))

    def _prove(self, step: int, micro_batch: int) -> Iterator[int]:
        """Has a micro-batch computed twice, which must give the same bits."""
        sums: List[Dict[int, Checksum]] = []
        for _ in range(2):
            sums.append(collections.defaultdict(Checksum))
            self._begin(step, micro_batch, False, counts=False, seen=lambda i, g: sums[-1][i](i, g))
            yield micro_batch
            self._end(micro_batch, counts=False)
        once, again = ({i: c.value() for i, c in s.items()} for s in sums)
        differ = [name for i, name in enumerate(self._names) if once.get(i) != again.get(i)]
        if differ:
            more = f" and of {len(differ) - 1} more" if differ[1:] else ""
            raise RegroupError(
                f"micro-batch {micro_batch} of step {step}, computed twice, has two gradients of {differ[0]}{more}: "
                "its samples must depend on the step and its number alone, random numbers come from the generators "
                "of PyTorch, Python or NumPy, and kernels be deterministic: those that are not are named with "
                "torch.use_deterministic_algorithms(True)"
            )
        self._proved = True

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scales the gradients so that their 2-norm is at most max_norm; returns what it was, NaN if one is not finite.
        torch.nn.utils.clip_grad_norm_ does the same with the whole model on each rank; of a sharded model it adds up
        floats of all ranks, so its result depends on how many there are."""
        if self._magnitudes is None:
            raise RegroupError("there is no gradient to clip: call it after the loop over the micro-batches")
        if not all(map(math.isfinite, self._magnitudes)):
            return math.nan
        gradients = [None if p.grad is None else self._totals.local(p.grad) for p in self._parameters]
        counts = [p.numel() for p in self._parameters]
        ranks = self._ranks if self._sharded else None
        return norm.clip(gradients, self._magnitudes, counts, max_norm, ranks, self._totals.counts)

    def state_hash(self) -> StateHash:
        """The hash of weights, buffers, and the state of ``optimizer`` if it was given, after the last step: the same
        for equal states, however the model is dealt to the ranks. All ranks call it between two steps. A job shows it,
        and ``regroup verify`` compares it."""
        if self._inside:
            raise RegroupError("the state has no hash within a step: call it after the loop over the micro-batches")
        found = self._checks.find(0 if self._completed is None else self._completed + 1)
        self._checks.report(found, self._dealt.take, last=True)
        return found

    def training_ended(self) -> None:
        """Is called by elastic.run when the training function has returned. One that has left a step has no hash."""
        if self._checks.reports() and not self._inside:
            self.state_hash()

    def state_dict(self) -> Dict[str, Any]:
        """What the next step needs."""
        last = None if self._sizes.last is None else dict(zip(self._names, self._sizes.last))
        self._saved = self._completed
        dealt = copy.deepcopy(self._dealt.entries)
        return {"step": self._completed, "magnitudes": last, "once": self._once, "dealt": dealt}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Loads what state_dict has returned. What was computed of the step that follows is kept, if there was one."""
        last = state["magnitudes"]
        if last is not None:
            if set(last) != set(self._names):
                raise InvalidArgumentError("the state is of other parameters than this model's")
            last = [last[n] for n in self._names]
        self._completed, self._sizes.last, self._once = state["step"], last, state.get("once")
        self._dealt.entries = copy.deepcopy(state.get("dealt", []))
        self._inside = False

    def _open(self, step: int) -> None:
        """Begins a step, or goes on with it if this rank has computed a part of it before others were lost."""
        if self._ranks.size > self._count:
            raise InvalidArgumentError(
                f"{self._ranks.size} ranks for {self._count} micro-batches: each rank needs one at least; "
                "micro_batches is the largest number of ranks that there may be, or a multiple of it"
            )
        if isinstance(self._ranks, Alone) and (dist.is_initialized() or world.mode is not None):
            raise InvalidArgumentError(
                "the accumulator was made before there was a group: make it after init_process_group, follow or init"
            )
        if self._inside and not self._dealing.changed(self._ranks):
            raise RegroupError("the loop over the micro-batches of the step before was left before its end")
        if self._completed is not None and step <= self._completed:
            raise InvalidArgumentError(
                f"step {step} comes after step {self._completed}, which is complete: numbers of steps grow"
            )
        self._totals.interrupted()
        self._dealing.partial = self._current if self._totals.partial else None
        self._magnitudes = None
        begun = (self._completed, self._sizes.last)
        if step != self._dealing.step or begun != self._begun:
            self._begun, self._sizes.found, self._several = begun, None, False
            self._dealing.begin(step)
            self._clear()
            self._buffers.begin()
        else:
            self._once = False if self._several else self._once
            self._buffers.restore()
        self._inside = True

    def _agree(self) -> None:
        """Agrees with a new generation on who computes what, and on what a pass has found: magnitudes, and gradients that
        do not come once."""
        agreement = self._dealing.agree(self._ranks)
        if agreement is None:
            return
        self._verified.changed()
        if not agreement.keeps:
            self._clear()
        if agreement.passes == 0:
            return
        found, several = [fixed_point.ABSENT] * len(self._parameters), False
        if self._sizes.found is not None and agreement.keeps:
            found, several = self._sizes.found, self._several
        most = torch.tensor([*found, several], device=self._device)
        self._ranks.start_greatest(most).wait()
        *self._sizes.found, several = most.tolist()
        if several:
            self._several, self._once = True, False

    def _clear(self) -> None:
        self._totals.clear()
        self._sizes.clear()
        self._buffers.forget()

    def _begin(self, step: int, micro_batch: int, last: bool, counts: bool = True, seen: Any = None) -> None:
        self._totals.seen = seen
        self._sizes.begin()
        self._current = micro_batch if counts else None
        if self._sharded:
            self._totals.begin(self._adding, counts)
        else:
            goes_on = counts and micro_batch == self._dealing.partial
            self._totals.begin(self._adding if counts else None, self._ranks if last and self._once else None, goes_on)
        self._ddp_syncs(False)
        self._began = self._clock()
        seed_all(seed_of(self._seed, step, micro_batch))

    def _ddp_syncs(self, does: bool) -> None:
        """Has DistributedDataParallel reduce gradients, and give all ranks the buffers of rank 0, or not."""
        if self._ddp is not None:
            self._ddp.require_backward_grad_sync = self._ddp.require_forward_param_sync = does

    def _end(self, micro_batch: int, counts: bool = True) -> None:
        self._totals.end()
        self._ddp_syncs(True)
        if counts:
            self._sizes.keep()
        if not self._sizes.any():
            raise RegroupError(f"micro-batch {micro_batch} has made no gradient: call backward() in the loop")
        self._seconds += self._clock() - self._began
        self._buffers.ended(micro_batch if counts else None)
        if counts:
            self._dealing.done(micro_batch)

    def _reduce(self, seconds: float, tells: List[int]) -> Optional[_Result]:
        """Adds up what the ranks have; None if the micro-batches must be computed again, with other shifts. seconds is
        how long this rank took for one."""
        shifts, sums, work = self._adding, torch.empty(0), None
        if shifts is not None:
            self._totals.start(self._ranks)
        row = self._sizes.row()
        # What else all must know: which buffers have changed, how fast each rank is, and what it has computed.
        more = [float(c) for c in self._buffers.changed]
        more += [seconds if r == self._ranks.rank else 0.0 for r in range(self._ranks.size)]
        more += [float(self._totals.several), *self._dealing.tell(self._ranks)]
        most = torch.cat([row, torch.tensor(more, device=self._device)])
        greatest = self._ranks.start_greatest(most)
        if shifts is not None:
            if tells:
                sums = torch.tensor(tells, device=self._ranks.device)
                work = self._ranks.start_sum(sums)
            self._totals.finish(shifts, self._count)
        greatest.wait()
        if work is not None:
            work.wait()
        values = iter(most.tolist())
        magnitudes = list(itertools.islice(values, len(row)))
        changed = [c > 0 for c in itertools.islice(values, len(self._buffers.changed))]
        times = list(itertools.islice(values, self._ranks.size))
        several, told = next(values) > 0, list(values)
        known = self._sizes.learned(magnitudes)
        assumed, self._once = self._once, not several and self._once is not False
        self._several = self._several or several
        good = shifts is not None and not (several and assumed) and self._sizes.fit(magnitudes, shifts)
        if not good:
            self._sizes.found = known
            self._clear()
            self._dealing.again()
            return None
        if not self._sharded:
            self._dealing.shares.measured(times)
        return _Result(magnitudes, known, changed, told, sums.tolist())

    def _install(self, result: _Result) -> None:
        """Gives the parameters their gradients, and the model its buffers."""
        magnitudes = result.magnitudes
        for i, p in enumerate(self._parameters):
            if magnitudes[i] == fixed_point.ABSENT:
                p.grad = None
            elif math.isfinite(magnitudes[i]):
                p.grad = self._totals.mean(i)
            else:
                p.grad = torch.full_like(p, math.nan)
        self._buffers.finish(self._ranks, result.changed)
        self._sizes.last, self._sizes.found, self._magnitudes = result.known, None, magnitudes
