"""Every operation and type, in worlds of 1, 2 and 4, through shared memory and over TCP."""

import unittest

from . import launch


class Operations(unittest.TestCase):
    def test_alone(self):
        launch.check(self, "tests.ranks.operations", 1)

    def test_two(self):
        launch.check(self, "tests.ranks.operations", 2)

    def test_four(self):
        launch.check(self, "tests.ranks.operations", 4)

    def test_two_over_tcp(self):
        launch.check(self, "tests.ranks.operations", 2, REGROUP_SHARED_MEMORY="0")


if __name__ == "__main__":
    unittest.main()
