"""ElasticSampler: each sample of an epoch once, over random worlds, losses and resizes; the ranks
of a world are played here."""

import json
import random
import unittest
from collections import Counter

from regroup.errors import DivergedError
from regroup.membership import Membership
from regroup.torch.elastic import ElasticSampler
from regroup.torch.world import world


def play(rank, size):
    """This process is now this rank."""
    world.membership = Membership(generation=1, rank=rank, size=size)


def members(samples, size, state=None, **options):
    """The samplers of a world, from a state."""
    comm = []
    for r in range(size):
        play(r, size)
        s = ElasticSampler(range(samples), **options)
        if state is not None:
            s.load_state_dict(state)
        comm.append(s)
    return comm


class Epoch:
    """One world that trains a part of an epoch."""

    def __init__(self, samples, size, batch, state=None, **options):
        self.size, self.batch = size, batch
        self.samplers = members(samples, size, state, **options)
        self.lists = []
        for r, s in enumerate(self.samplers):
            play(r, size)
            self.lists.append(list(s))
            assert len(s) == len(self.lists[-1])

    def steps(self):
        """Steps that each rank makes: they must be equally many."""
        counts = {-(-len(indices) // self.batch) for indices in self.lists}
        assert len(counts) == 1, f"ranks make {counts} steps"
        return counts.pop()

    def step(self, k):
        """Makes a step; returns the samples that count."""
        taken, weight, share = [], 0.0, []
        for r, s in enumerate(self.samplers):
            play(r, self.size)
            mine = self.lists[r][k * self.batch : (k + 1) * self.batch]
            w = s.weight()
            share.append((w, mine))
            s.record_batch(k, self.batch)
            taken += mine if w > 0 else []
            weight += w
        places = {s.processed_num for s in self.samplers}
        assert len(places) == 1, f"ranks are at {places}"
        # Mean gradients are averaged over the ranks: each sample must weigh the same.
        per_sample = {round(w / len(mine), 9) for w, mine in share if w > 0}
        assert len(per_sample) == 1, f"samples weigh {per_sample}"
        assert abs(weight - self.size) < 1e-9, f"the weights add up to {weight} of {self.size}"
        return taken


class Sampler(unittest.TestCase):
    def setUp(self):
        play(0, 1)

    def test_every_sample_once(self):
        random.seed(1)
        for trial in range(300):
            samples = random.randint(1, 60)
            batch = random.randint(1, 7)
            shuffle = random.random() < 0.7
            state, seen = {"epoch": trial, "processed_num": 0}, Counter()
            worlds = []
            while state["processed_num"] < samples:
                size = random.randint(1, 6)
                epoch = Epoch(
                    samples, size, batch, state, shuffle=shuffle, seed=trial, batch_size=batch
                )
                steps = epoch.steps()
                stop = random.randint(1, steps) if random.random() < 0.5 else steps
                worlds.append((size, stop, steps))
                for k in range(stop):
                    taken = epoch.step(k)
                    if random.random() < 0.15:
                        break  # lost before the commit: the next world goes on from the last one
                    seen.update(taken)
                    state = epoch.samplers[-1].state_dict()
            self.assertEqual(
                Counter({i: 1 for i in range(samples)}),
                seen,
                f"{samples} samples, batches of {batch}, worlds {worlds}",
            )

    def test_padding_counts_for_nothing(self):
        # 9 samples, 2 ranks, batches of 4: the last step has one sample, rank 1 has company in it.
        epoch = Epoch(9, 2, 4, batch_size=4, shuffle=False)
        self.assertEqual([[0, 2, 4, 6, 8], [1, 3, 5, 7, 8]], epoch.lists)
        self.assertEqual([0, 2, 4, 6, 1, 3, 5, 7], epoch.step(0))
        self.assertEqual([8], epoch.step(1))
        # 7 samples, batches of 2: nobody needs company, and the last batches have 2 and 1.
        self.assertEqual(
            [[0, 2, 4, 6], [1, 3, 5]], Epoch(7, 2, 2, batch_size=2, shuffle=False).lists
        )

    def test_orders(self):
        play(0, 1)
        a = list(ElasticSampler(range(50), seed=0))
        self.assertEqual(sorted(a), list(range(50)))
        self.assertNotEqual(a, list(range(50)))
        self.assertEqual(a, list(ElasticSampler(range(50), seed=0)))
        s = ElasticSampler(range(50), seed=0)
        s.set_epoch(1)
        t = ElasticSampler(range(50), seed=1)
        self.assertNotEqual(list(s), list(t), "seed 0, epoch 1 is seed 1, epoch 0")

    def test_set_epoch(self):
        s = ElasticSampler(range(10), shuffle=False)
        list(s)
        s.record_batch(0, 4)
        s.set_epoch(0)  # at the begin of a resumed epoch: it stays where it is
        self.assertEqual(4, s.processed_num)
        self.assertEqual([4, 5, 6, 7, 8, 9], list(s))
        s.set_epoch(1)
        self.assertEqual(list(range(10)), list(s))

    def test_a_finished_epoch_stays_finished(self):
        """Who comes back to its end has nothing to train on, and does not begin the next."""
        s = ElasticSampler(range(10), shuffle=False)
        for k, _ in enumerate(range(0, 10, 4)):
            s.record_batch(k, 4)
        self.assertEqual(10, s.processed_num)
        self.assertEqual(list(range(10)), list(s), "again, without a restore: the same, as in Horovod")
        s.load_state_dict(s.state_dict())
        self.assertEqual(([], 0), (list(s), len(s)))
        self.assertEqual((0, 10), (s.epoch, s.processed_num))
        s.set_epoch(0)
        self.assertEqual([], list(s))
        s.set_epoch(1)
        self.assertEqual((0, 10), (s.processed_num, len(list(s))))

    def test_unequal_progress_is_united(self):
        """Ranks with batches of their own sizes, some of which stop early, some of which record
        single samples."""
        random.seed(2)
        for trial in range(300):
            samples, seen = random.randint(1, 80), Counter()
            state, worlds = {"epoch": trial, "processed_num": 0}, []
            while state["processed_num"] < samples:
                size = random.randint(1, 5)
                ranks = members(samples, size, state, seed=trial, shuffle=trial % 3 > 0)
                shares = [s.indices[: s._own] for s in ranks]
                self.assertEqual(
                    sorted(i for share in shares for i in share),
                    sorted(ranks[0].remaining_indices),
                )
                taken = []
                for r, s in enumerate(ranks):
                    play(r, size)
                    batch, n = random.randint(1, 7), random.randint(0, 5)
                    if random.random() < 0.3:
                        some = random.sample(shares[r], random.randint(0, len(shares[r])))
                        s.record_indices(some)
                        s.record_indices(some)  # a sample counts once
                        taken += some
                    else:
                        for k in range(n):
                            self.assertEqual(shares[r][k * batch : (k + 1) * batch], s.get_indices(k, batch))
                            s.record_batch(k, batch)
                        taken += shares[r][: n * batch]
                worlds.append((size, len(taken)))
                if random.random() < 0.2:
                    continue  # lost before the commit
                output = [json.loads(json.dumps(s.progress())) for s in ranks]
                for s in ranks:
                    s.merge(output)
                states = [json.loads(json.dumps(s.state_dict())) for s in ranks]
                self.assertEqual([states[0]] * size, states, "the ranks differ in what they commit")
                seen.update(taken)
                state = states[0]
                self.assertEqual(sum(seen.values()), state["processed_num"])
                self.assertEqual(set(seen), ranks[0].processed_indices)
            self.assertEqual(Counter(range(samples)), seen, f"{samples} samples, worlds {worlds}")

    def test_ranks_in_different_epochs(self):
        a, b = members(10, 2)
        b.set_epoch(1)
        with self.assertRaisesRegex(DivergedError, "rank 1 is in epoch 1"):
            a.merge([a.progress(), b.progress()])

    def test_iterating_again_goes_on(self):
        s = ElasticSampler(range(10), shuffle=False)
        iterator = iter(s)
        self.assertEqual([0, 1], [next(iterator), next(iterator)])
        s.record_batch(0, 2)
        self.assertEqual([2, 3, 4, 5, 6, 7, 8, 9], list(s))
        self.assertEqual(list(range(10)), s.remaining_indices, "that of the pass, as in Horovod")
        s.reset()
        self.assertEqual([2, 3, 4], s.remaining_indices[:3])

    def test_a_large_data_set_costs_nothing(self):
        play(3, 4)
        s = ElasticSampler(range(10**12))
        iterator = iter(s)
        first = [next(iterator) for _ in range(5)]
        self.assertEqual(5, len(set(first)))
        self.assertTrue(all(0 <= i < 10**12 for i in first))

    def test_no_samples(self):
        s = ElasticSampler([])
        self.assertEqual([], list(s))
        self.assertEqual(1.0, s.weight())
        s.record_batch(0, 4)

    def test_mistakes(self):
        s = ElasticSampler(range(10))
        with self.assertRaises(ValueError):
            s.record_batch(0, 0)


if __name__ == "__main__":
    unittest.main()
