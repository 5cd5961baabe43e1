"""A job with a sharded model whose workers are killed at random moments, and replaced: at any time the
ranks have together what one process computes, and no step is lost or made again that counted.

KILLS is how many are killed (4), SEED the seed of the moments.
"""

import collections
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
import unittest
from itertools import islice

from .jobs import LIMIT, Job, script, some
from .scripts.exact import known

KILLS, SEED = int(os.environ.get("KILLS", "4")), int(os.environ.get("SEED", "1"))


def without_steps(log):
    return "\n".join(row for row in log.splitlines() if " made at=" not in row)


class Watched:
    """What the workers of a running job have told."""

    def __init__(self, job):
        self.job, self._log, self._rest = job, open(job.path, encoding="utf-8"), ""
        self.entered = []  # in the order in which they have told it
        self.steps = collections.defaultdict(list)  # by generation: the process and the time of each
        self.killed = set()

    def close(self):
        self._log.close()

    def until(self, condition, needed=()):
        """Waits until what was told meets a condition, which is returned. None of the processes that are
        needed for it may end before."""
        limit = time.monotonic() + LIMIT
        while True:
            *lines, self._rest = (self._rest + self._log.read()).split("\n")
            for line in lines:
                told = dict(re.findall(r"(\w+)=(\S+)", line))
                if re.search(r"\benters at=", line):
                    self.entered.append(told)
                elif re.search(r"\bmade at=", line):
                    self.steps[int(told["gen"])].append((told["pid"], float(told["at"])))
            met = condition()
            if met:
                return met
            gone = [pid for pid in needed if not os.path.exists(f"/proc/{pid}")]
            if gone or time.monotonic() > limit or self.job.process.poll() is not None:
                newest = max(self.steps, default=0)
                steps = collections.Counter(pid for pid, _ in self.steps[newest])
                raise AssertionError(
                    f"{without_steps(self.job.log())}\nkilled {self.killed}, ended by themselves {gone}, entered "
                    f"{self.entered[-6:]}, steps in generation {newest} by process {dict(steps)}"
                )
            time.sleep(0.01)  # other processes give no other sign

    def members(self, moment):
        """The processes of the newest generation, if each of them has made three steps in it since some
        moment: then all that was lost with others before has copies again. Else none."""
        newest = max((int(e["gen"]) for e in self.entered), default=0)
        entered = [e for e in self.entered if int(e["gen"]) == newest]
        steps = [pid for pid, at in self.steps[newest] if at > moment]
        pids = [e["pid"] for e in entered]
        whole = entered and len(pids) == int(entered[0]["size"]) and all(steps.count(pid) >= 3 for pid in pids)
        return pids if whole and not self.killed.intersection(pids) else []

    def without(self, moment):
        """The steps in generations that began after the dead were killed."""
        living = {int(e["gen"]) for e in self.entered if float(e["at"]) > moment}
        return [step for generation in living for step in self.steps[generation]]

    def kill(self, pids):
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        self.killed.update(pids)


class Kills(unittest.TestCase):
    def check(self, kills, copies):
        """Kills workers, up to so many at once as there are copies, as long as two are left."""
        choice = random.Random(f"{SEED} {copies}")
        took = []
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            run = ["--recovery", "in-process", "--workers", "2:4", "--max-restarts", str(10 * kills + 10)]
            run += ["--", *script("exact.py")]
            with Job(*run, env={"COPIES": str(copies), "STOP": stop}) as job:
                watched = Watched(job)
                self.addCleanup(watched.close)
                done, moment = 0, 0.0
                while done < kills:
                    wanted = choice.choice((3, 4))  # with 3 another is on its way
                    members = watched.until(lambda: len(watched.members(moment)) >= wanted and watched.members(moment))
                    # Any place of a step, and any of the arrival of another.
                    time.sleep(choice.uniform(0, choice.choice((0.1, 2))))
                    moment = time.time()
                    if choice.random() < 0.2:
                        watched.kill([str(job.newest_worker())])  # maybe before it has come in
                        done += 1
                        continue
                    at = choice.randrange(len(members))
                    count = min(choice.randint(1, copies), len(members) - 2, kills - done)
                    victims = [members[(at + i) % len(members)] for i in range(count)]
                    watched.kill(victims)
                    done += count
                    rest = set(members) - set(victims)
                    watched.until(lambda: rest <= {pid for pid, _ in watched.without(moment)}, needed=rest)
                    steps = watched.without(moment)
                    took.append(max(min(at for pid, at in steps if pid == one) for one in rest) - moment)
                open(stop, "w").close()
                job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.books(job)
        return took

    def dies(self, *doomed):
        """Runs a job in which ranks die at places, one in each of the first generations, until there are
        four again."""
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            env = {"COPIES": "2", "STOP": stop, "DIES": ",".join(doomed)}
            with Job("--recovery", "in-process", "--workers", "2:4", "--", *script("exact.py"), env=env) as job:
                watched = Watched(job)
                self.addCleanup(watched.close)
                watched.until(lambda: any(int(e["gen"]) > len(doomed) for e in watched.entered))
                watched.until(lambda: len(watched.members(0.0)) == 4)
                open(stop, "w").close()
                job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(len(doomed), len(re.findall("died: killed by signal 9", job.output)), job.output)
        self.books(job)

    def test_while_the_others_begin_again(self):
        """Two die, the second one before the parts of the first have copies again."""
        for doomed in some((("1:3:backward", "2:0:build begins"), ("1:2:commit", "2:1:build ends"))):
            with self.subTest(doomed):
                self.dies(*doomed)

    def books(self, job):
        """What all have had, at each beginning and at the end; and which steps were made."""
        story = without_steps(job.output)
        entered, made, ends = (job.lines(rf"\b{what} at=") for what in ("enters", "made", "ends"))
        most = max(int(told["step"]) for told in made)
        hashes = list(islice(known(), most + 2))
        for told in entered + ends:
            self.assertEqual(hashes[int(told["step"])], told["hash"], story)
        self.assertEqual(most, int(ends[0]["step"]), story)
        self.assertEqual(int(ends[0]["size"]), len(ends), story)
        generations = sorted({int(told["gen"]) for told in entered})
        told_before = 0
        for generation in generations:
            begun = {int(told["step"]) for told in entered if int(told["gen"]) == generation}
            self.assertEqual(1, len(begun), story)
            # All have agreed on the newest commit that anybody told, so the one before is whole.
            self.assertGreaterEqual(min(begun), told_before - 1, story)
            for pid in {told["pid"] for told in entered if int(told["gen"]) == generation}:
                steps = [int(m["step"]) for m in made if m["pid"] == pid and int(m["gen"]) == generation]
                self.assertEqual(list(range(min(begun) + 1, min(begun) + 1 + len(steps))), steps, story)
                told_before = max([told_before, *steps])
        print(f"\n{most} steps in {len(generations)} generations", file=sys.stderr)

    def test_one_after_the_other(self):
        self.told(self.check(KILLS, copies=1))

    def test_two_at_once(self):
        self.told(self.check(KILLS, copies=2))

    def told(self, took):
        seconds = f"{min(took):.3f}, {statistics.median(took):.3f}, {max(took):.3f}"
        print(
            f"\n{len(took)} times; to the next step of the last survivor, s: {seconds} (least, median, most)",
            file=sys.stderr,
        )
