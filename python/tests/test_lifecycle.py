"""What workers of an elastic job do before, in and after elastic.run: on one node, on two, with
deaths at every place."""

import os
import re
import tempfile
import unittest

from .jobs import Job, script, some
from .nodes import Nodes


class Lifecycle(unittest.TestCase):
    def until(self):
        """A file that is not there: when it is, training comes to its end."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return os.path.join(folder.name, "until")

    def start(self, *arguments, server=None, **env):
        job = Job("--recovery", "in-process", *arguments, "--", *script("around_run.py"), env=env, server=server)
        self.addCleanup(job.close)
        return job

    def run_job(self, *arguments, server=None, **env):
        return self.start(*arguments, server=server, **env).wait()

    def trained(self, job, world=2):
        """All that holds whatever happened: the last members agree, and nobody else says that it
        has trained."""
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        ends = job.lines(r"\bends pid=")
        self.assertEqual({str(r) for r in range(world)}, {e["rank"] for e in ends}, job.output)
        self.assertEqual(world, len(ends), job.output)
        self.assertEqual({str(world)}, {e["size"] for e in ends}, job.output)
        self.assertEqual({str((world - 1) / 2)}, {e["average"] for e in ends}, job.output)
        self.assertEqual(1, len({e["weights"] for e in ends}), job.output)
        self.assertEqual(world, len(job.lines(r"\breturns pid=.*value=trained")), job.output)
        told = {(t["told"], t["root"], t["total"], t["parts"]) for t in job.lines(r"\btold pid=")}
        self.assertEqual(1, len(told), f"workers were told different things\n{job.output}")
        self.assertEqual(1, len({w["sum"] for w in job.lines(r"\bweights pid=")}), job.output)

    def dealt(self, job):
        """Before elastic.run the ranks deal the samples among them."""
        inits = job.lines(r"\binits pid=")
        self.assertEqual({("0", "2"), ("1", "2")}, {(i["rank"], i["size"]) for i in inits}, job.output)
        deals = job.lines(r"\bdeals pid=")
        self.assertEqual({("0", "120"), ("1", "120")}, {(d["first"], d["samples"]) for d in deals}, job.output)
        self.assertEqual(1, len(job.lines(r"\bloads pid=")), "what rank 0 does alone is done once")

    def test_one_node(self):
        job = self.run_job("--workers", "2", AGAIN="1")
        self.trained(job)
        self.dealt(job)
        self.assertEqual({"0", "1"}, {i["local_rank"] for i in job.lines(r"\binits pid=")})
        refused = job.lines(r"\brefused pid=")
        self.assertEqual(2, len(refused), "a second elastic.run neither trains nor raises\n" + job.output)

    def test_who_ends_first_takes_nothing_from_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(
                "--recovery", "in-process", "--workers", "3", "--", *script("leaves_first.py"), env={"FOLDER": folder}
            )
            self.addCleanup(job.close)
            job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(["2.0", "2.0"], [s["total"] for s in job.lines(r"\bsums pid=")], job.output)

    def test_a_checkpoint(self):
        """All workers die at once, and begin with what was written last, in the agent's folder or in one that is given."""
        with tempfile.TemporaryDirectory() as folder:
            for where in some(({}, {"REGROUP_CHECKPOINT_DIR": folder})):
                with self.subTest(**where):
                    self.lose_all(**where)

    def lose_all(self, **where):
        job = self.run_job("--workers", "2:2", REGROUP_CHECKPOINT_EVERY="1ms", AT="train", ALL="1", STEP="0.1", **where)
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(2, len(job.lines(r"\bdies pid=")), job.output)
        enters = job.lines(r"\benters pid=")
        self.assertEqual([("0", "0"), ("0", "0")], [(e["epoch"], e["batch"]) for e in enters[:2]], job.output)
        self.assertEqual({"1"}, {e["epoch"] for e in enters[2:]}, job.output)

    def test_work_after_the_training(self):
        """It may take longer than the grace of a stop: nobody asks it to stop."""
        job = self.run_job("--workers", "2", "--stop-grace", "500ms", SAVE="3")
        self.trained(job)
        self.assertEqual(1, len(job.lines(r"\bsaved pid=")), job.output)

    def test_a_failure_after_the_training(self):
        """The exit code says that the model may not have been saved."""
        job = Job("--recovery", "in-process", "--workers", "2", "--", *script("fails_after.py"))
        self.addCleanup(job.close)
        job.wait()
        self.assertEqual(10, job.process.returncode, job.output)
        self.assertEqual("failed", job.summary.get("outcome"), job.output)
        self.assertIn("no space left for the model", job.log(), job.output)

    def test_two_nodes(self):
        with Nodes(a=1, b=1) as nodes:
            job = self.run_job("--workers", "2", server=nodes.server)
            self.trained(job)
            self.dealt(job)
            self.assertEqual({"0"}, {i["local_rank"] for i in job.lines(r"\binits pid=")})

            with self.subTest("a kill"):
                job = self.run_job("--workers", "2", server=nodes.server, AT="train")
                self.trained(job)
                self.dealt(job)

    def test_a_kill_in_training(self):
        """The one that comes again is needed at once, and prepares while the other waits."""
        job = self.run_job("--workers", "2:2", AT="train")
        self.trained(job)
        self.dealt(job)
        self.assertEqual(["2"], [i["attempt"] for i in job.lines(r"\binits pid=")][2:])

    def test_a_newcomer_beside_training(self):
        """The one that comes again prepares while the other trains on alone, and is given what was
        agreed on before."""
        until = self.until()
        job = self.start("--workers", "1:2", AT="train", STEP="0.05", UNTIL=until)
        job.until(r"enters pid=\d+ slot=1 attempt=2 ")
        open(until, "w").close()
        job.wait()
        self.trained(job)
        self.dealt(job)
        self.assertEqual([2, 1, 2], [g["world"] for g in job.summary["generations"]], job.output)

    def test_a_kill_before_training(self):
        for at in some(("init", "barrier", "object", "parameters")):
            with self.subTest(at):
                job = self.run_job("--workers", "2:2", AT=at)
                self.trained(job)
                self.assertEqual(1, len(job.lines(r"\bdies pid=")), job.output)
                self.assertEqual(1, len(job.lines(r"\bloads pid=")), job.output)
                pids = [{m["slot"]: m["pid"] for m in g["members"]} for g in job.summary["generations"]]
                self.assertEqual(1, len({g[0] for g in pids}), "the survivor was started again\n" + job.output)

    def test_an_operation_that_the_others_never_call(self):
        """It is an error of the newcomer, with a reason; nobody hangs."""
        until = self.until()
        job = self.start("--workers", "1:2", "--max-restarts", "3", AT="train", EXTRA="1", STEP="0.05", UNTIL=until)
        job.until("the others are in the function of elastic.run already")
        open(until, "w").close()
        job.wait()
        self.assertIn("the others are in the function of elastic.run already", job.output)
        self.assertEqual(1, len({e["rank"] for e in job.lines(r"\bends pid=")}), job.output)

    def test_a_worker_that_is_taken_out(self):
        """It ends, and does not go on as if it had trained; that is no failure."""
        with Nodes(a=1, b=1) as nodes:
            until = self.until()
            job = self.start("--workers", "1:2", server=nodes.server, STEP="0.05", UNTIL=until)
            job.until(r"enters .*size=2 ")
            nodes.command("node", "drain", "b")
            job.until(r"enters .*size=2 [^$]*enters .*size=1 ")
            open(until, "w").close()
            job.wait()
            self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
            self.assertEqual(1, len(job.lines(r"\breturns pid=")), job.output)
            self.assertEqual(1, len(job.lines(r"\bends pid=")), job.output)
            self.assertIn("0 failures", job.output)
            stays, goes = sorted(int(line["nice"]) for line in job.lines(r"\bgoes pid="))
            self.assertEqual(min(stays + 10, 19), goes, "it takes the processors from the one that trains")
            self.assertEqual([2, 1], [g["world"] for g in job.summary["generations"]][-2:])

    def test_a_failure_has_its_name(self):
        """An exception, sys.exit or a kill is blamed on who it is of, and the others hear of it
        before its process ends. A part of the state that keeps itself is that of the survivor, also
        if the one that comes again has rank 0."""
        for how, victim in some((("raise", "1"), ("exit", "0"), ("kill", "0"))):
            with self.subTest(how=how, victim=victim), tempfile.TemporaryDirectory() as folder:
                job = Job(
                    "--recovery", "in-process", "--workers", "2:2", "--", *script("own_handler.py"),
                    env={"HOW": how, "VICTIM": victim, "FOLDER": folder},
                )
                self.addCleanup(job.close)
                job.wait()
                self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
                self.assertEqual([victim], [n["lost"] for n in job.lines(r"\bnotices pid=")], job.output)
                self.assertEqual([victim], re.findall(r"✘ r(\d) on", job.output), job.output)
                self.assertIn(job.summary["incidents"][0]["cause"], ("worker-failed", "worker-lost"))
                if how != "kill":  # the process has waited for the other to notice, and then ended
                    self.assertLess(job.output.index("notices pid="), job.output.index("starts again"), job.output)
                ends = job.lines(r"\bends rank=")
                self.assertEqual({("0", "13", "True"), ("1", "13", "True")}, {(e["rank"], e["rows"], e["same"]) for e in ends})


if __name__ == "__main__":
    unittest.main()
