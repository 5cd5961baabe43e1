"""The backend on torch 2.14 and later: groups that change, sharded models, meshes."""

import unittest

from tests import launch


class Current(unittest.TestCase):
    def test_alone(self):
        launch.check(self, "compat.ranks", 1)

    def test_two(self):
        launch.check(self, "compat.ranks", 2)

    def test_four(self):
        launch.check(self, "compat.ranks", 4)

    def test_two_over_tcp(self):
        launch.check(self, "compat.ranks", 2, REGROUP_SHARED_MEMORY="0")


if __name__ == "__main__":
    unittest.main()
