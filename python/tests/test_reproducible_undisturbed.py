"""Many steps of ranks of which none is at fault: none is accused, whatever the shares are, and whichever join or die.

The ranks are objects of this process, which plays the network between them; a gradient is a few numbers.
"""

import collections
import itertools
import os
import random
import unittest

import torch

from regroup.torch.reproducible.checks.inspection import Inspection
from regroup.torch.reproducible.checks.state_checks import StateChecks
from regroup.torch.reproducible.dealing import Dealing
from regroup.torch.reproducible.randomness import mix

#: Steps that are made.
STEPS = int(os.environ.get("STEPS", "1000000" if os.environ.get("EVERY_CASE") else "10000"))

MICRO_BATCHES, CHECK_EVERY = 12, 50

#: Micro-batches of a step that two ranks compute.
WITNESSED = 2


class Waits(Exception):
    """The others have not said their part yet."""


class Network:
    """What the ranks of a generation say to each other."""

    def __init__(self, size, number):
        self.size, self.number = size, number
        self.rows = {}

    def gather_all(self, calls):
        """Has all ranks make a call that gathers once: each says its part, and when all have done so each gets all."""
        self.rows.clear()
        for call in calls:
            try:
                call()
            except Waits:
                pass
        assert len(self.rows) == self.size
        return [call() for call in calls]


class Rank:
    """A member of a generation, as reproducible.ranks has them."""

    device = torch.device("cpu")

    def __init__(self):
        self.dealing = Dealing(MICRO_BATCHES, "")
        self.inspection = Inspection(self, self.dealing, WITNESSED)
        self.checks = StateChecks(self, lambda: self.state, CHECK_EVERY, sharded=False)

    def enter(self, network, rank):
        self.network, self.rank, self.size = network, rank, network.size

    def entry(self):
        return self.network.number

    def gather(self, row):
        self.network.rows.setdefault(self.rank, row)
        if len(self.network.rows) < self.size:
            raise Waits
        return [self.network.rows[r] for r in range(self.size)]


#: What gradients are made of; a rank may have one anywhere in its memory.
POOL = [torch.randn(20, generator=torch.Generator().manual_seed(i)) for i in range(61)]
PLACES = [torch.empty(30) for _ in range(7)]


def gradients(step, micro_batch, dice):
    """Those of two parameters, in the order and at the place that a rank happens to have them."""
    values = POOL[mix(step * MICRO_BATCHES + micro_batch) % len(POOL)]
    at = dice.randrange(10)
    copy = dice.choice(PLACES)[at : at + 20].copy_(values)
    parts = [(0, copy[:7]), (1, copy[7:])]
    return parts[:: dice.choice((1, -1))]


class Undisturbed(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.dice, self.numbers = random.Random(11), itertools.count()
        self.ranks, self.wrong, self.breaks = [], None, None
        self.everywhere = self.losses = 0
        #: By the number of ranks: who was the witness of whom, and how many steps there were.
        self.duties, self.steps = collections.defaultdict(set), collections.Counter()

    def begin_generation(self):
        """Some leave, others come, and the places of all change."""
        self.dice.shuffle(self.ranks)
        size = self.dice.randint(2, 6)
        kept = self.ranks[: self.dice.randint(0 if not self.ranks else 1, size)]
        self.ranks = kept + [Rank() for _ in range(size - len(kept))]
        network = Network(size, next(self.numbers))
        for r, rank in enumerate(self.ranks):
            rank.enter(network, r)
        self.speeds = [self.dice.uniform(0.3, 3.0) for _ in self.ranks]
        return network

    def agree(self, network, step):
        for rank in self.ranks:
            if rank.dealing.step != step:
                rank.dealing.begin(step)
        network.gather_all([lambda r=r: r.dealing.agree(r) for r in self.ranks])

    def compute(self, rank, step, micro_batch, takes):
        """One micro-batch, in which rarely a gradient is too large wherever it is computed."""
        for number, gradient in gradients(step, micro_batch, self.dice) if takes is not None else ():
            takes(number, gradient + 1 if rank is self.wrong else gradient)
        return mix(step) % 997 != 0 or micro_batch != mix(step) % MICRO_BATCHES

    def step(self, network, step):
        shares = [rank.dealing.share(rank) for rank in self.ranks]
        self.steps[len(shares)] += 1
        for rank, share in zip(self.ranks, shares):
            inspection = rank.inspection
            inspection.begin(step)
            for m in share:
                finite = self.compute(rank, step, m, inspection.watches(m))
                rank.dealing.done(m)
                inspection.ended(m, finite)
            for m, _ in inspection.witnesses():
                self.compute(rank, step, m, inspection.watch(m))
                (owner,) = (r for r, share in enumerate(shares) if m in share)
                self.duties[len(shares)].add((owner, rank.rank))
        told = [max(said) for said in zip(*(rank.dealing.tell(rank) for rank in self.ranks))]
        sums = [sum(said) for said in zip(*(rank.inspection.tells() for rank in self.ranks))]
        for rank in self.ranks:
            rank.dealing.check(told)
        disputes = [rank.inspection.disputes(sums) for rank in self.ranks]
        self.assertEqual(1, len({tuple(d.micro_batch for d in found) for found in disputes}), f"step {step}")
        for same in zip(*disputes):
            self.assertEqual(0, mix(step) % 997, f"step {step}: {same[0]}")
            self.everywhere += 1
            for rank, dispute in zip(self.ranks, same):
                self.compute(rank, step, dispute.micro_batch, rank.inspection.watch(dispute.micro_batch))
            network.gather_all([lambda r=r, d=d: r.inspection.settle(d, False, step) for r, d in zip(self.ranks, same)])
        times = [s * self.dice.uniform(0.8, 1.2) for s in self.speeds]
        for rank in self.ranks:
            rank.dealing.shares.measured(times)

    def make(self, steps):
        network = self.begin_generation()
        for step in range(steps):
            for rank in self.ranks:
                rank.dealing.begin(step)
            if step % 300 == 0 and step:
                if self.dice.random() < 0.5:  # in the middle of a step
                    self.losses += 1
                    for rank in self.ranks:
                        for m in rank.dealing.share(rank)[: self.dice.randrange(4)]:
                            rank.dealing.done(m)
                network = self.begin_generation()
            if self.ranks[0].dealing.changed(self.ranks[0]):
                self.agree(network, step)
            elif step % CHECK_EVERY == 0:
                state = [("weight", POOL[step % len(POOL)]), ("weight/momentum", POOL[step % 7])]
                for rank in self.ranks:
                    rank.state = [(name, t.clone()) for name, t in state]
                network.gather_all([lambda r=r: r.checks.find(step) for r in self.ranks])
            if step == self.breaks:
                self.wrong = self.ranks[0]
            self.step(network, step)

    def test_one_that_is_at_fault(self):
        """It would be seen here."""
        self.breaks = 1000
        with self.assertRaisesRegex(AssertionError, "step 10[0-9]*: Dispute"):
            self.make(2000)

    def test_none_is_accused(self):
        self.make(STEPS)
        times = f"{next(self.numbers)} generations, {self.losses} of them begun within a step"
        print(f"{STEPS} steps, {times}, {self.everywhere} disputes over what is not finite: none accused", flush=True)
        self.assertGreater(self.everywhere, 0)
        for size, steps in self.steps.items():
            pairs = set(itertools.permutations(range(size), 2))
            self.assertLessEqual(self.duties[size], pairs)
            if steps > 1000:  # each has been the witness of each
                self.assertEqual(self.duties[size], pairs)


if __name__ == "__main__":
    unittest.main()
