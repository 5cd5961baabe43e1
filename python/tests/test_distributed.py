"""The backend of torch.distributed, beside gloo."""

import unittest

from . import launch


class Distributed(unittest.TestCase):
    def test_alone(self):
        launch.check(self, "tests.ranks.distributed", 1)

    def test_two(self):
        launch.check(self, "tests.ranks.distributed", 2)

    def test_four(self):
        launch.check(self, "tests.ranks.distributed", 4)

    def test_several_steps(self):
        launch.check(self, "tests.ranks.several_steps", 3)

    def test_two_over_tcp(self):
        launch.check(self, "tests.ranks.distributed", 2, REGROUP_SHARED_MEMORY="0")

    def test_everything_in_the_background(self):
        launch.check(self, "tests.ranks.distributed", 2, REGROUP_INLINE_BYTES="0")


if __name__ == "__main__":
    unittest.main()
