"""Whole jobs whose models are sharded: of a rank that dies, others have copies or parity."""

import glob
import os
import re
import signal
import subprocess
import tempfile
import unittest
from unittest import mock

import torch

import regroup.torch as hvd
from regroup.errors import InvalidArgumentError, UnsupportedError

from . import launch
from .jobs import Job, example, script, some
from .test_fully_shard import same
from .test_state import OPTIMIZERS, everything, network
from .test_state import step as one_step


class Jobs(unittest.TestCase):
    def run_job(self, workers="4:4", failures=20, options=(), **env):
        run = ["--recovery", "in-process", "--workers", workers, "--max-restarts", str(failures), *options, "--"]
        job = Job(*run, *script("sharded.py"), env=env)
        self.addCleanup(job.close)
        return job.wait()

    def check(self, job):
        """Whenever the ranks begin again, they have together what they had at that step, to the bit."""
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertNotIn("leaked", job.output, "libraries find objects at the end that Python has not freed")
        committed = {}
        for c in job.lines(r"\bcommits at="):
            committed.setdefault(int(c["step"]), set()).add(c["hash"])
        begun = [e for e in job.lines(r"\benters at=") if int(e["step"]) > 0]
        for e in begun:
            self.assertIn(e["hash"], committed[int(e["step"])], job.output)
            self.assertAlmostEqual(0.01 * 0.99 ** int(e["step"]), float(e["lr"]), places=12)
        ends = job.lines(r"\bends at=")
        self.assertEqual(1, len({e["hash"] for e in ends}), job.output)
        return begun, ends


class Sharded(Jobs):
    def test_a_rank_dies(self):
        """The others go on with its part; one that comes in its place gets it back."""
        for backend in some(("regroup", "gloo")):
            with self.subTest(backend=backend):
                job = self.run_job("3:4", BACKEND=backend, DIES="2@9", WAITS="4")
                begun, ends = self.check(job)
                self.assertEqual({"3", "4"}, {e["size"] for e in begun}, job.output)
                self.assertEqual(4, len(ends), job.output)

    def test_a_rank_is_replaced(self):
        """What the others have is in the memory where it was: it is left as it is if they have made no step
        since the commit."""
        cases = ("gloo", "backward", "2"), ("regroup", "backward", "2"), ("regroup", "commit", "0123")
        for backend, line, filled in some(cases):
            with self.subTest(backend=backend, line=line):
                job = self.run_job(BACKEND=backend, DIES="2@9", LINE=line, REGROUP_LOG_LEVEL="info")
                self.check(job)
                found = re.findall(r"in sync.*gen=2 rank=(\d) bytes=(\d+) unchanged=(\d+) ", job.output)
                self.assertEqual(4, len(found), job.output)
                for rank, received, unchanged in found:
                    self.assertEqual(rank in filled, int(unchanged) == 0, job.output)
                    self.assertEqual(rank == "2", int(received) > 0, job.output)

    def test_a_rank_of_two_replicas_dies(self):
        """HSDP: the others of its replica wait for it in groups of their own, and are got out. Nobody
        has copied anything: the other replica has the part."""
        job = self.run_job("3:4", HSDP="1", COPIES="0", DIES="1@9", WAITS="4")
        begun, ends = self.check(job)
        self.assertEqual({"3", "4"}, {e["size"] for e in begun}, job.output)
        self.assertEqual(4, len(ends), job.output)

    def test_one_of_two_tensor_parallel_ranks_dies(self):
        """The other goes on alone."""
        begun, ends = self.check(self.run_job("1:2", TP="2", DIES="1@9", WAITS="2"))
        self.assertEqual({"1", "2"}, {e["size"] for e in begun})
        self.assertEqual(2, len(ends))

    def test_a_tensor_parallel_and_sharded_rank_dies(self):
        """The others go on without tensor parallel layers."""
        begun, ends = self.check(self.run_job("3:4", TP="2", DIES="1@9", WAITS="4"))
        self.assertEqual({"3", "4"}, {e["size"] for e in begun})
        self.assertEqual(4, len(ends))

    def test_a_rank_without_the_other_of_its_pair_waits(self):
        """Two train on, tensor parallel, and have what the third had; it waits until there are four."""
        for dies in some(("1@9", "0@9")):
            with self.subTest(dies=dies):
                job = self.run_job("2:4", options=("--multiple-of", "2"), TP="2", DIES=dies, WAITS="4")
                begun, ends = self.check(job)
                self.assertEqual({"2", "4"}, {e["size"] for e in begun}, job.output)
                self.assertEqual(4, len(ends), job.output)

    def test_two_neighbours_die(self):
        """With one copy that is too many, and the error of the others, the second failure of the job,
        says what is lost; with two it is not."""
        job = self.run_job("2:4", failures=1, COPIES="1", DIES="1,2@9")
        self.assertEqual("failed", job.summary.get("outcome"), job.output)
        self.assertIn("parts of the sharded state are lost: of the commit of g1 at step", job.output)
        self.check(self.run_job("2:4", COPIES="2", DIES="1,2@9"))

    def test_planned_changes(self):
        """Most ranks leave at once, and others come: no step is made again."""
        run = ["--recovery", "in-process", "--slots", "4", "--workers", "3:3", "--"]
        job = Job(*run, *script("sharded.py"), env={"WAITS": "4"})
        self.addCleanup(job.close)
        enters = r"enters at=\S+ pid=\d+ step=\d+ rank=0 size="
        job.until(f"{enters}3 [^$]* commits at=")
        for size in (1, 4):
            said = len(job.log())
            job.scale(size)
            job.until(f"{enters}{size} ", after=said)
        _, ends = self.check(job.wait())
        self.assertEqual(4, len(ends), job.output)
        made = [(c["step"], c["rank"]) for c in job.lines(r"\bcommits at=")]
        self.assertEqual(len(made), len(set(made)), job.output)

    def test_parity(self):
        """A rank is rebuilt from what the others keep together, and gets it back; two of a group are not."""
        for parity in some(("2", "4")):
            with self.subTest(parity=parity):
                job = self.run_job("3:4", PARITY=parity, DIES="2@9", WAITS="4")
                begun, ends = self.check(job)
                self.assertEqual({"3", "4"}, {e["size"] for e in begun}, job.output)
                self.assertEqual(4, len(ends), job.output)
        job = self.run_job("2:4", failures=1, PARITY="2", DIES="1,2@9")
        self.assertEqual("failed", job.summary.get("outcome"), job.output)
        self.assertIn("parts of the sharded state are lost: of the commit of g1 at step", job.output)


class Checkpoints(Jobs):
    """Sharded jobs that write checkpoints."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def kept(self, folder):
        return {"REGROUP_CHECKPOINT_DIR": folder, "REGROUP_CHECKPOINT_EVERY": "1ms"}

    def test_all_are_read_at_other_sizes(self):
        """By torch, and by a job that goes on from it: to the bit."""
        for how in some(({}, {"HSDP": "1"})):
            with self.subTest(**how):
                kept = self.kept(os.path.join(self.folder, "hsdp" if how else "fsdp"))
                first = self.run_job(**kept, **how)
                self.check(first)
                last = {e["hash"] for e in first.lines(r"\bends at=")}
                newest = max(glob.glob(kept["REGROUP_CHECKPOINT_DIR"] + "/*.parts"))
                for world in (1, 2):
                    command = script("reads_parts.py") + [newest]
                    output = subprocess.PIPE
                    readers = [
                        subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, text=True)
                        for env in launch.ranks(world)
                    ]
                    said = launch.ended(readers)
                    self.assertEqual([last] * world, [set(re.findall(r"hash=(\w+)", s)) for s in said], said)
                job = self.run_job("3:3", **kept, STEPS="40")
                enters = {(e["step"], e["size"], e["hash"]) for e in job.lines(r"\benters at=")}
                self.assertEqual({("30", "3", min(last))}, enters, job.output)
                self.assertEqual("succeeded", job.summary.get("outcome"), job.output)

    def test_too_many_die(self):
        """The others go back to a checkpoint, and the job says so."""
        job = self.run_job("2:4", **self.kept(self.folder), CHECKPOINTS=self.folder, DIES="1,2@9")
        begun, _ = self.check(job)
        self.assertIn("2", {e["size"] for e in begun}, job.output)
        self.assertIn("from the checkpoint of step", job.output)


class Example(unittest.TestCase):
    def test_fsdp(self):
        """The example trains, a worker is killed in the middle, and it has learnt at the end."""
        job = Job("--recovery", "in-process", "--workers", "2:3", "--", *example("fsdp", "elastic.py"))
        self.addCleanup(job.close)
        job.lose_newest("step 50: ")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        entered = [(int(n), int(step)) for n, step in re.findall(r"rank \d of (\d) goes on at step (\d+)", job.output)]
        self.assertTrue(any(n == 2 and step >= 50 for n, step in entered), job.output)
        self.assertLess(float(re.search(r"done at step 150: loss (\S+)", job.output)[1]), 1.0)

    def test_replicas(self):
        """Two of two parts each; of the three that are left, one of three parts."""
        options = ("--replicas", "2", "--steps", "1000000")
        job = Job("--recovery", "in-process", "--workers", "3:4", "--", *example("fsdp", "elastic.py"), *options)
        self.addCleanup(job.close)
        job.until(r"a mesh of \(2, 2\)")
        job.until("step 20: ")
        os.kill(job.newest_worker(), signal.SIGKILL)
        job.until(r"a mesh of \(3,\)")
        job.until(r"rank 0 of 4 goes on at step [1-9]")

    def test_letters(self):
        """A GPT of four, three and four parts, which goes on to learn."""
        license = os.path.join(launch.ROOT, "..", "LICENSE")
        run = ["--workers", "3:4", "--", *example("chargpt", "sharded.py"), license, "--steps", "1000000"]
        job = Job("--recovery", "in-process", *run)
        self.addCleanup(job.close)
        job.until("step 20, ")
        os.kill(job.newest_worker(), signal.SIGKILL)
        job.until(r"rank 0 of 3 goes on at step [1-9]")
        job.until(r"rank 0 of 4 goes on at step [1-9][^$]*\] step ")
        losses = [float(loss) for loss in re.findall(r"step \d+, (\S+) nats", job.log())]
        self.assertLess(losses[-1], losses[0] - 0.3)


class Plain(unittest.TestCase):
    """Without a job: one process, whose models a function makes."""

    def setUp(self):
        launch.alone(self)
        torch.manual_seed(0)

    def state(self, make, optimizer=lambda p: torch.optim.AdamW(p, lr=0.01)):
        def build(fresh):
            model = make()
            return {"model": model, "optimizer": optimizer(model.parameters())}

        return hvd.elastic.TorchState(build=build, steps=0)

    def train(self, state, steps, then=lambda state: None):
        @hvd.elastic.run
        def train(state):
            for _ in range(steps):
                one_step(state.model, state.optimizer, state.steps)
                state.steps += 1
                state.commit()
            then(state)

        train(state)

    def test_every_optimizer_is_returned_to_its_commit(self):
        """And its first steps are those of an optimizer that nobody has touched."""
        for name, make in {**OPTIMIZERS, "Prepared": Prepared}.items():
            with self.subTest(optimizer=name):
                torch.manual_seed(0)
                model = network()
                optimizer = make(model.parameters())
                for i in range(3):
                    one_step(model, optimizer, i)

                def undo(state):
                    self.assertTrue(same(everything(model, optimizer), everything(state.model, state.optimizer)))
                    for i in range(2):
                        one_step(state.model, state.optimizer, 10 + i)
                    state.restore()
                    self.assertTrue(same(everything(model, optimizer), everything(state.model, state.optimizer)))
                    for i in range(3, 5):
                        one_step(model, optimizer, i)
                        one_step(state.model, state.optimizer, i)
                    self.assertTrue(same(everything(model, optimizer), everything(state.model, state.optimizer)))

                torch.manual_seed(0)
                self.train(self.state(network, make), 3, undo)

    def test_what_is_refused(self):
        def replaced(state):
            state.model[0].weight.data = state.model[0].weight.data.clone()
            state.commit()

        def added(state):
            state.model.register_buffer("late", torch.zeros(1))
            state.commit()

        def lost(state):
            state.optimizer.state[state.model[0].weight].pop("exp_avg")
            state.commit()

        cases = [
            (replaced, "model.0.weight was replaced since build made it"),
            (added, "model.late was added since build was called"),
            (lost, "exp_avg of a sharded parameter cannot be kept"),
        ]
        for change, text in cases:
            with self.subTest(text), self.assertRaisesRegex(UnsupportedError, text):
                self.train(self.state(network), 1, change)
        with self.assertRaisesRegex(UnsupportedError, "neither the shape of its parameter nor that of a number"):
            self.train(self.state(network, lambda p: torch.optim.Adafactor(p)), 1)
        with self.assertRaisesRegex(UnsupportedError, "Wrapper, which saves its state in a way of its own"):
            self.train(self.state(network, lambda p: Wrapper(torch.optim.AdamW(p))), 1)
        cases = [
            ({"copies": -1}, "copies=-1 is negative"),
            ({"parity": -4}, "parity=-4 is negative"),
            ({"parity": 1}, "use copies=1 instead"),
            ({"parity": 4, "copies": 1}, "copies=1 and parity=4: choose one of them"),
        ]
        for given, text in cases:
            with self.subTest(text), self.assertRaisesRegex(InvalidArgumentError, text):
                hvd.elastic.TorchState(build=lambda fresh: {}, **given)
        sampler = hvd.elastic.ElasticSampler(range(4))
        for made, text in (
            ([], "build returned a list"),
            (
                {"model": 5},
                "build returned model, a int: neither a module or an optimizer, nor anything with state_dict",
            ),
            (
                {"sampler": sampler},
                r"build returned sampler, a sampler: give it to the state, TorchState\(sampler=...\)",
            ),
        ):
            with self.subTest(text), self.assertRaisesRegex(InvalidArgumentError, text):
                self.train(hvd.elastic.TorchState(build=lambda fresh: made), 1)

    def test_a_function_that_sets_an_attribute(self):
        """It would be lost."""

        def build(fresh):
            state.steps = 7
            model = network()
            return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}

        state = hvd.elastic.TorchState(build=build, steps=0)
        with self.assertRaisesRegex(UnsupportedError, "build has set state.steps"):
            self.train(state, 1)

    def test_copies_without_a_function(self):
        """Then it is an attribute like any other, and so is parity."""
        self.assertEqual(3, hvd.elastic.TorchState(copies=3).copies)
        self.assertEqual(4, hvd.elastic.TorchState(parity=4).parity)
        with self.assertRaisesRegex(InvalidArgumentError, "build is a int, not a function"):
            hvd.elastic.TorchState(build=3)

    def test_with_the_ranks_of_a_launcher(self):
        """The function is called once."""
        with mock.patch.dict(os.environ, RANK="0", WORLD_SIZE="1"):
            self.train(self.state(network), 2, lambda state: self.assertEqual(2, state.steps))

    def test_outside_of_a_run(self):
        """As with several ranks of a launcher: there is nothing to return to."""
        state = self.state(network)
        state.sync()
        state.commit()
        with self.assertRaisesRegex(UnsupportedError, r"what build has made \(model, optimizer\) is not kept"):
            state.restore()


class Wrapper(torch.optim.Optimizer):
    """An optimizer around another one, as accelerate has them."""

    def __init__(self, inner):
        self.inner = inner

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)

    def state_dict(self):
        return self.inner.state_dict()


class Prepared(torch.optim.Optimizer):
    """Has its state before its first step, as Adagrad in some releases of torch."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        for p in self.param_groups[0]["params"]:
            self.state[p] = {"sum": torch.full_like(p, 0.1), "step": torch.tensor(0.0)}

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["step"] += 1
            state["sum"].addcmul_(p.grad, p.grad)
            p.addcdiv_(p.grad, state["sum"].sqrt(), value=-self.param_groups[0]["lr"] / state["step"].item())
