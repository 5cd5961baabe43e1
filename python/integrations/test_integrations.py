"""A worker of an example is killed in the middle, and the result is the same."""

import json
import os
import re
import unittest

from .runs import Runs, example

TRANSFORMERS = [example("transformers", "train.py")]
ACCELERATE = [example("accelerate", "train.py")]
LIGHTNING = [example("lightning", "train.py")]
FSDP = [example("fsdp", "train.py")]
MNIST = [example("ddp", "mnist.py")]
GPT = [example("chargpt", "train.py"), example("..", "LICENSE")]
ELASTIC = [example("chargpt", "elastic.py"), example("..", "LICENSE")]
#: Run by tests.test_sharded.
SHARDED = [
    [example("fsdp", "elastic.py")],
    [example("chargpt", "sharded.py"), example("..", "LICENSE")],
]
TITAN = [example("titan", "elastic.py"), example("..", "LICENSE")]
TRAINER = [example("transformers", "elastic.py")]
RINGS = [example("lightning", "elastic.py")]
IN_PROCESS = ["--recovery", "in-process"]


class DistributedDataParallel(Runs):
    def test_mnist(self):
        """The rank that writes the checkpoints is killed."""
        self.check(MNIST, step=180, rank=0, every=50)


class Transformers(Runs):
    def test_trainer(self):
        """The same; in each epoch the order of the data and what dropout leaves out are others.
        Then each rank is killed while a checkpoint is written."""
        loss = self.check(TRANSFORMERS, step=110, rank=0, every=20)
        for rank in (0, 1):
            killed = self.killed_in_save(TRANSFORMERS, "checkpoints/checkpoint-60", rank)
            self.assertAlmostEqual(loss, killed, delta=1e-5)

    def test_trainer_of_a_sharded_model(self):
        """In-process recovery of a model of which each worker has a part: whichever die, Trainer makes and logs
        each step once, and it is the one that it makes undisturbed."""
        outputs = [self.in_process(TRAINER, killed, (9, 300)) for killed in ("", "'epoch': '2")]
        found = [re.search(r"\] done: (\[.*\])$", output, re.MULTILINE)[1] for output in outputs]
        plain, disturbed = map(json.loads, found)
        self.assertEqual(list(range(1, 121)), [step for step, _ in plain])
        self.assertEqual([step for step, _ in plain], [step for step, _ in disturbed])
        for (step, expected), (_, loss) in zip(plain, disturbed):
            self.assertAlmostEqual(expected, loss, delta=1e-3, msg=f"step {step}")


class Accelerate(Runs):
    def test_loop(self):
        """A loop of one's own, killed in the middle of an epoch."""
        self.check(ACCELERATE, step=110, rank=0, every=45)


class Lightning(Runs):
    def test_trainer(self):
        """Killed in the middle of an epoch, whose rest is trained, not its beginning again."""
        self.check(LIGHTNING, step=230, rank=1, every=45)

    def test_trainer_of_a_sharded_model(self):
        """In-process recovery of a model of which each worker has a part."""
        plain, disturbed = (self.in_process(RINGS, killed, (9, 2000)) for killed in ("", r"\bstep 100\b"))
        self.assertAlmostEqual(self.loss(plain), self.loss(disturbed), delta=1e-4)


class Sharded(Runs):
    def test_gloo(self):
        """Each rank loads its shards of the model and the optimizer. Then each is killed while a
        checkpoint is written."""
        loss = self.check(FSDP, step=75, rank=0, every=20)
        for rank in (0, 1):
            killed = self.killed_in_save(FSDP, "checkpoints/step-000060", rank)
            self.assertAlmostEqual(loss, killed, delta=1e-5)

    def test_regroup(self):
        """The same on the engine."""
        self.check([*FSDP, "--backend", "regroup"], step=75, rank=1, every=20)


class Titan(Runs):
    def test_loop(self):
        """Each sample once in seven epochs; the losses are checked by tests.test_titan."""
        output = self.in_process([*TITAN, "--steps", "60"], r"\bstep 20: ", (7, 177))
        self.assertRegex(output, r"done at step 60 after 85440 tokens")


class Letters(Runs):
    def test_gpt(self):
        """What it reads is ours; dropout differs in each step."""
        self.check(GPT, step=110, rank=1, every=25)

    def test_elastic(self):
        """In-process recovery: the other worker stays in its process, nothing is read from a disk,
        and the loss is that of the script with a checkpoint."""
        plain = self.loss(self.torchrun(GPT))
        self.assertEqual(plain, self.loss(self.torchrun(ELASTIC)))
        job = self.job(ELASTIC, *IN_PROCESS)
        killed = self.killed(job, step=110, rank=1)
        first, second = (set(g.values()) for g in job.pids())
        self.assertEqual(1, len(first & second), "the survivor was started again")
        steps = [int(n) for n in re.findall(r"\] step (\d+),", job.output)]
        self.assertEqual(sorted(set(steps)), steps, "steps were done again")
        self.assertAlmostEqual(plain, killed, delta=1e-5)


class Document(unittest.TestCase):
    def test_commands(self):
        """The commands of docs/integrations.md are those that are run by tests."""
        scripts = [TRANSFORMERS, ACCELERATE, LIGHTNING, FSDP, MNIST, GPT]
        run = [(script, "2", []) for script in scripts] + [(ELASTIC, "2", IN_PROCESS)]
        run += [(script, "2:4", IN_PROCESS) for script in [*SHARDED, TITAN, TRAINER, RINGS]]
        root = example("..")
        expected = [
            " ".join(
                [f"regroup run --workers {workers}", *flags, "-- python3"]
                + [os.path.relpath(path, root) for path in script]
            )
            for script, workers, flags in run
        ]
        with open(os.path.join(root, "docs", "integrations.md"), encoding="utf-8") as f:
            commands = [line.strip() for line in f if line.startswith("    ")]
        self.assertEqual(expected, commands)


if __name__ == "__main__":
    unittest.main()
