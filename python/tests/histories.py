"""Random histories of a training with GradientAccumulator: members die at any moment, join and leave, and an operation
in which one dies may have ended for some of the others and not for the rest.

The ranks are processes. This one plays their network and their job: it answers each of their operations, decides who
dies, and gives a new generation the newest commit that any member has, as elastic.run does.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import random
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

import numpy
import torch

from regroup.errors import SilentCorruptionError

from . import launch

#: What a training is: makes the model and its optimizer.
Make = Callable[[], Tuple[torch.nn.Module, torch.optim.Optimizer]]


class Lost(Exception):
    """A member was lost, or the members change."""


class Dies(BaseException):
    """This rank dies here."""


#: Steps after which the ranks compare their state.
CHECK_EVERY = 4


@dataclass
class Fault:
    """A bit of a gradient, a weight or a momentum that changes in a step, or from that step on in each."""

    kind: str
    step: int
    permanent: bool
    seed: int
    done: bool = False

    def strike(self, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Is called at the start of each step."""
        dice, parameters = random.Random(self.seed), list(model.parameters())
        p = parameters[dice.randrange(len(parameters))]
        element, bit = dice.randrange(p.numel()), dice.randrange(32)
        if self.kind == "gradient":
            if not self.done:
                self.done, self.now, self.counts = True, step, 0
                p.register_hook(lambda g: self.changed(g, element, bit))
            self.now = step
        elif step == self.step or self.permanent and step > self.step:
            tensor = p.data
            if self.kind == "momentum":
                state = optimizer.state[p]
                tensor = next((state[k] for k in ("momentum_buffer", "exp_avg") if k in state), None)
            if tensor is not None:
                flip(tensor, element, bit)

    def changed(self, gradient: torch.Tensor, element: int, bit: int) -> torch.Tensor:
        if self.now < self.step or self.counts and not self.permanent:
            return gradient
        self.counts += 1
        gradient = gradient.clone()
        flip(gradient, element, bit)
        return gradient


def flip(tensor: torch.Tensor, element: int, bit: int) -> None:
    """Changes one bit of a float32."""
    bits = tensor.view(-1).view(torch.int32)
    bits[element] ^= torch.tensor(1 << bit if bit < 31 else -(1 << 31), dtype=torch.int64).to(torch.int32)


def joined(what: str, values: List[numpy.ndarray]) -> Any:
    """What an operation makes of what the ranks give."""
    return values if what == "gather" else numpy.sum(values, 0) if what == "sum" else numpy.max(values, 0)


class PipeRanks:
    """The ranks of a generation, whose operations the test answers."""

    device, direct = torch.device("cpu"), True

    def __init__(self, pipe: Any):
        self._pipe = pipe
        self.rank = self.size = self.number = 0

    def entry(self) -> int:
        return self.number

    def ask(self, what: str, value: Any = None) -> Any:
        self._pipe.send((what, value))
        kind, answer = self._pipe.recv()
        if kind == "lost":
            raise Lost
        if kind == "die":
            raise Dies
        return answer

    def start_sum(self, tensor: torch.Tensor) -> Any:
        self._all("sum", tensor)  # at once, so that members are lost within a backward pass, too
        return _Ended()

    def start_greatest(self, tensor: torch.Tensor) -> Any:
        self._all("max", tensor)
        return _Ended()

    def _all(self, what: str, tensor: torch.Tensor) -> None:
        tensor.copy_(torch.from_numpy(self.ask(what, tensor.numpy())))  # a tensor in a pipe costs a file

    def gather(self, row: torch.Tensor) -> List[torch.Tensor]:
        return [torch.from_numpy(r) for r in self.ask("gather", row.numpy())]

    def exchange(self, own: torch.Tensor, dtype: torch.dtype) -> Any:
        return PipeExchange(own, dtype, self)


class _Ended:
    def wait(self) -> None:
        pass


class PipeExchange:
    """Each rank makes the means of a part."""

    def __init__(self, own: torch.Tensor, dtype: torch.dtype, ranks: PipeRanks):
        self._own, self._ranks = own, ranks
        length = len(own) // ranks.size
        self.span = slice(ranks.rank * length, (ranks.rank + 1) * length)
        self.means = torch.empty(length, dtype=dtype)

    def start(self) -> None:
        self._sent = self._ranks.gather(self._own)  # at once, as start_sum

    def parts(self) -> List[torch.Tensor]:
        return [own[self.span] for own in self._sent]

    def share(self) -> None:
        self._whole = torch.cat(self._ranks.gather(self.means))

    def whole(self) -> torch.Tensor:
        return self._whole


def digest(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A hash of weights, buffers and the optimizer's state."""
    tensors = list(model.state_dict().values())
    for p in model.parameters():
        tensors += [v for _, v in sorted(optimizer.state[p].items()) if isinstance(v, torch.Tensor)]
    return digest_of(tensors)


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """A hash of tensors."""
    return hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest()


class Rank:
    """A process that trains, dies, and begins anew, as the test says."""

    def __init__(self, pipe: Any, trainings: Dict[str, Any]):
        self.pipe, self.trainings = pipe, trainings
        self.ranks = PipeRanks(pipe)

    def new(self, name: str, witness: int, fault: Optional[Fault] = None) -> None:
        """Begins as a new worker, on a machine that may have a fault."""
        from regroup.torch.reproducible import GradientAccumulator, accumulator

        accumulator.ranks_of = lambda group, device: self.ranks
        accumulator.reporting.generation = lambda: self.ranks.number
        self.training, self.fault = self.trainings[name], fault
        self.model, self.optimizer = self.training.make()
        how = {"witness": witness, "optimizer": self.optimizer, "check_every": CHECK_EVERY}
        self.gradients = GradientAccumulator(self.model, self.training.micro_batches, 5, bucket_bytes=4096, **how)
        dice = random.Random(os.urandom(8))
        clock = itertools.accumulate(iter(lambda: dice.choice((0.5, 1.0, 3.0)), None))
        self.gradients._clock = lambda: next(clock)  # so that shares move
        self.step, self.commit = 0, None
        self.save()

    def save(self) -> None:
        parts = self.model.state_dict(), self.optimizer.state_dict(), self.gradients.state_dict()
        self.commit = pickle.dumps((self.step, parts))

    def load(self, commit: bytes) -> None:
        self.commit = commit
        self.step, parts = pickle.loads(commit)
        for part, saved in zip((self.model, self.optimizer, self.gradients), parts):
            part.load_state_dict(saved)

    def train(self, steps: int) -> None:
        ask = self.ranks.ask
        while self.step < steps:
            if self.fault is not None:
                self.fault.strike(self.step, self.model, self.optimizer)
            for m in self.gradients.micro_batches(self.step):
                ask("computes", (self.step, m))
                self.training.loss(self.model, self.step, m).backward()
                ask("computed", (self.step, m))
            if self.training.clip:
                self.gradients.clip_grad_norm_(self.training.clip)
            self.optimizer.step()
            ask("stepped", self.step)
            self.step += 1
            self.save()
            ask("commits", self.step)

    def run(self) -> None:
        torch.set_num_threads(1)
        self.pipe.send(("started", None))
        while True:
            order, value = self.pipe.recv()
            try:
                if order == "new":
                    self.new(*value)
                    self.pipe.send(("out", (0, self.commit)))
                elif order == "enter":
                    self.ranks.number, self.ranks.rank, self.ranks.size, commit, steps = value
                    self.load(commit)
                    self.train(steps)
                    ends = digest(self.model, self.optimizer), self.gradients.state_dict()["dealt"]
                    self.pipe.send(("ends", ends))
                elif order == "end":
                    return
            except Lost:
                self.pipe.send(("out", (pickle.loads(self.commit)[0], self.commit)))
            except Dies:
                self.pipe.send(("dead", None))
            except SilentCorruptionError as e:
                self.pipe.send(("corrupt", (self.step, e.permanent)))
            except BaseException:
                self.pipe.send(("failed", traceback.format_exc()))


def start_rank(pipe: Any, module: str, env: Dict[str, str]) -> None:
    import importlib

    os.environ.update(env)
    Rank(pipe, importlib.import_module(module).TRAININGS).run()


@dataclass
class History:
    """What happened in one."""

    hashes: Set[str] = field(default_factory=set)
    deaths: int = 0
    generations: int = 0
    #: Which ranks have computed a micro-batch, by (step, micro-batch).
    computed: Dict[Tuple[int, int], List[int]] = field(default_factory=dict)
    #: The ranks of each generation.
    members: Dict[int, List[int]] = field(default_factory=dict)
    #: What the ranks that have come to the end say of who has computed what.
    dealt: List[List[Dict[str, Any]]] = field(default_factory=list)
    #: How often the only result of a micro-batch was lost with a rank that died.
    void: Dict[Tuple[int, int], int] = field(default_factory=dict)
    #: Steps of which all were lost who knew that they had been dealt.
    forgotten: Set[int] = field(default_factory=set)


class Cluster:
    """Ranks, and what they do in histories."""

    def __init__(self, module: str, size: int):
        self.pipes, self.processes = [], []
        for _ in range(size):
            ours, theirs = launch.server.Pipe()
            p = launch.server.Process(target=start_rank, args=(theirs, module, launch.environment()))
            p.start()
            self.pipes.append(ours)
            self.processes.append(p)
        for pipe in self.pipes:
            assert pipe.recv()[0] == "started"

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(("end", None))
        for p in self.processes:
            p.join()

    def faulty(
        self, name: str, steps: int, rank: int, fault: Fault, witness: int = 1
    ) -> Tuple[Optional[int], List[Tuple[int, bool]], Set]:
        """Three ranks, of which one has a fault: the step in which it was found out, who else was, and the hashes of
        the ranks that have come to the end."""
        for r in range(3):
            self.pipes[r].send(("new", (name, witness, fault if r == rank else None)))
        commits = [self.pipes[r].recv()[1] for r in range(3)]
        asked: Dict[int, Any] = {}
        gone: Dict[int, Any] = {}
        for r in range(3):
            self.pipes[r].send(("enter", (1, r, 3, commits[0][1], steps)))
        while len(gone) < 3:
            for r in range(3):
                if r in asked or r in gone:
                    continue
                what, value = self.pipes[r].recv()
                if what == "failed":
                    raise AssertionError(f"rank {r}, {fault}: {value}")
                if what in ("corrupt", "ends", "out"):
                    gone[r] = what, value
                elif what in ("computes", "computed", "stepped", "commits"):
                    self.pipes[r].send(("go", None))
                else:
                    asked[r] = what, value
            if len(asked) == 3:
                values = [asked[r][1] for r in range(3)]
                what = asked[0][0]
                result = joined(what, values)
            for r in list(asked):
                if len(asked) == 3 or gone:
                    self.pipes[r].send(("go", result) if len(asked) == 3 and not gone else ("lost", None))
            if len(asked) == 3 or gone:
                asked.clear()
        found = {r: value for r, (what, value) in gone.items() if what == "corrupt"}
        hashes = {value[0] for what, value in gone.values() if what == "ends"}
        others = [value for r, value in found.items() if r != rank]
        return (found[rank][0] if rank in found else None), others, hashes

    def run(self, name: str, steps: int, seed: Optional[int], first: int = 1, witness: bool = False) -> History:
        """One history; without a seed one without an event, of so many ranks."""
        return _Course(self, name, steps, seed, first, witness).run()


class _Course:
    def __init__(self, cluster: Cluster, name: str, steps: int, seed: Optional[int], first: int, witness: bool):
        self.pipes, self.name, self.steps, self.witness = cluster.pipes, name, steps, witness
        self.dice = random.Random(seed)
        self.quiet = seed is None
        self.members: List[int] = list(range(first if self.quiet else self.dice.randint(1, len(self.pipes))))
        self.chance = 0.0 if self.quiet else self.dice.choice((0.003, 0.01, 0.03))
        self.history = History()
        self.has: Dict[int, Set[Tuple[int, int]]] = {}  # by rank: what it has computed of the last step
        self.knows: Dict[int, int] = {}  # by rank: the last step of which it has a share
        self.unsure: List[Tuple[int, int]] = []  # what those had computed who have died in this generation

    def run(self) -> History:
        for pipe in self.pipes:
            pipe.send(("new", (self.name, self.witness)))
        commits = {i: pipe.recv()[1] for i, pipe in enumerate(self.pipes)}
        self.has = {i: set() for i in commits}
        known = {i: commits[i] for i in self.members}
        while True:
            newest = max(known[i][0] for i in self.members if i in known)
            commit = next(c for i in self.members if i in known for n, c in [known[i]] if n == newest)
            self.history.generations += 1
            self.history.members[self.history.generations] = list(self.members)
            for i, r in enumerate(self.members):
                order = (self.history.generations, i, len(self.members), commit, self.steps)
                self.pipes[r].send(("enter", order))
            known = self._generation()
            if not known:
                return self.history
            self._change()

    def _change(self) -> None:
        """Has ranks join, and others leave as planned; those who have died begin anew."""
        if self.quiet:
            return
        out = [r for r in range(len(self.pipes)) if r not in self.members]
        self.dice.shuffle(out)
        joins = out[: self.dice.choice((0, 0, 1, 1, 2, len(out)))]
        for r in joins:
            self.pipes[r].send(("new", (self.name, self.witness)))
            assert self.pipes[r].recv()[0] == "out"
            self.has[r] = set()
        self.members += joins
        self.dice.shuffle(self.members)

    def _dies(self) -> bool:
        return len(self.alive) > 1 and self.dice.random() < self.chance

    def _generation(self) -> Dict[int, Tuple[int, bytes]]:
        """Answers the members of a generation until it is over; what they have committed, nothing if the training has
        ended."""
        self.alive: List[int] = list(self.members)
        asked: Dict[int, Tuple[str, Any]] = {}
        left: Dict[int, Tuple[int, bytes]] = {}
        ended: Set[int] = set()
        while len(left) + len(ended) < len(self.alive):
            for r in list(self.alive):
                if r in asked or r in left or r in ended:
                    continue
                what, value = self.pipes[r].recv()
                if what == "failed":
                    raise AssertionError(f"rank {r}: {value}")
                if what == "out":
                    left[r] = value
                elif what == "ends":
                    ended.add(r)
                    self.history.hashes.add(value[0])
                    self.history.dealt.append(value[1])
                elif self._dies():
                    self._kill(r)
                elif what in ("computes", "computed", "stepped"):
                    if what == "computes":
                        self.knows[r] = value[0]
                    elif what == "computed":
                        self.history.computed.setdefault(value, []).append(r)
                        self.has[r] = {one for one in self.has[r] if one[0] == value[0]} | {value}
                    self.pipes[r].send(("go", None))
                else:
                    asked[r] = what, value
            if any(r not in asked and r not in left and r not in ended for r in self.alive):
                continue
            if not asked:
                continue
            for r, answer in self._answers(asked).items():
                self.pipes[r].send(answer)
            asked.clear()
        self.members = [r for r in self.alive if r in left]
        complete = max((step for step, _ in left.values()), default=self.steps)
        for one in self.unsure:
            if one[0] >= complete:
                self.history.void[one] = self.history.void.get(one, 0) + 1
        if complete not in [self.knows.get(r) for r in left]:
            self.history.forgotten.add(complete)
        self.unsure.clear()
        return left

    def _kill(self, r: int) -> None:
        self.pipes[r].send(("die", None))
        assert self.pipes[r].recv()[0] == "dead"
        self.alive.remove(r)
        self.history.deaths += 1
        self.unsure += self.has[r]
        self.has[r] = set()
        self.knows.pop(r, None)

    def _answers(self, asked: Dict[int, Tuple[str, Any]]) -> Dict[int, Tuple[str, Any]]:
        """What those are answered who wait in an operation."""
        if set(asked) != set(self.members) or len({what for what, _ in asked.values()}) != 1:
            return {r: ("lost", None) for r in asked}  # not all are in it, and one of those who are missing is dead
        values = [asked[r][1] for r in self.members]
        (what,) = {what for what, _ in asked.values()}
        if what == "commits":
            changes = not self.quiet and self.dice.random() < 0.05  # as planned, after a commit
            return {r: ("lost" if changes else "go", None) for r in asked}
        answers = {r: ("go", joined(what, values)) for r in asked}
        if self._dies():  # when the operation has ended for some
            victim = self.dice.choice(sorted(asked))
            self._kill(victim)
            answers = {r: a if self.dice.random() < 0.5 else ("lost", None) for r, a in answers.items() if r != victim}
        return answers
