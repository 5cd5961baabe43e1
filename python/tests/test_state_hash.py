"""The hash of a training's state, and what the ranks do when theirs differ."""

import itertools
import os
import random
import threading
import unittest
from unittest import mock

import torch

from regroup.errors import InvalidArgumentError, RegroupError, SilentCorruptionError
from regroup.torch.reproducible import GradientAccumulator
from regroup.torch.reproducible.checks import state_checks
from regroup.torch.reproducible.checks.checksum import checksum
from regroup.torch.reproducible.checks.state_checks import StateChecks
from regroup.torch.reproducible.checks.state_hash import StateHash, hash_state, state_of
from regroup.torch.reproducible.dealt_steps import MOST, DealtSteps
from regroup.torch.reproducible.ranks import Alone

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64)


def tensor(count, kind, seed=0):
    return (torch.randn(count, generator=torch.Generator().manual_seed(seed)) * 100).to(kind)


class Checksums(unittest.TestCase):
    def test_that_of_the_whole_is_the_sum_of_the_parts(self):
        dice = random.Random(1)
        for count, kind in itertools.product((0, 1, 3, 4095, 4096, 4097, 20000), TYPES):
            whole = tensor(count, kind)
            cuts = sorted(dice.choices(range(count + 1), k=3))
            parts = [(a, whole[a:b]) for a, b in zip([0, *cuts], [*cuts, count])]
            # Of memory of their own, and of a view at an address that is no multiple of eight.
            for given in parts, [(a, part.clone()) for a, part in parts]:
                total = sum(int(checksum(part, a)) for a, part in given)
                self.assertEqual(0, (total - int(checksum(whole))) % (1 << 64), (count, kind, cuts))

    def test_each_bit_is_in_it(self):
        dice = random.Random(2)
        for kind in torch.float32, torch.bfloat16, torch.float64:
            whole = tensor(9001, kind)
            before, bits = int(checksum(whole)), whole.view(torch.uint8)
            for _ in range(300):
                place, bit = dice.randrange(len(bits)), 1 << dice.randrange(8)
                bits[place] ^= bit
                self.assertNotEqual(before, int(checksum(whole)))
                bits[place] ^= bit
        self.assertEqual(before, int(checksum(whole)))

    def test_blocks_that_change_places_are_seen(self):
        whole = tensor(40000, torch.float32)
        moved = torch.cat([whole[20000:], whole[:20000]])
        self.assertNotEqual(int(checksum(whole)), int(checksum(moved)))


def training(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def named(model, optimizer):
    return state_of(model.named_parameters(), model.named_buffers(), optimizer, torch.device("cpu"))


class Hashes(unittest.TestCase):
    def test_all_that_is_kept_is_in_it(self):
        model, optimizer = training()
        one = hash_state(7, named(model, optimizer), Alone(), False)
        self.assertEqual(one, hash_state(7, named(*training()), Alone(), False))
        self.assertEqual((7, 32), (one.step, len(one.hash)))
        for name, content in list(named(model, optimizer)):
            before = content.detach().clone()
            with torch.no_grad():
                content.view(-1)[0] += 1
            other = hash_state(7, named(model, optimizer), Alone(), False)
            self.assertNotEqual(one.hash, other.hash, name)
            self.assertEqual({name}, {n for n in one.tensors if one.tensors[n] != other.tensors[n]})
            with torch.no_grad():
                content.copy_(before)
        self.assertIn("0.weight/exp_avg_sq", one.tensors)
        self.assertIn("1.running_mean", one.tensors)

    def test_a_large_model_has_groups(self):
        tensors = {f"layers.{i}.{j}.weight": f"{i * 7 + j:016x}" for i in range(40) for j in range(7)}
        tensors["head"] = "0" * 16
        one = StateHash(1, "h", tensors).grouped()
        self.assertEqual({"head", *(f"layers.{i}.*" for i in range(40))}, set(one))
        tensors["layers.3.2.weight"] = "f" * 16
        other = StateHash(1, "h", tensors).grouped()
        self.assertEqual({"layers.3.*"}, {name for name in one if one[name] != other[name]})
        flat = StateHash(1, "h", {f"w{i}": "0" * 16 for i in range(1000)}).grouped()
        self.assertEqual(["*"], list(flat))

    def test_wrong_arguments_are_refused(self):
        for name, value in (("witness", 3), ("witness", -1), ("check_every", -1), ("check_every", 0.5)):
            with self.assertRaisesRegex(InvalidArgumentError, name):
                GradientAccumulator(training()[0], 2, **{name: value})

    def test_within_a_step_there_is_none(self):
        model, _ = training()
        gradients = GradientAccumulator(model, 2)
        with self.assertRaisesRegex(RegroupError, "within a step"):
            for _ in gradients.micro_batches(0):
                with mock.patch.dict(os.environ, REGROUP_SOCKET="/nowhere"):
                    gradients.training_ended()  # a function that has returned in a step is no error
                gradients.state_hash()


class Together:
    """Ranks that are threads of this process, as many as there are parties."""

    device = torch.device("cpu")

    def __init__(self, rank, barrier, rows):
        self.rank, self.size, self._barrier, self._rows = rank, barrier.parties, barrier, rows

    def gather(self, row):
        self._rows[self.rank] = row.clone()
        self._barrier.wait()
        rows = list(self._rows)
        self._barrier.wait()
        return rows


class Checks(unittest.TestCase):
    def check(self, worlds_state):
        """How the check of the state ends on ranks with these values."""
        barrier, rows, ends = threading.Barrier(len(worlds_state)), [None] * len(worlds_state), {}

        def run(rank):
            state = [("w", torch.tensor([float(worlds_state[rank])]))]
            checks = StateChecks(Together(rank, barrier, rows), lambda: state, 10, False)
            try:
                checks.check(20, list)
                ends[rank] = None
            except RegroupError as e:
                ends[rank] = e
                barrier.abort()  # as the loss of a member ends what the others wait in
            except threading.BrokenBarrierError:
                ends[rank] = "lost"

        threads = [threading.Thread(target=run, args=(r,)) for r in range(len(worlds_state))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return ends

    def test_equal_states(self):
        self.assertEqual({0: None, 1: None, 2: None}, self.check([1, 1, 1]))

    def test_the_minority_is_named(self):
        ends = self.check([1, 1, 2, 1])
        self.assertIsInstance(ends.pop(2), SilentCorruptionError)
        self.assertEqual({"lost"}, set(ends.values()))

    def test_of_two_none_is_named(self):
        ends = self.check([1, 2])
        for e in ends.values():
            self.assertTrue(e == "lost" or "no majority" in str(e), e)
            self.assertNotIsInstance(e, SilentCorruptionError)

    def test_which_checks_are_reported(self):
        """The same in all trainings, and ever fewer."""
        numbers = [n for n in range(1, 2000) if state_checks.reported(n)]
        self.assertEqual(list(range(1, 65)), numbers[:64])
        self.assertEqual([66, 68, 70], numbers[64:67])
        self.assertEqual([132, 136], [n for n in numbers if 128 < n <= 136])
        self.assertLess(len(numbers), 64 + 5 * 32 + 1)


class Dealt(unittest.TestCase):
    def test_steps_alike_are_one_entry(self):
        account = DealtSteps()
        for step in range(5):
            account.add(step, 1, [0, 0, 1], 0)
        account.add(5, 2, [0, 0, 0], 1)
        account.add(6, 2, [0, 0, 0], 0)
        account.add(7, 2, [0, 0, 0], 0)
        account.add(9, 2, [0, 0, 0], 0)
        got = [(e["first"], e["last"], e["generation"], e["again"]) for e in account.take()]
        self.assertEqual([(0, 4, 1, 0), (5, 5, 2, 1), (6, 7, 2, 0), (9, 9, 2, 0)], got)
        self.assertEqual([], account.take())

    def test_steps_of_which_less_is_known_are_one_entry(self):
        """As those of a sharded model, so that a commit keeps little."""
        account = DealtSteps()
        for step in range(100):
            account.add(step, 1, [0, 0, 1], None)
        self.assertEqual([{"first": 0, "last": 99, "generation": 1, "ranks": [0, 0, 1]}], account.take())

    def test_it_is_bounded(self):
        account = DealtSteps()
        for step in range(1000):
            account.add(step, step, [0] * 100, 0)
        self.assertEqual((MOST // 100, 999), (len(account.entries), account.entries[-1]["last"]))
