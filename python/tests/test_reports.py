"""What is told of a report when more come than are sent."""

import json
import os
import threading
import unittest
from unittest import mock

import regroup
from regroup import agent, reporting


class Reports(unittest.TestCase):
    def test_a_value_is_not_lost_with_the_report_before(self):
        sent, here, go = [], threading.Event(), threading.Event()

        def call(method, path, body):
            sent.append(json.loads(json.dumps(body)))
            here.set()
            self.assertTrue(go.wait(60))

        reporter = reporting._Reporter()
        with mock.patch.object(agent, "call", call), mock.patch.object(reporting, "_INTERVAL", 0):
            reporter.submit({"generation": 1, "step": 1, "samples": 0, "metrics": {"loss": 3.0}})
            self.assertTrue(here.wait(60))  # the others wait for this one
            reporter.submit({"generation": 1, "step": 2, "samples": 8, "metrics": {"loss": 2.0}})
            reporter.submit({"generation": 1, "step": 0, "samples": 0, "metrics": {"accuracy": 0.5}})
            reporter.submit({"generation": 1, "step": 3, "samples": 9, "metrics": {}})
            go.set()
            reporter._flush()
        self.assertEqual(2, len(sent), sent)
        self.assertEqual(
            {
                "generation": 1,
                "step": 3,
                "samples": 9,
                "metrics": {"loss": 2.0, "accuracy": 0.5},
                "metrics_step": 2,
            },
            sent[1],
        )

    def test_an_old_generation_is_forgotten(self):
        reporter = reporting._Reporter()
        reporter._pid = os.getpid()  # nobody sends
        reporter.submit({"generation": 1, "step": 2, "samples": 0, "metrics": {"loss": 2.0}})
        reporter.submit({"generation": 2, "step": 1, "samples": 0, "metrics": {}})
        self.assertEqual({}, reporter._newest["metrics"])


class Traces(unittest.TestCase):
    def test_the_generation_comes_before_the_process(self):
        world = mock.Mock(traceparent="")
        with mock.patch.dict(os.environ, {"TRACEPARENT": "of the process"}):
            self.assertEqual("of the process", regroup.traceparent())
            with mock.patch.object(reporting, "_world", lambda: world):
                self.assertEqual("of the process", regroup.traceparent())  # before the first one
                world.traceparent = "of the generation"
                self.assertEqual("of the generation", regroup.traceparent())
        with mock.patch.dict(os.environ):
            os.environ.pop("TRACEPARENT", None)
            self.assertIsNone(regroup.traceparent())


if __name__ == "__main__":
    unittest.main()
