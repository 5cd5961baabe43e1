"""A worker of an example is killed in the middle, and the result is the same."""

import re
import unittest

from .runs import Runs, example

#: What the small GPT reads.
TEXT = [example("..", "docs", name) for name in ("architecture.md", "events.md")]


class DistributedDataParallel(Runs):
    def test_mnist(self):
        """The rank that writes the checkpoints is killed."""
        self.check([example("ddp", "mnist.py")], step=180, rank=0, every=50)


class Transformers(Runs):
    def test_trainer(self):
        """The same; in each epoch the order of the data and what dropout leaves out are others."""
        self.check([example("transformers", "train.py")], step=110, rank=0, every=20)


class Accelerate(Runs):
    def test_loop(self):
        """A loop of one's own, killed in the middle of an epoch."""
        self.check([example("accelerate", "train.py")], step=110, rank=0, every=45)


class Lightning(Runs):
    def test_trainer(self):
        """Killed in the middle of an epoch, whose rest is trained, not its beginning again."""
        self.check([example("lightning", "train.py")], step=230, rank=1, every=45)


class Sharded(Runs):
    def test_gloo(self):
        """Each rank loads its shards of the model and the optimizer."""
        self.check([example("fsdp", "train.py")], step=75, rank=0, every=20)

    def test_regroup(self):
        """The same on the engine."""
        script = [example("fsdp", "train.py"), "--backend", "regroup"]
        self.check(script, step=75, rank=1, every=20)


class Letters(Runs):
    def test_gpt(self):
        """What it reads is ours; dropout differs in each step."""
        self.check([example("chargpt", "train.py"), *TEXT], step=110, rank=1, every=25)

    def test_elastic(self):
        """In-process recovery: the other worker stays in its process, nothing is read from a disk,
        and the loss is that of the script with a checkpoint."""
        plain = self.loss(self.torchrun([example("chargpt", "train.py"), *TEXT]))
        script = [example("chargpt", "elastic.py"), *TEXT]
        self.assertEqual(plain, self.loss(self.torchrun(script)))
        job = self.job(script, "--recovery", "in-process")
        killed = self.killed(job, step=110, rank=1)
        first, second = (set(g.values()) for g in job.pids())
        self.assertEqual(1, len(first & second), "the survivor was started again")
        said = [int(n) for n in re.findall(r"\] step (\d+),", job.output)]
        self.assertEqual(sorted(set(said)), said, "steps were done again")
        self.assertAlmostEqual(plain, killed, delta=1e-5)


if __name__ == "__main__":
    unittest.main()
