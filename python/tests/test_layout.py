"""Where in a tensor a rank's part is, for every small world."""

import unittest

import torch
from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

from regroup.errors import UnsupportedError
from regroup.torch.elastic import layout


class Mesh:
    """A mesh as seen by one of its ranks."""

    def __init__(self, shape, rank):
        self._shape, self._rank = shape, rank

    def size(self, dim):
        return self._shape[dim]

    def get_coordinate(self):
        return self._rank


class DTensor:
    """Of the type that layout looks for, without a group."""

    __module__ = "torch.distributed.tensor"

    def __init__(self, shape, mesh, placements, local, says=None):
        self.shape, self.device_mesh, self.placements, self._local_tensor = shape, mesh, placements, local
        self._says = says

    def dim(self):
        return len(self.shape)

    def __create_chunk_list__(self):
        from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset as compute

        sizes, offsets = compute(self.shape, self.device_mesh._shape, self.device_mesh._rank, self.placements)
        return [type("Chunk", (), {"sizes": sizes, "offsets": offsets})]


def dealt(indices, count, rank):
    """The part of a rank, as torch.chunk deals it."""
    return dict(enumerate(torch.chunk(indices, count))).get(rank, indices[:0])


class Layout(unittest.TestCase):
    def test_what_fully_shard_makes_of_tensor_parallel_layers(self):
        """Each rank's rows, which begin where it says; or they are refused by some rank."""
        refused = worlds = 0
        for groups in range(1, 5):
            for tensor in range(2, 5):
                for rows in range(20):
                    wrong, says = False, []
                    for rank in ((g, t) for g in range(groups) for t in range(tensor)):
                        mine = dealt(dealt(torch.arange(rows), tensor, rank[1]), groups, rank[0])
                        placements = (_StridedShard(0, split_factor=tensor), Shard(0))
                        part = DTensor((rows, 3), Mesh((groups, tensor), rank), placements, torch.zeros(len(mine), 3))
                        try:
                            says.append(layout.offset("w", part) == ((int(mine[0]), 0) if len(mine) else (0, 0)))
                        except UnsupportedError:
                            wrong = True
                    worlds, refused = worlds + 1, refused + wrong
                    self.assertTrue(wrong or all(says), (groups, tensor, rows))
        self.assertLess(refused, worlds / 10)

    def test_what_is_refused(self):
        def part(placements, local):
            return DTensor((8, 8), Mesh((2, 2), (1, 0)), placements, local)

        self.assertEqual((4, 0), layout.offset("w", part((Shard(0), Replicate()), torch.zeros(4, 8))))
        self.assertEqual((4, 0), layout.offset("w", part((Shard(0), Shard(1)), torch.zeros(4, 4))))
        with self.assertRaisesRegex(UnsupportedError, "w is dealt to this rank in several pieces"):
            layout.offset("w", part((Shard(0), _StridedShard(0, split_factor=2)), torch.zeros(2, 8)))
        with self.assertRaisesRegex(UnsupportedError, r"w has \(3, 8\) elements on this rank, and would have \(4, 8\)"):
            layout.offset("w", part((Shard(0), Replicate()), torch.zeros(3, 8)))
