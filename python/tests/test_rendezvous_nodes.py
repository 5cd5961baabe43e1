"""Regroup's rendezvous handler as an agent sees it: who waits, who is redundant, and how it ends."""

import os
import signal
import tempfile
import threading
import time
import unittest
from unittest import mock

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousParameters,
    RendezvousTimeoutError,
)

from regroup import rendezvous_handler

from . import jobs, launch

#: Seconds for what a test waits for.
LIMIT = 300


class Round(threading.Thread):
    """A call of next_rendezvous, in a thread that ends with it."""

    def __init__(self, handler):
        super().__init__(daemon=True)
        self._handler, self.result, self.error = handler, None, None
        self.start()

    def run(self):
        try:
            found = self._handler.next_rendezvous()
            self.result = found[1:3] if isinstance(found, tuple) else (found.rank, found.world_size)
        except Exception as e:
            self.error = e

    def met(self):
        """The rank and the number of nodes."""
        self.join(LIMIT)
        if self.error is not None:
            raise self.error
        return self.result


def until(condition, what):
    """Waits for a condition, of which other processes give no sign."""
    limit = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(what)
        time.sleep(0.02)


class Nodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        variables = launch.environment(
            REGROUP_BINARY=jobs.binary(), REGROUP_STATE_DIR=folder.name, TMPDIR=folder.name
        )
        patched = mock.patch.dict(os.environ, variables, clear=True)
        patched.start()
        self.addCleanup(patched.stop)
        self._endpoint = f"127.0.0.1:{launch.free_port()}"
        self._handlers = []

    def handler(self, low, high, **config):
        """A node of the run; the first one serves the others."""
        params = RendezvousParameters(
            "regroup",
            self._endpoint,
            "run",
            low,
            high,
            is_host=not self._handlers,
            last_call_timeout=1,
            keep_alive_interval=1,
            keep_alive_max_attempt=2,
            **config,
        )
        made = rendezvous_handler.create(params)
        self._handlers.insert(0, made)
        self.addCleanup(made._leave)  # the one that serves the others comes last
        return made

    def tearDown(self):
        for handler in self._handlers:
            handler._leave()

    def test_the_thread_that_has_met_may_end(self):
        """The companion lives as long as the agent's process."""
        handlers = [self.handler(2, 2) for _ in range(2)]
        rounds = [Round(h) for h in handlers]
        self.assertEqual({(0, 2), (1, 2)}, {r.met() for r in rounds})
        for r in rounds:
            r.join()
        again = [Round(h) for h in handlers]
        self.assertEqual({(0, 2), (1, 2)}, {r.met() for r in again})

    def test_nodes_that_wait_are_counted(self):
        """One that gives up, or dies, counts no more, and nothing was restarted for it."""
        first = self.handler(1, 4)
        self.assertEqual((0, 1), Round(first).met())
        self.assertEqual(0, first.num_nodes_waiting())
        second, third = self.handler(1, 4), self.handler(1, 4)
        rounds = [Round(second), Round(third)]
        until(lambda: first.num_nodes_waiting() == 2, "two nodes wait")
        second._leave()
        until(lambda: first.num_nodes_waiting() == 1, "one has given up")
        os.kill(third._companion._process.pid, signal.SIGKILL)
        until(lambda: first.num_nodes_waiting() == 0, "the other has died")
        self.assertFalse(first._current.over, "the group was restarted for nothing")
        for r in rounds:
            r.join(LIMIT)
            self.assertIsNone(r.result)
        fourth = Round(self.handler(1, 4))
        until(lambda: first.num_nodes_waiting() == 1, "another node waits")
        self.assertEqual({(0, 2), (1, 2)}, {Round(first).met(), fourth.met()})
        self.assertEqual(0, first.num_nodes_waiting())

    def test_nobody_comes(self):
        alone = self.handler(2, 2, join_timeout=2)
        with self.assertRaises(RendezvousTimeoutError):
            Round(alone).met()

    def test_a_redundant_node_waits_for_ever(self):
        """It takes the place of one that leaves, long after join_timeout."""
        first, second = self.handler(1, 2), self.handler(1, 2)
        rounds = [Round(first), Round(second)]
        self.assertEqual({(0, 2), (1, 2)}, {r.met() for r in rounds})
        with mock.patch.object(rendezvous_handler, "AND_SAY_SO", 0.5):
            spare = self.handler(1, 2, join_timeout=600)
            spare._join_within = 0.5  # all nodes of a run have the same
            waits = Round(spare)
            until(lambda: spare._companion and spare._companion.node.membership == "spare", "it is a spare")
            past = time.monotonic() + 3
            until(lambda: time.monotonic() > past, "its limit is over")
            self.assertTrue(waits.is_alive(), waits.error)
            self.assertEqual(0, first.num_nodes_waiting())
        second._leave()
        until(lambda: first.num_nodes_waiting() > 0, "the group knows of it")
        self.assertEqual({(0, 2), (1, 2)}, {Round(first).met(), waits.met()})

    def test_closing_closes_the_run_for_all(self):
        first, second = self.handler(1, 2), self.handler(1, 2)
        rounds = [Round(first), Round(second)]
        self.assertEqual({(0, 2), (1, 2)}, {r.met() for r in rounds})
        self.assertFalse(first.is_closed() or second.is_closed())
        second.set_closed()
        until(lambda: first.is_closed() and second.is_closed(), "all know that it is closed")
        for handler in (first, second):
            with self.assertRaises(RendezvousClosedError):
                Round(handler).met()


if __name__ == "__main__":
    unittest.main()
