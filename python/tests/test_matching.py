"""Names, orders, threads, gradients, process sets: what Horovod promises of operations beside their
results."""

import unittest

from . import launch


class Matching(unittest.TestCase):
    def test_two(self):
        launch.check(self, "tests.ranks.matching", 2, REGROUP_DEADLOCK_SECONDS="1")

    def test_three(self):
        launch.check(self, "tests.ranks.matching", 3, REGROUP_DEADLOCK_SECONDS="1")

    def test_four(self):
        launch.check(self, "tests.ranks.matching", 4, REGROUP_DEADLOCK_SECONDS="1")


class Stalls(unittest.TestCase):
    def test_three(self):
        launch.check(self, "tests.ranks.stalls", 3, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="5")


class Gradients(unittest.TestCase):
    def test_one_to_four(self):
        for world in (1, 2, 3, 4):
            launch.check(self, "tests.ranks.gradients", world)


class Groups(unittest.TestCase):
    def test_alone(self):
        launch.check(self, "tests.ranks.groups", 1)

    def test_two(self):
        launch.check(self, "tests.ranks.groups", 2)

    def test_four(self):
        launch.check(self, "tests.ranks.groups", 4)


if __name__ == "__main__":
    unittest.main()
