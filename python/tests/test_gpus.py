"""How tensors on GPUs travel, as far as can be seen without a GPU: docs/gpu.md says what cannot."""

import os
import unittest
from unittest import mock

import torch

from regroup.errors import InvalidArgumentError
from regroup.torch import gpus

from . import launch

NOWHERE = "/nowhere/libcuda.so.1"


class Choice(unittest.TestCase):
    def test_what_keeps_the_ranks_from_it(self):
        self.assertEqual("", gpus.first_reason([]))
        self.assertEqual("", gpus.first_reason(["", ""]))
        self.assertEqual("rank 1 has no GPU: none", gpus.first_reason(["", "none", "broken"]))

    def test_what_this_process_says(self):
        with mock.patch.dict(os.environ, REGROUP_GPU="0"):
            self.assertEqual("REGROUP_GPU=0", gpus.no_gpu_reason())
        with mock.patch.dict(os.environ, REGROUP_GPU="no"):
            self.assertRaisesRegex(InvalidArgumentError, "REGROUP_GPU='no'", gpus.no_gpu_reason)
        with mock.patch.dict(os.environ):
            os.environ.pop("REGROUP_GPU", None)
            with mock.patch.object(torch.version, "cuda", None):
                self.assertIn("is not built for CUDA", gpus.no_gpu_reason())
            with mock.patch.object(torch.version, "cuda", "12.4"):
                with mock.patch.object(torch.cuda, "is_available", lambda: False):
                    self.assertIn("is_available() is False", gpus.no_gpu_reason())
                with mock.patch.object(torch.cuda, "is_available", lambda: True):
                    self.assertEqual("", gpus.no_gpu_reason())

    def test_among_ranks(self):
        launch.check(self, "tests.ranks.gpus", 2, REGROUP_CUDA_LIBRARY=NOWHERE)

    def test_alone_there_is_nobody_to_ask(self):
        from regroup.torch.world import World

        world = World()
        with mock.patch.dict(os.environ):
            for name in ("RANK", "WORLD_SIZE", "REGROUP_SOCKET"):
                os.environ.pop(name, None)
            world.init()
        self.addCleanup(world.shutdown)
        self.assertIn("nobody", world.gpus())


HOROVOD = ("allreduce", "broadcast", "allgather", "alltoall", "reduce_scatter")
DISTRIBUTED = ("allreduce", "broadcast", "allgather", "reduce", "reduce_scatter", "alltoall")


class FakeGpu(unittest.TestCase):
    """The operations on the way of tensors on GPUs, see tests.fake_gpu."""

    def check(self, module, world, *operations, **more):
        """Runs the cases of a module; these operations must have gone that way."""
        launch.check(self, module, world, PREPARE="tests.fake_gpu", ON_GPU=" ".join(operations), **more)

    def test_operations(self):
        for world in (2, 3):
            self.check("tests.ranks.operations", world, *HOROVOD)

    def test_optimizer(self):
        self.check("tests.ranks.optimizer", 2, "allreduce")

    def test_distributed(self):
        self.check("tests.ranks.distributed", 2, *DISTRIBUTED)

    def test_ddp(self):
        self.check("tests.ranks.ddp", 2, "allreduce", "broadcast")

    def test_fsdp(self):
        for world in (2, 3):
            self.check("tests.ranks.fsdp", world, "allgather", "reduce_scatter", "allreduce")

    def test_distributed_of_three(self):
        self.check("tests.ranks.distributed", 3, *DISTRIBUTED, REGROUP_INLINE_BYTES="0")


if __name__ == "__main__":
    unittest.main()
