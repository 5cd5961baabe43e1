"""Random histories of a training with GradientAccumulator on real groups: processes end anywhere, and the others go on
with what they have computed.

This process is the job: it says who is in a generation, keeps the commits of sharded models, as their copies on other
workers would be, and starts another process for each that has died.
"""

import collections
import multiprocessing.connection
import operator
import os
import pickle
import random
import unittest

import torch
import torch.distributed as dist

from . import group_worker, launch
from .histories import digest_of
from .trainings import TRAININGS

#: Random histories of each kind of group.
HISTORIES = int(os.environ.get("HISTORIES", "200" if os.environ.get("EVERY_CASE") else "6"))

STEPS = 8

#: Seconds in which the others hear of a death. Gloo forgets to wake those who wait for the rest of a message; as in a
#: real job, a process that hangs is killed.
NOTICE = 10.0


def joined(parts):
    """The whole state, of all ranks' parts of it."""
    weights = []
    for of_all in zip(*(weights for weights, _, _ in parts)):
        state = of_all[0][1]
        whole = {k: torch.cat([s[k] for _, s in of_all]) if v.dim() else v for k, v in state.items()}
        weights.append((torch.cat([value for value, _ in of_all]), whole))
    return (weights, *parts[0][1:])


Kind = collections.namedtuple("Kind", "training backend sharded")


class Job:
    """The processes, and what they do in a history."""

    def __init__(self, size):
        self.number = self.deaths = self.stuck = self.again = 0
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.workers = {}  # process by pipe
        for _ in range(size):
            self.start()

    def start(self):
        ours, theirs = launch.server.Pipe()
        self.workers[ours] = launch.server.Process(
            target=group_worker.start_worker, args=(theirs, self.store.port, launch.environment())
        )
        self.workers[ours].start()
        theirs.close()

    def close(self):
        for pipe, process in self.workers.items():
            process.kill()
            process.join()
            pipe.close()

    def run(self, kind, seed, world=0):
        """One history; with a world one of so many ranks without an event. Returns the hashes of the states at its
        end."""
        dice, self.kind = random.Random(seed), kind
        self.computed, self.lost = collections.Counter(), collections.Counter()  # how often each micro-batch was
        self.has = collections.defaultdict(set)  # what workers have computed
        chance = 0.0 if world else dice.choice((0.001, 0.002, 0.004)) * (1 if kind.sharded else 4)
        commits, members = {}, []
        while True:
            step, commit = max(commits.values(), key=operator.itemgetter(0), default=(0, None))
            if step == STEPS:
                break
            others = [pipe for pipe in self.workers if pipe not in members]
            dice.shuffle(others)
            joins = others[: world or dice.randint(not members, len(others))]
            members = [(pipe, pipe in joins) for pipe in members + joins]
            dice.shuffle(members)
            until = STEPS if world or dice.random() < 0.5 else min(STEPS, step + dice.randint(1, 4))
            commits = self.generation(members, dice, chance, (step, commit), until)
            step = min(at for at, _ in commits.values())
            members = [pipe for pipe, _ in members if pipe in self.workers]
            if step == until and dice.random() < 0.5:  # some leave as planned
                members = dice.sample(members, dice.randint(1, len(members)))
        for one in self.computed if not kind.sharded else ():
            if one[0] > 1:  # the first steps find how large gradients are
                assert self.computed[one] == 1 + self.lost[one], f"history {seed}: {one}, {self.computed[one]} times"
        self.again += sum(n for one, n in self.lost.items() if one[0] > 1)
        return {hash_of(parts) for at, parts in commits.values() if at == STEPS}

    def generation(self, members, dice, chance, commit, until):
        """Has members train until a step, or until one dies; returns their newest commits, by who has them."""
        self.number += 1
        sparing = dice.randrange(len(members))  # one lives
        for rank, (pipe, new) in enumerate(members):
            order = (self.kind, self.number, rank, len(members), chance * (rank != sparing), dice.random(), new)
            pipe.send((*order, (commit[0], pickle.dumps(commit[1]) if commit[1] else None), until))
        live, waits, lost, out, ran = [pipe for pipe, _ in members], [], [], [], []
        begun, parts = set(), collections.defaultdict(dict)
        while len(out) < len(live):
            busy = [pipe for pipe in live if pipe not in out and pipe not in waits]
            hangs = len(live) < len(members) and begun.issuperset(live)
            heard = multiprocessing.connection.wait(busy, NOTICE if hangs else launch.PATIENCE)
            if not heard and hangs:
                self.stuck += len(busy)
                for pipe in busy:
                    self.workers[pipe].kill()
                continue
            assert heard, f"generation {self.number} of {len(members)}: {len(waits)} wait, {lost}"
            for pipe in heard:
                try:
                    what, value = pipe.recv()
                except EOFError:
                    self.workers.pop(pipe).join()
                    live.remove(pipe)
                    self.deaths += 1
                    self.start()
                    continue
                assert what != "failed", value
                if what == "begins":
                    begun.add(pipe)
                elif what == "computed":
                    ran.append((value, pipe))
                elif what == "commits":
                    parts[value[0]][pipe] = pickle.loads(value[1])
                elif what == "lost":
                    lost.append(value)
                else:
                    (waits if what == "waits" else out).append(pipe)
            if waits and len(waits) + len(out) == len(live):
                for pipe in waits:
                    pipe.send(None)
                waits = []
        assert not lost or len(live) < len(members), f"all live, and say: {lost}"
        return self.kept(members, live, commit, parts, ran)

    def kept(self, members, live, commit, parts, ran):
        """What is left of a generation, by worker: the newest commit of each, or of the whole of a sharded model."""
        sharded = self.kind.sharded
        if sharded:
            whole = [step for step, of in parts.items() if len(of) == len(members)]
            newest = (max(whole), joined([parts[max(whole)][p] for p, _ in members])) if whole else commit
            commits = {None: newest}
        else:
            commits = {None: commit} if not live else {}  # as from a checkpoint, if no one is left
            for p in live:
                own = [(step, of[p]) for step, of in parts.items() if p in of]
                commits[p] = max(own, key=operator.itemgetter(0), default=commit)
        complete = max(step for step, _ in commits.values())
        for one, pipe in ran:
            assert commit[0] <= one[0], f"{one} in a generation that began at step {commit[0]}"
            assert one[0] <= complete + 1 or not live, f"{one}, and goes on at step {complete}"
            self.computed[one] += 1
            self.has[pipe].add(one)
        for pipe in [p for p, _ in members if sharded or p not in live]:
            self.lost.update(one for one in self.has.pop(pipe, ()) if one[0] >= complete)
        count = TRAININGS[self.kind.training].micro_batches
        for step in range(max(2, commit[0]), complete) if sharded else ():  # all ranks take part in each micro-batch
            mine = [m for (s, m), _ in ran if s == step]
            assert set(mine) == set(range(count)), (step, mine)
            assert len(mine) == -(-count // len(members)) * len(members), (step, mine)
        return commits


def hash_of(state):
    weights, buffers, _ = state
    return digest_of([t for value, of in weights for t in (value, *(of[k] for k in sorted(of)))] + buffers)


class Groups(unittest.TestCase):
    """Whatever dies, joins and leaves, the weights are those of one worker alone, and nothing is computed again but
    what the dead have taken with them."""

    def check(self, kind, alike=None):
        job = Job(4)
        self.addCleanup(job.close)
        alone = job.run(alike or kind, 0, 1)
        self.assertEqual(1, len(alone))
        for world in range(2, 5):
            self.assertEqual(alone, job.run(kind, 0, world), f"{world} ranks")
        seed = 0
        while seed < HISTORIES or not job.again:  # a few may have lost nothing
            self.assertEqual(alone, job.run(kind, seed), f"history {seed}")
            seed += 1
            if seed % 100 == 0 or seed >= HISTORIES:
                text = f"{job.number} generations, {job.deaths} deaths, {job.stuck} of them of a hang"
                print(f"{kind}: {seed} histories, {text}, {job.again} micro-batches computed again", flush=True)

    def test_gloo(self):
        self.check(Kind("convolutional", "gloo", False))

    def test_gloo_with_one_micro_batch_for_each(self):
        """As long as nobody is lost, gradients are not made integers before they are sent."""
        self.check(Kind("convolutional of 4", "gloo", False))

    def test_engine(self):
        self.check(Kind("convolutional", "engine", False))

    def test_fully_shard(self):
        """Dealt to the ranks or not: the bits are the same."""
        self.check(Kind("characters", "gloo", True), Kind("characters", "gloo", False))


if __name__ == "__main__":
    unittest.main()
