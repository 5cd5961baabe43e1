"""Memory that is used again from one generation to the next, or freed."""

import gc
import unittest
import weakref

import torch

from regroup.torch.elastic.arena import Arena, tensor_of
from regroup.torch.elastic.sharded import ShardedParts


class Memory(unittest.TestCase):
    def tensors(self, arena, *counts):
        memory = list(arena.allocate([4 * n for n in counts]))
        arena.trim()
        return [tensor_of(m, (n,), torch.float32) for m, n in zip(memory, counts)]

    def test_it_is_used_again(self):
        """Where it is enough, and beside new memory where it is not."""
        arena = Arena()
        first = self.tensors(arena, 1000, 24, 500)
        begins = {t.data_ptr() for t in first}
        self.assertTrue(min(begins) in {t.data_ptr() for t in self.tensors(arena, 900, 30, 400)})
        grown = self.tensors(arena, 1400, 32, 700)
        self.assertEqual(min(begins), grown[0].data_ptr())
        for i, t in enumerate(grown):
            t.fill_(i)
        self.assertEqual([0, 1, 2], [int(t.unique()) for t in grown])

    def test_most_of_it_is_freed_when_little_is_needed(self):
        arena = Arena()
        self.tensors(arena, 3000)
        self.tensors(arena, 1000)
        self.assertLess(sum(map(len, arena._blocks)), 3 * 4000)

    def test_tensors_outlive_the_arena(self):
        a, b = self.tensors(Arena(), 10, 20)
        a.fill_(1), b.fill_(2)
        self.assertEqual(([1] * 10, [2] * 20), (a.tolist(), b.tolist()))

    def test_what_is_saved_is_no_larger(self):
        """Each tensor has a storage of its own."""
        a, _ = self.tensors(Arena(), 10, 2000)
        self.assertEqual(40, a.untyped_storage().nbytes())

    def test_any_shape(self):
        memory = list(Arena().allocate([0, 4]))
        self.assertEqual((0, 3), tuple(tensor_of(memory[0], (0, 3), torch.float32).shape))
        self.assertEqual((1, 1), tuple(tensor_of(memory[1], (1, 1), torch.float32).shape))


class Models(unittest.TestCase):
    def test_one_at_a_time(self):
        """The model of the generation before is gone when that of the next one is made, though it is in a
        cycle, as those of fully_shard are."""
        gc.disable()
        self.addCleanup(gc.enable)
        self.addCleanup(gc.unfreeze)
        made = []

        def build(fresh):
            self.assertEqual([None] * len(made), [model() for model in made])
            model = torch.nn.Linear(2, 2)
            model.cycle = [model]
            made.append(weakref.ref(model))
            return {"model": model}

        parts = ShardedParts(build)
        for fresh in (True, False, False):
            parts.make(fresh)
        self.assertIs(parts.made["model"], made[-1]())


if __name__ == "__main__":
    unittest.main()
