"""What a sharded state is after a loss, against what torch.distributed.checkpoint makes of the same
steps: the same bits."""

import os
import subprocess

import tempfile
import unittest

import torch

from . import launch
from .jobs import Job, script, some


class Resharded(unittest.TestCase):
    def check(self, backend, victim):
        """Four ranks train, one dies, and three go on; and four train and write a checkpoint, with which
        three go on."""
        with tempfile.TemporaryDirectory() as lost, tempfile.TemporaryDirectory() as saved:
            env = {"BACKEND": backend, "OUT": lost, "STEPS": "5", "VICTIM": str(victim)}
            with Job("--recovery", "in-process", "--workers", "3:4", "--", *script("resharded.py"), env=env) as job:
                job.wait()
            self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
            # A commit counts when its copies have arrived; until then the one before does.
            steps = self.read(lost, "begun", 0)["steps"]
            self.assertIn(steps, (4, 5))
            self.launch(BACKEND=backend, OUT=saved, STEPS=str(steps))
            for when in ("begun", "ended"):
                for rank in range(3):
                    with self.subTest(backend=backend, when=when, rank=rank):
                        self.compare(self.read(saved, when, rank), self.read(lost, when, rank))

    def launch(self, **env):
        """Runs the ranks that write a checkpoint and go on from it, as a launcher does."""
        processes = [
            subprocess.Popen(script("resharded.py"), env=e, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for e in launch.ranks(4, **env)
        ]
        outputs = launch.ended(processes)
        self.assertEqual([0] * 4, [p.returncode for p in processes], "\n".join(outputs))

    def read(self, folder, name, rank):
        return torch.load(os.path.join(folder, f"{name}-{rank}"))

    def compare(self, expected, found):
        self.assertEqual(expected.keys(), found.keys())
        self.assertGreater(len(found), 20)
        for name, value in expected.items():
            with self.subTest(name=name):
                if isinstance(value, tuple):
                    self.assertTrue(same(value[0], found[name][0]), (value, found[name]))
                    self.assertEqual(value[1:], found[name][1:])
                elif torch.is_tensor(value):
                    self.assertTrue(same(value, found[name]), (value, found[name]))
                else:
                    self.assertEqual(value, found[name])

    def test_the_same_bits(self):
        """The last rank has the smallest part of each tensor, and of some none."""
        for backend, victim in some((("regroup", 3), ("gloo", 1))):
            with self.subTest(backend=backend, victim=victim):
                self.check(backend, victim)


def same(a, b):
    """Whether two tensors are equal, bit by bit."""
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
