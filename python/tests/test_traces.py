"""What a process is told about the trace that it is part of."""

import unittest

from .jobs import Job, script


class Traces(unittest.TestCase):
    def test_a_generation_has_a_span_of_its_own_in_the_trace_of_the_process(self):
        with Job("--recovery", "in-process", "--workers", "2", "--", *script("told_its_trace.py")) as job:
            output = job.wait().lines("told process=")
        self.assertEqual("succeeded", job.summary["outcome"], job.output)
        parts = [[row[name].split("-") for name in ("process", "generation")] for row in output]
        self.assertEqual(1, len({part[1] for row in parts for part in row}), "traces")
        self.assertEqual(4, len({part[2] for row in parts for part in row}), "spans")


if __name__ == "__main__":
    unittest.main()
