"""Client on a cluster with an agent and a gateway of its own."""

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import regroup
from regroup import client as module

from . import launch
from .jobs import binary


def until(true, seconds: float = 60.0) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the condition does not become true")
        time.sleep(0.02)


class Cutter:
    """A proxy that breaks its connections to a gateway after so many bytes of the answer."""

    def __init__(self, to: str, after: int):
        self._to, self._after = int(to.rsplit(":", 1)[1]), after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._copy, args=(here,), daemon=True).start()

    def _copy(self, here: socket.socket) -> None:
        with here, socket.create_connection(("127.0.0.1", self._to)) as there:
            there.sendall(here.recv(65536))
            left = self._after
            while left > 0:
                data = there.recv(left)
                if not data:
                    break
                try:
                    here.sendall(data)
                except OSError:  # the client has gone
                    break
                left -= len(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="regroup-")
        cls.addClassCleanup(cls.folder.cleanup)
        environment = launch.environment(REGROUP_GATEWAY_LISTEN="127.0.0.1:0")
        with open(os.path.join(cls.folder.name, "log"), "w", encoding="utf-8") as log:
            up = subprocess.Popen(
                [binary(), "up", "--dashboard", "--listen", f"127.0.0.1:{launch.free_port()}", "--slots", "2",
                 "--state-dir", cls.folder.name],
                env=environment, stdout=log, stderr=subprocess.STDOUT,
            )
        cls.addClassCleanup(up.wait, 60)
        cls.addClassCleanup(up.send_signal, signal.SIGINT)
        until(lambda: os.path.exists(os.path.join(cls.folder.name, "gateway.json")))
        cls.client = regroup.Client(state_dir=cls.folder.name)
        until(lambda: cls.client.list_nodes())

    def test_a_job_from_submit_to_removal(self):
        c = self.client
        job = c.submit_job(["sh", "-c", "echo rank $RANK of $WORLD_SIZE"], workers=2, name="hello", labels={"team": "a"})
        lines = sorted(c.tail_job_logs(job))
        self.assertEqual(["rank 0 of 2", "rank 1 of 2"], lines)
        self.assertEqual("succeeded", c.wait_for_job_status(job, timeout=60)["state"])
        self.assertEqual(lines, sorted(c.get_job_logs(job).splitlines()))
        self.assertEqual("rank 1 of 2\n", c.get_job_logs(job, rank="1"))
        self.assertIn(f"<title id=\"title\">timeline of {job}</title>", c.timeline(job))
        self.assertIn("src='data:image/svg+xml;base64,", c.get_job(job)._repr_html_())
        self.assertEqual([job], [j["job"] for j in c.list_jobs(text="WORLD_SIZE", state="succeeded")])
        kinds = []
        for _, e in c.events(job, type="job.*"):  # the fact follows the state
            kinds.append(e["type"])
            if e["type"] == "dev.regroup.job.succeeded.v1":
                break
        self.assertEqual("dev.regroup.job.submitted.v1", kinds[0])
        c.delete_job(job)
        with self.assertRaises(module.ClientError) as e:
            c.get_job(job)
        self.assertEqual(("not_found", 404), (e.exception.code, e.exception.status))

    def test_a_progress_bar_is_a_line_when_it_is_finished(self):
        c = self.client
        with tempfile.TemporaryDirectory() as folder:
            go = os.path.join(folder, "go")
            script = rf"printf '\r 10%%\r 20%%'; until test -e {go}; do sleep 0.01; done; printf '\r100%%\n'; echo ends"
            job = c.submit_job(["sh", "-c", script], name="bar")
            until(lambda: c.get_job_logs(job) == " 20%\n")
            with open(go, "w", encoding="utf-8"):
                pass
            self.assertEqual(["100%", "ends"], list(c.tail_job_logs(job)))
            self.assertEqual("100%\nends\n", c.get_job_logs(job))

    def test_a_running_job_is_scaled_and_stopped(self):
        c = self.client
        job = c.submit_job("sleep 600", workers=(1, 2), name="sleeper")
        self.assertEqual("running", c.wait_for_job_status(job, "running", timeout=60)["state"])
        self.assertEqual({"min": 1, "max": 1}, c.scale_job(job, 1)["spec"]["workers"])
        self.assertIn("sleeper", c.explain_job(job)["job"])
        with self.assertRaises(TimeoutError):
            c.wait_for_job_status(job, timeout=0.1)
        c.stop_job(job, "enough", now=True)
        self.assertEqual("stopped", c.wait_for_job_status(job, timeout=60)["state"])
        self.assertEqual({}, c.get_job_metrics(job))

    def test_every_fault_of_a_job_is_told(self):
        with self.assertRaises(module.ClientError) as e:
            self.client.submit_job("true", name="No Name", workers=(3, 2), mane="x")
        self.assertEqual("invalid", e.exception.code)
        paths = {f["path"] for f in e.exception.errors}
        self.assertLessEqual({"name", "mane"}, paths)
        with self.assertRaises(module.ClientError) as e:
            self.client.get_job("../nodes")
        self.assertIn(e.exception.code, ("invalid", "not_found"))

    def test_a_plan_submits_nothing(self):
        c = self.client
        before = {j["job"] for j in c.list_jobs()}
        self.assertEqual(c.plan("python -u lab/Train_All.py --epochs 3")["spec"]["name"], "train-all")
        self.assertEqual(c.plan(["/bin/true"])["spec"]["name"], "true")
        waits = c.plan("sleep 60", workers=3, name="planned")
        self.assertFalse(waits["fits"])
        self.assertIn("planned would wait: it needs 3 slots", waits["plan"])
        self.assertEqual(3, waits["forecast"]["workers"]["max"])
        fits = c.plan_spec("name: planned\ncommand: [sleep, '60']\nworkers: {min: 1, max: 2}\n")
        self.assertIn(fits["forecast"]["starts"], (True, False))  # other tests may have the slots
        self.assertEqual(["sleep", "60"], fits["spec"]["command"])
        with self.assertRaises(module.ClientError) as e:
            c.plan([], name="X y")
        self.assertIn("name", [f["path"] for f in e.exception.errors])
        self.assertEqual(before, {j["job"] for j in c.list_jobs()})

    def test_a_published_command_is_answered(self):
        e = {
            "specversion": "1.0", "id": "one", "source": "/client/python", "type": "dev.regroup.job.submit.v1",
            "data": {"spec": {"name": "event", "command": ["true"], "workers": {"min": 1, "max": 1}}},
        }
        first, again = self.client.publish(e)[0], self.client.publish(e)[0]
        self.assertEqual(first, again)
        for _, fact in self.client.events(first["job"], type="job.*"):
            if fact["type"] == "dev.regroup.job.succeeded.v1":
                break
        self.assertEqual("succeeded", self.client.wait_for_job_status(first["job"], timeout=60)["state"])

    def test_streams_go_on_after_broken_connections(self):
        c = self.client
        text = "\n".join(str(n) for n in range(200))
        job = c.submit_job(["printf", "%s\\n", *text.split("\n")], name="printer")
        c.wait_for_job_status(job, timeout=60)
        cutter = Cutter(c.url, 8000)
        self.addCleanup(cutter.close)
        through = regroup.Client(cutter.url, c._token)
        self.assertEqual(text.split("\n"), list(through.tail_job_logs(job)))
        self.assertGreater(cutter.connections, 3)
        cutter.connections = 0
        all_of = [at for at, _ in c.events(job, follow=False)]
        self.assertEqual(all_of, [at for at, _ in through.events(job, follow=False)])
        self.assertGreater(cutter.connections, 0)

    def test_without_a_gateway(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            url = f"http://127.0.0.1:{s.getsockname()[1]}"
        with self.assertRaises(module.ClientError) as e:
            regroup.Client(url, "x", patience=0.1).list_jobs()
        self.assertEqual("unavailable", e.exception.code)
        with tempfile.TemporaryDirectory() as empty, self.assertRaises(module.ClientError) as e:
            regroup.Client(state_dir=empty)
        self.assertEqual("not_found", e.exception.code)
        for url, token in (("127.0.0.1:80", "x"), ("ftp://x", "x"), ("http://x", "")):
            with self.assertRaises(regroup.InvalidArgumentError):
                regroup.Client(url, token)
