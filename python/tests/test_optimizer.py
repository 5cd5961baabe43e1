"""DistributedOptimizer, against one process that sees the whole batch."""

import unittest

from . import launch


class Optimizer(unittest.TestCase):
    def test_alone(self):
        launch.check(self, "tests.ranks.optimizer", 1)

    def test_two(self):
        launch.check(self, "tests.ranks.optimizer", 2)

    def test_four(self):
        launch.check(self, "tests.ranks.optimizer", 4)


if __name__ == "__main__":
    unittest.main()
