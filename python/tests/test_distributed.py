"""The backend of torch.distributed, beside gloo."""

import subprocess
import sys
import unittest

from . import launch

#: Ends while a callback of a future still runs, without having destroyed the group.
ENDS_AT_ONCE = """
import time
import torch, torch.distributed as dist, regroup.torch.distributed
dist.init_process_group("regroup")
future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
future.then(lambda _: time.sleep(0.5))
future.wait()
"""


class Distributed(unittest.TestCase):
    def check(self, world, **more):
        for module in ("tests.ranks.distributed", "tests.ranks.ddp", "tests.ranks.fsdp"):
            launch.check(self, module, world, **more)

    def test_alone(self):
        self.check(1)

    def test_two(self):
        self.check(2)

    def test_beside_another_backend(self):
        launch.check(self, "tests.ranks.several_backends", 2)

    def test_four(self):
        self.check(4)

    def test_several_steps(self):
        launch.check(self, "tests.ranks.several_steps", 3)

    def test_two_over_tcp(self):
        self.check(2, REGROUP_SHARED_MEMORY="0")

    def test_everything_in_the_background(self):
        self.check(2, REGROUP_INLINE_BYTES="0")

    def test_a_script_that_ends_at_once(self):
        """A thread that is in torch's code at the end of the interpreter would abort the process."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, "-c", ENDS_AT_ONCE]
        processes = [subprocess.Popen(command, env=env, **options) for env in launch.ranks(2)]
        output = launch.ended(processes)
        self.assertEqual([0, 0], [p.returncode for p in processes], output)


if __name__ == "__main__":
    unittest.main()
