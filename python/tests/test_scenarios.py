"""The scenarios of Horovod's elastic integration tests, with scripts of our own; docs/horovod.md
has the table."""

import os
import tempfile
import unittest

from .jobs import Job, script, some
from .nodes import Nodes


class Scenarios(unittest.TestCase):
    def fails(self, server, *arguments, **env):
        """A job in which workers fail at step 7."""
        with tempfile.TemporaryDirectory() as folder:
            job = Job(
                "--recovery", "in-process", *arguments, "--", *script("own_handler.py"),
                env={"FOLDER": folder, **env}, server=server,
            )
            self.addCleanup(job.close)
            return job.wait()

    def whole(self, job, world):
        """It ended with all workers, none of which has missed or repeated a step."""
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        ends = {(e["rank"], e["rows"], e["same"]) for e in job.lines(r"\bends rank=")}
        self.assertEqual({(str(r), "13", "True") for r in range(world)}, ends, job.output)

    def processes(self, job):
        """Processes by place, in each generation."""
        return [
            {(m["node"], m["slot"]): m["pid"] for m in g["members"]} for g in job.summary["generations"]
        ]

    def test_hosts_added_and_removed(self):
        for slots in some((2, 1)):
            with self.subTest(slots=slots), Nodes(a=slots) as nodes, tempfile.TemporaryDirectory() as folder:
                until = os.path.join(folder, "until")
                job = Job(
                    "--recovery", "in-process", "--workers", f"{slots}:{2 * slots}", "--", *script("around_run.py"),
                    env={"STEP": "0.05", "UNTIL": until}, server=nodes.server,
                )
                self.addCleanup(job.close)
                job.until(rf"enters .*size={slots} ")
                nodes.add("b", slots)
                job.until(rf"enters .*size={2 * slots} ")
                nodes.command("node", "drain", "a")
                job.until(rf"enters .*size={2 * slots} [^$]*enters .*size={slots} ")
                open(until, "w").close()
                job.wait()
                self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
                worlds = [g["world"] for g in job.summary["generations"]]
                self.assertEqual(slots, worlds[0], job.output)
                self.assertEqual([2 * slots, slots], worlds[-2:], job.output)  # one by one
                self.assertEqual({"b"}, {node for node, _ in self.processes(job)[-1]})
                last = [e for e in job.lines(r"\benters pid=") if e["size"] == str(slots)][-slots:]
                for e in last:
                    self.assertNotEqual(("0", "0"), (e["epoch"], e["batch"]), "the state was lost\n" + job.output)
                self.assertEqual(slots, len(job.lines(r"\breturns pid=")), "who was taken out ran on\n" + job.output)
                self.assertIn("0 failures", job.output)

    def test_single_rank_failure(self):
        """The one that fails is replaced; Horovod gives up its host, with all that it had."""
        with Nodes(a=2, b=2) as nodes:
            for how in some(("kill", "raise")):
                with self.subTest(how):
                    job = self.fails(nodes.server, "--workers", "4", HOW=how, VICTIM="0", ON="a")
                    self.whole(job, 4)
                    first, last = self.processes(job)[0], self.processes(job)[-1]
                    self.assertEqual([("a", 0)], [p for p in first if first[p] != last[p]], job.output)

    def test_a_failure_on_every_host(self):
        """Horovod has no host left then, and gives up; here the two are replaced."""
        with Nodes(a=2, b=2) as nodes:
            job = self.fails(nodes.server, "--workers", "4", HOW="kill", VICTIM="0")
            self.whole(job, 4)
            first, last = self.processes(job)[0], self.processes(job)[-1]
            self.assertEqual([("a", 0), ("b", 0)], sorted(p for p in first if first[p] != last[p]), job.output)

    def test_all_ranks_fail(self):
        """Once: the job begins again, within its budget. Always: it fails, and says why."""
        job = self.fails(None, "--workers", "2", HOW="kill", VICTIM="all")
        self.whole(job, 2)
        job = self.fails(None, "--workers", "2", "--max-restarts", "4", HOW="kill", VICTIM="all", LIVES="100")
        self.assertNotEqual(0, job.process.returncode)
        self.assertEqual("failed", job.summary.get("outcome"), job.output)
        self.assertIn("killed by signal 9", job.output)


if __name__ == "__main__":
    unittest.main()
