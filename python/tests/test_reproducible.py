"""The same bits, whichever rank computes what."""

import collections
import itertools
import os
import random
import re
import subprocess
import tempfile
import unittest

import torch

from regroup import _library as lib
from regroup.errors import InvalidArgumentError
from regroup.torch.reproducible import fixed_point
from regroup.torch.reproducible.additions import Additions, Repeated
from regroup.torch.reproducible.shares import Shares, cut, even, fastest

from . import launch
from .histories import CHECK_EVERY, Cluster, Fault
from .jobs import Job, example, script

#: Random histories of each training.
HISTORIES = int(os.environ.get("HISTORIES", "1000" if os.environ.get("EVERY_CASE") else "20"))

#: Faults that are tried.
FAULTS = int(os.environ.get("FAULTS", "1000" if os.environ.get("EVERY_CASE") else "20"))

#: How many of six micro-batches are computed twice: one of these in each try.
WITNESSES = [int(n) for n in os.environ.get("WITNESSES", "1 6").split()]


class FixedPoint(unittest.TestCase):
    def test_both_ways_to_add(self):
        """The kernel and PyTorch give the same integers and magnitudes."""
        g = torch.Generator().manual_seed(1)
        for n in (0, 1, 7, 64, 1000):
            for shift in (-30, 0, 20, 55):
                gradient = torch.randn(n, generator=g) * torch.exp2(torch.randint(-30, 3, (n,), generator=g).float())
                gradient[::3] = (torch.randint(-9, 9, (len(gradient[::3]),), generator=g) + 0.5) * 2.0**-shift
                if shift > 50:
                    gradient.clamp_(-60, 60)
                totals = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64)
                sizes = fixed_point.add(totals[0], gradient, shift), fixed_point.add(
                    totals[1], gradient.double(), shift
                )
                self.assertTrue(torch.equal(*totals), (n, shift))
                for as_type in gradient, gradient.double():
                    first = torch.full((n,), 7)
                    self.assertEqual(sizes[0], fixed_point.add(first, as_type, shift, first=True))
                    self.assertTrue(torch.equal(totals[0], first), (n, shift))
                self.assertEqual(*sizes)

    def test_both_ways_to_make_means(self):
        """The kernel and PyTorch round alike."""
        g = torch.Generator().manual_seed(2)
        for n in (0, 1, 7, 64, 1001):
            for shift, summands in ((-30, 1), (0, 3), (20, 7), (55, 1000)):
                total = torch.randint(-(2**62), 2**62, (n,), generator=g) >> torch.randint(0, 62, (n,), generator=g)
                means, want = torch.empty(n), torch.empty(n, dtype=torch.float64)
                for parts in ([total], [total // 2, total // 3]):
                    pieces = [n // 3, n - n // 3], [shift, shift + 1]
                    fixed_point.mean(means, parts, *pieces, summands)
                    fixed_point.mean(want, parts, *pieces, summands)
                    self.assertTrue(torch.equal(means, want.to(torch.float32)), (n, shift))

    def test_means_of_gradients_as_they_are(self):
        """They are those of their totals."""
        g = torch.Generator().manual_seed(5)
        for n in (0, 1, 7, 64, 5001):
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                parts = [torch.randn(n, generator=g).to(dtype) for _ in range(3)]
                total, means, want = (
                    torch.zeros(n, dtype=torch.int64),
                    torch.empty(n, dtype=dtype),
                    torch.empty(n, dtype=dtype),
                )
                copies = torch.empty(n, dtype=dtype)
                for part in parts:
                    additions = Additions(1)
                    additions.copy(0, copies, part)
                    self.assertEqual(([0], [fixed_point.add(total, part, 40)]), additions.finish())
                    self.assertTrue(torch.equal(part, copies))
                fixed_point.mean(means, parts, [n], [40], 3)
                fixed_point.mean(want, [total], [n], [40], 3)
                self.assertTrue(torch.equal(means, want), (n, dtype))

    def test_additions(self):
        """What waits is added in its order, and each gradient's magnitude is returned once."""
        dice, g = random.Random(6), torch.Generator().manual_seed(6)
        additions = Additions(4)
        for _ in range(30):
            totals = {m: torch.full((50,), 9) for m in range(3)}
            want, empty = {m: t.clone() for m, t in totals.items()}, set(totals)
            members, sizes = [], []
            for _ in range(dice.randrange(1, 12)):
                m = dice.randrange(3)
                gradient = torch.randn(50, generator=g)
                if dice.random() < 0.3:  # what the library does not add
                    gradient = gradient.double() if dice.random() < 0.5 else torch.randn(100, generator=g)[::2]
                additions.add(m, totals[m], gradient, 40, m in empty)
                members.append(m)
                sizes.append(fixed_point.add(want[m], gradient, 40, m in empty))
                empty.discard(m)
                gradient = None  # what waits has its memory
            self.assertEqual((members, sizes), additions.finish())
            self.assertEqual(([], []), additions.finish())
            self.assertEqual(0, additions.elements)
            for m, total in totals.items():
                self.assertTrue(torch.equal(want[m], total))
            additions.add(0, totals[0], torch.ones(50), 40, False)
            additions.clear()
            self.assertEqual(([], []), additions.finish())
            self.assertTrue(torch.equal(want[0], totals[0]))

    def test_repeated_additions(self):
        """They do what one does after the other, and leave the parameters without gradients."""
        dice, g = random.Random(7), torch.Generator().manual_seed(7)
        parameters = [torch.zeros(n, requires_grad=True) for n in (3, 40, 1, 17)]
        members, shifts = [3, 1, 0], [40, 35, 38]
        repeated = Repeated(members, parameters)
        for copies in (False, True):
            to = [
                torch.full((parameters[m].numel(),), 9, dtype=torch.float32 if copies else torch.int64) for m in members
            ]
            want, empty = [t.clone() for t in to], {0, 1, 2}
            repeated.prepare(to, shifts, copies)
            for _ in range(10):
                for p in parameters:
                    p.grad = torch.randn(p.shape, generator=g)
                gradients, first = repeated.gradients(), set(empty)
                sizes = repeated.add(gradients, empty)
                for i, m in enumerate(members):
                    self.assertIsNone(parameters[m].grad)
                    if copies:
                        size = fixed_point.copy(want[i], gradients[i])
                    else:
                        size = fixed_point.add(want[i], gradients[i], shifts[i], m in first)
                    self.assertEqual(size, sizes[i])
                    self.assertTrue(torch.equal(want[i], to[i]), (copies, m))
                self.assertEqual({2}, empty)
                if dice.random() < 0.3:
                    empty.add(dice.choice(members))
            parameters[1].grad = None
            self.assertIsNone(repeated.gradients())

    def test_one_that_is_refused(self):
        """Nothing is added then."""
        total, gradient = torch.zeros(2, dtype=torch.int64), torch.ones(2)
        right = (total.data_ptr(), gradient.data_ptr(), 2, 3, lib.FIXED_ADD)
        for wrong, message in (
            ((total.data_ptr(), None, 2, 3, lib.FIXED_ADD), "gradient 1: 2 values, without memory for them"),
            ((total.data_ptr(), gradient.data_ptr(), 2, 1024, lib.FIXED_ADD), "gradient 1: shift 1024 is outside"),
            ((total.data_ptr(), gradient.data_ptr(), 2, 3, 3), "gradient 1: how is 3"),
        ):
            with self.assertRaisesRegex(InvalidArgumentError, message):
                lib.fixed_add((lib.Fixed * 2)(right, wrong), 2)
            self.assertEqual([0, 0], total.tolist())
        for sources, lengths, shifts, message in (
            ([None], [2], [3], "source 0, or the values, have no memory for 2 elements"),
            ([], [2], [3], "a mean of 0 sources"),
            ([total.data_ptr()], [-1], [3], "part 0 has -1 elements"),
            ([total.data_ptr()], [1, 1], [3, 1023], "part 1: shift 1023 is outside"),
        ):
            with self.assertRaisesRegex(InvalidArgumentError, message):
                lib.fixed_mean(lib.INT64, sources, gradient.data_ptr(), lengths, shifts, 1)
        self.assertEqual([1, 1], gradient.tolist())

    def test_so_many_summands_fit(self):
        """Even if all are 2**HEADROOM times as large as the largest before."""
        for summands in (1, 2, 3, 12, 64, 1000):
            for magnitude in (1e-38, 0.3, 1.0, 7.0, 1e30):
                shift = fixed_point.shift_for(magnitude, summands)
                largest = magnitude * 2**fixed_point.HEADROOM
                self.assertTrue(fixed_point.fits(magnitude, shift, summands))
                self.assertTrue(fixed_point.fits(largest, shift, summands))
                self.assertFalse(fixed_point.fits(2 * largest, shift, summands))
                self.assertLess(summands * round(largest * 2.0**shift), 2**63)

    def test_the_order_is_not_seen(self):
        dice, gradients = random.Random(4), [torch.randn(50) for _ in range(12)]
        sums = set()
        for _ in range(20):
            dice.shuffle(gradients)
            total = torch.zeros(50, dtype=torch.int64)
            for gradient in gradients:
                fixed_point.add(total, gradient, 40)
            sums.add(tuple(total.tolist()))
        self.assertEqual(1, len(sums))


class KernelsForGPUs(unittest.TestCase):
    """They give the same bits."""

    def test_interpreted(self):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        env = launch.environment(TRITON_INTERPRET="1")
        (output,) = launch.ended([subprocess.Popen(script("triton_kernels.py"), env=env, **options)])
        self.assertTrue(output.endswith("the same bits\n"), output)


class SharesOfSteps(unittest.TestCase):
    def test_each_is_dealt_once(self):
        for count in range(1, 20):
            for world in range(1, count + 1):
                for sizes in even(count, world), fastest(count, [1.0 + r for r in range(world)]):
                    shares = [cut(list(range(count)), sizes, r) for r in range(world)]
                    self.assertEqual(list(range(count)), [m for s in shares for m in s])
                    self.assertGreaterEqual(min(map(len, shares)), 1)

    def test_the_last_one_ends_as_early_as_possible(self):
        dice = random.Random(2)
        for _ in range(200):
            world = dice.randint(1, 4)
            count, seconds = dice.randint(world, 9), [dice.uniform(0.5, 4) for _ in range(world)]
            ways = [c for c in itertools.product(range(1, count + 1), repeat=world) if sum(c) == count]
            best = min(max(n * s for n, s in zip(way, seconds)) for way in ways)
            got = fastest(count, seconds)
            self.assertAlmostEqual(best, max(n * s for n, s in zip(got, seconds)), msg=f"{seconds} {got}")

    def test_they_follow_the_times_and_not_the_noise(self):
        shares, dice = Shares(12), random.Random(1)
        shares.begin(3)
        for _ in range(100):
            shares.measured([1 + dice.uniform(-0.2, 0.2) for _ in range(3)])
            self.assertEqual([4, 4, 4], shares.now)
        for _ in range(30):
            shares.measured([1.0, 1.0, 2.5])
        self.assertEqual([5, 5, 2], shares.now)
        for _ in range(100):
            shares.measured([1 + dice.uniform(-0.1, 0.1), 1, 2.5 + dice.uniform(-0.1, 0.1)])
            self.assertEqual([5, 5, 2], shares.now)
        shares.measured([0, 1.0, 2.5])  # one has computed nothing
        self.assertEqual([5, 5, 2], shares.now)
        for _ in range(30):
            shares.measured([1.0, 1.0, 1.0])
        self.assertEqual([4, 4, 4], shares.now)
        shares.begin(2)
        self.assertEqual([6, 6], shares.now)


class Ranks(unittest.TestCase):
    """Plain torch.distributed, with torchrun's environment."""

    def test_alone(self):
        launch.check(self, "tests.ranks.reproducible", 1)

    def test_three(self):
        launch.check(self, "tests.ranks.reproducible", 3)

    def test_replicas_of_a_sharded_model(self):
        launch.check(self, "tests.ranks.reproducible_replicas", 4)


class Histories(unittest.TestCase):
    """Whatever dies, joins and leaves, the weights are those of one worker alone, and nothing is computed again but
    what the dead have taken with them."""

    def check(self, name, steps, known=1):
        """known is the last step that may be computed again for another reason than a loss."""
        cluster = Cluster("tests.trainings", 6)
        self.addCleanup(cluster.close)
        alone = cluster.run(name, steps, None, 1).hashes
        self.assertEqual(1, len(alone))
        for world in range(2, 7):
            self.assertEqual(alone, cluster.run(name, steps, None, world).hashes, f"{world} ranks")
        deaths = again = 0
        for seed in range(HISTORIES):
            history = cluster.run(name, steps, seed, witness=bool(seed % 2))
            self.assertEqual(alone, history.hashes, f"history {seed}")
            for one, ranks in history.computed.items():
                if one[0] > known and not seed % 2:  # the first steps find how large gradients are
                    self.assertEqual(len(ranks) - 1, history.void.get(one, 0), f"history {seed}, {one}")
                    again += len(ranks) - 1
                elif one[0] > 1 and not seed % 2:
                    self.assertLessEqual(len(ranks) - 2, history.void.get(one, 0), f"history {seed}, {one}")
            deaths += history.deaths
            self.check_account(history, range(steps), known if not seed % 2 else steps)
            if (seed + 1) % 100 == 0 or seed + 1 == HISTORIES:
                print(
                    f"{name}: {seed + 1} histories, {deaths} deaths, {again} micro-batches computed again", flush=True
                )
        self.assertGreater(deaths, HISTORIES)
        self.assertGreater(again, 0)

    def check_account(self, history, steps, known):
        """What the ranks say of who has computed what is so; they know of at least as much that was lost as was
        computed again, as a rank may have died before it had computed what it had to; unless all are lost who knew."""
        self.assertEqual(1, len({str(entries) for entries in history.dealt}))
        lost = collections.Counter()
        for e in history.dealt[0]:
            for step in range(e["first"], e["last"] + 1):
                lost[step] = e["again"]
                for m, rank in enumerate(e["ranks"]):
                    self.assertIn(
                        history.members[e["generation"]][rank], history.computed[step, m], f"{step}, {m}: {e}"
                    )
        self.assertEqual(set(steps), set(lost))
        for step in steps[known + 1 :]:
            again = sum(len(history.computed[step, m]) - 1 for m in range(len(e["ranks"])))
            if step not in history.forgotten:
                self.assertLessEqual(again, lost[step], f"step {step}")
            if not history.deaths:
                self.assertEqual(0, lost[step])

    def test_convolutional(self):
        self.check("convolutional", 12)

    def test_characters(self):
        self.check("characters", 12)

    def test_gradients_that_come_twice(self):
        """What is found of them in a step is known to all who go on with it."""
        self.check("convolutional of two losses", 6, known=2)


class Faults(unittest.TestCase):
    """One bit changes on one rank of three, once or again and again: that rank is found out, and no other."""

    def test_bits_that_change(self):
        cluster, dice, steps = Cluster("tests.trainings", 3), random.Random(7), 40
        self.addCleanup(cluster.close)
        right = cluster.run("convolutional", steps, None, 3).hashes
        count, slow = collections.Counter(), 0
        for n in range(FAULTS):
            kind, permanent = dice.choice(("gradient", "weight", "momentum")), dice.random() < 0.5
            fault = Fault(kind, dice.randrange(2, 5), permanent, n)
            rank = dice.randrange(3)
            witness = dice.choice(WITNESSES)
            found, others, hashes = cluster.faulty("convolutional", steps, rank, fault, witness)
            self.assertEqual([], others, f"rank {rank} has {fault}")
            if kind != "gradient":  # a change of the state is seen when the ranks compare theirs
                if found is None:  # rounding has taken it away
                    self.assertEqual(right, hashes, f"rank {rank} has {fault}")
                else:
                    # What changes in each step may be as it was when the ranks look.
                    self.assertLessEqual(found - fault.step, CHECK_EVERY * (1 + permanent), f"rank {rank} has {fault}")
            elif witness == 6:
                self.assertTrue(found is not None or hashes == right, f"rank {rank} has {fault}")
            elif permanent:
                slow += found is None or found - fault.step > 30  # 5 V steps
            end = "found" if found is not None else "of no effect" if hashes == right else "not found"
            count[kind, permanent, witness, end] += 1
        for (kind, permanent, witness, end), times in sorted(count.items()):
            often = "in each micro-batch" if permanent else "once"
            print(f"{kind} {often}, {witness} of 6 computed twice: {times} {end}", flush=True)
        self.assertLessEqual(slow, max(1, FAULTS // 1000))


class Example(unittest.TestCase):
    """What docs/reproducible.md says of examples/reproducible/train.py."""

    def hashes(self, output, world):
        found = re.findall(rf"rank \d of {world}: sha256 ([0-9a-f]{{64}})", output)
        self.assertEqual(world, len(found), output)
        return set(found)

    def test_alone_under_a_launcher_and_as_a_job(self):
        command = [*example("reproducible", "train.py"), "--steps", "40"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        (alone,) = launch.ended([subprocess.Popen(command, env=launch.environment(), **options)])
        one = self.hashes(alone, 1)
        launched = launch.ended([subprocess.Popen(command, env=env, **options) for env in launch.ranks(3)])
        self.assertEqual(one, self.hashes("".join(launched), 3))
        with Job("--recovery", "in-process", "--workers", "2", "--", *command) as job:
            job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(one, self.hashes(job.output, 2))


class Jobs(unittest.TestCase):
    """Whole jobs, whose workers kill themselves anywhere."""

    def run_job(self, deaths, workers="1:4", steps=150, **env):
        """The hash of the weights at the end and that of the state which the job shows, how many workers have died, and
        how many micro-batches were computed again."""
        with tempfile.TemporaryDirectory() as records:
            env = {"RECORDS": records, "DEATHS": deaths, "STEPS": str(steps), "BACKEND": "", **env}
            run = ["--recovery", "in-process", "--workers", workers, "--max-restarts", "1000", "--"]
            with Job(*run, *script("reproducible.py"), env={"TRAINING": "convolutional", **env}) as job:
                job.wait()
            self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
            died, again = self.count(records, steps, sharded="SHARDED" in env)
        (ends,) = {row["hash"] for row in job.lines(r"\bends size=")}
        self.assertEqual(steps, job.summary["state_hash"]["step"], job.output)
        return (ends, job.summary["state_hash"]["hash"]), died, again

    def count(self, records, steps, sharded):
        """Compares what the workers have recorded: how many have died, and how many micro-batches were computed again,
        which are results that died with a worker."""
        computed, died = collections.defaultdict(list), {}
        for name in os.listdir(records):
            with open(os.path.join(records, name), encoding="utf-8") as f:
                for what, step, *m in map(str.split, f):
                    if what == "dies":
                        died[name] = int(step)
                    else:
                        computed[int(step), int(m[0])].append(name)
        if sharded:  # what a rank had added up is lost with it
            return len(died), None
        again = 0
        for one in ((step, m) for step in range(2, steps) for m in range(6)):  # the first find how large gradients are
            lasting = [name for name in computed[one] if died.get(name) != one[0]]
            self.assertLessEqual(len(lasting), 1, f"{one} was computed by {computed[one]}")
            self.assertGreaterEqual(len(computed[one]), 1, f"{one} was not computed")
            again += len(computed[one]) - 1
        return len(died), again

    def test_workers_die(self):
        """The weights are those of one worker alone, and what is computed again died with a worker."""
        alone, died, again = self.run_job("0", workers="1")
        self.assertEqual((0, 0), (died, again))
        for backend in "", "gloo":
            with self.subTest(backend=backend):
                ends, died, again = self.run_job("0.001", BACKEND=backend)
                self.assertEqual(alone, ends)
                print(f"{backend or 'engine'}: {died} died, {again} micro-batches computed again", flush=True)

    def test_a_worker_that_computes_wrongly(self):
        """It is named as the cause, its slot gets no more work, and the others go on from a state without its part."""
        alone, _, _ = self.run_job("0", workers="1", steps=100)
        for mode in "copied", "live":
            with self.subTest(mode):
                with tempfile.TemporaryDirectory() as folder:
                    often = {"REGROUP_CHECKPOINT_DIR": folder, "REGROUP_CHECKPOINT_EVERY": "1ms"}
                    job = self.run_wrong(BACKEND="", TRAINING="convolutional", COMMIT_MODE=mode, **often)
                    files = os.listdir(folder)
                self.assertRegex(job.output, r"all go back to step (\d+), which is verified")
                (step,) = re.findall(r"all go back to step (\d+), which is verified", job.output)
                wrong = re.findall(r"wrong from step (\d+) on", job.output)
                self.assertLessEqual(int(step), int(wrong[0]), job.output)
                self.assertEqual(alone[1], job.summary["state_hash"]["hash"], job.output)
                self.check_checkpoints(files, job, int(step))

    def test_two_workers_of_which_one_computes_wrongly(self):
        """Nobody knows which one it is, so both end; a job that begins anew finds nothing that may be wrong."""
        with tempfile.TemporaryDirectory() as records, tempfile.TemporaryDirectory() as folder:
            env = {"RECORDS": records, "DEATHS": "0", "STEPS": "100", "WRONG": "1", "WRONG_OF": "2"}
            env |= {"BACKEND": "", "TRAINING": "convolutional"}
            env |= {"REGROUP_CHECKPOINT_DIR": folder, "REGROUP_CHECKPOINT_EVERY": "1ms"}
            run = "--recovery in-process --workers 2 --max-restarts 0 --".split()
            with Job(*run, *script("reproducible.py"), env=env) as job:
                job.wait()
            files = os.listdir(folder)
        self.assertEqual("failed", job.summary.get("outcome"), job.output)
        self.assertIn("no majority says who is right", job.output)
        (step,) = re.findall(r"checkpoints after step (\d+), which is verified, are removed", job.output)
        wrong = re.findall(r"wrong from step (\d+) on", job.output)
        self.assertLessEqual(int(step), int(wrong[0]), job.output)
        self.check_checkpoints(files, job, int(step), of=2)

    def check_checkpoints(self, files, job, step, of=3):
        """None has the wrong results, and there are some that are verified."""
        found = {re.fullmatch(r"run-\d+\.generation-(\d+)\.step-(\d+)\.checkpoint(\.verified)?", f) for f in files}
        self.assertNotIn(None, found, files)
        of_all = max(g["generation"] for g in job.summary["generations"] if len(g["members"]) == of)
        self.assertEqual([], [f[0] for f in found if int(f[1]) == of_all and int(f[2]) > step], files)
        verified = {f[0] for f in found if f[3]}
        self.assertTrue(verified, files)
        self.assertLessEqual(verified, {f[0] + ".verified" for f in found if not f[3]}, files)

    def test_a_worker_with_parts_of_the_model_that_computes_wrongly(self):
        """The same, but what it has done before it is found stays: nobody has the state of before."""
        job = self.run_wrong(BACKEND="gloo", TRAINING="characters", SHARDED="1")
        self.assertIn("there is no verified commit, so they stay", job.output)

    def run_wrong(self, **env):
        with tempfile.TemporaryDirectory() as records:
            env = {"RECORDS": records, "DEATHS": "0", "STEPS": "100", "WRONG": "1", **env}
            run = ["--recovery", "in-process", "--workers", "2:3", "--", *script("reproducible.py")]
            with Job(*run, env=env) as job:
                job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertIn("silent-corruption", [incident["cause"] for incident in job.summary["incidents"]], job.output)
        self.assertRegex(job.output, r"/1 died: regroup.errors.SilentCorruptionError: rank \d has another result")
        slots = [set(slots) for slots in job.pids()]
        self.assertIn(({0, 1, 2}, {0, 2}), list(zip(slots, slots[1:])), job.output)
        self.assertNotIn(1, job.pids()[-1], job.output)
        return job

    def test_workers_with_parts_of_the_model_die(self):
        """Dealt or not, by fully_shard: the weights are the same."""
        alone, _, _ = self.run_job("0", workers="1", TRAINING="characters", steps=60)
        ends, died, _ = self.run_job("0.001", TRAINING="characters", steps=60, BACKEND="gloo", SHARDED="1")
        self.assertEqual(alone, ends)
        print(f"fully_shard: {died} died", flush=True)


if __name__ == "__main__":
    unittest.main()
