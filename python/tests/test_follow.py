"""Whole jobs whose torch.distributed group follows the members."""

import re
import socket
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

import regroup.torch
import regroup.torch.distributed  # noqa: F401  for torch before 2.14
from regroup.errors import (
    InvalidArgumentError,
    RegroupError,
    UnsupportedError,
    WorkerLostError,
)
from regroup.torch.follower import group, meshes, models, store

from .jobs import Job, example, script


class Follow(unittest.TestCase):
    def run_job(self, **env):
        """A job of three workers, of which one dies, or as good as: the others stay, a new one takes
        its place, and the result is right."""
        run = ["--recovery", "in-process", "--workers", "2:3", "--"]
        job = Job(*run, *script("follows.py"), env={"DIES": "15", **env})
        self.addCleanup(job.close)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        first, *_, last = (set(g.values()) for g in job.pids())
        (dead,) = (int(d["pid"]) for d in job.lines(r"\bdies at="))
        self.assertEqual(first - {dead}, first & last, "a survivor was started again")
        sizes = {step["size"] for step in job.lines(r"\bsteps at=")}
        self.assertEqual({"2", "3"}, sizes, "the survivors have trained without the dead worker")
        ends = job.lines(r"\bends at=")
        self.assertEqual({str(pid) for pid in last}, {e["pid"] for e in ends}, job.output)
        self.assertEqual(1, len({e["checksum"] for e in ends}), job.output)
        samples = job.summary["samples"]
        counts = tuple(samples[k] for k in ("per_epoch", "missing", "repeated"))
        self.assertEqual((480, 0, 0), counts)
        return last

    def test_a_killed_worker_of_gloo(self):
        """The survivors go on in their processes with the same model; the newcomer has their
        weights and momenta, and its gradients go where theirs do."""
        self.assertEqual(3, len(self.run_job(BACKEND="gloo", EPOCHS="30")), "nobody has come")

    def test_a_killed_worker_of_regroup(self):
        """The same on the engine."""
        self.assertEqual(3, len(self.run_job(BACKEND="regroup", EPOCHS="30")), "nobody has come")

    def test_a_survivor_that_waits_for_a_survivor(self):
        """Gloo cannot be interrupted: it would wait for its timeout, which is half an hour."""
        self.run_job(BACKEND="gloo", WAITS="1", EPOCHS="4")

    def test_a_worker_that_hangs(self):
        """Gloo sees nothing of it: the job gives the worker up."""
        self.run_job(BACKEND="gloo", HANGS="1", EPOCHS="4")


class Example(unittest.TestCase):
    def test_ddp(self):
        """The example trains, a worker is killed in the middle, and it has learnt at the end."""
        job = Job("--recovery", "in-process", "--workers", "2:2", "--", *example("ddp", "train.py"))
        self.addCleanup(job.close)
        job.lose_newest("epoch 1: 2 workers")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertEqual(1, len(job.summary["incidents"]), job.output)
        self.assertLess(float(re.search(r"loss (\S+)", job.output)[1]), 0.01)
        samples = job.summary["samples"]
        counts = tuple(samples[k] for k in ("epochs", "per_epoch", "missing", "repeated"))
        self.assertEqual((20, 2048, 0, 0), counts)


class Groups(unittest.TestCase):
    def test_a_group_that_works(self):
        """It says so, whether it has a backend or is one: otherwise an error of the program would be another one."""
        for backend in ("gloo", "regroup"):
            with self.subTest(backend=backend):
                dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
                self.addCleanup(lambda: dist.is_initialized() and dist.destroy_process_group())
                self.assertFalse(group.DefaultGroup(backend).failed())
                dist.destroy_process_group()


class Meshes(unittest.TestCase):
    def test_operations_use_the_groups_of_their_generation(self):
        """DTensor computes once for all meshes that are equal, and in each thread: those of the backward
        passes of devices outlive a generation."""
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        meshes.record()
        with ThreadPoolExecutor(1) as thread:
            for _ in range(3):
                mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("parts",))
                part = DTensor.from_local(torch.ones(2), mesh, [Shard(0)])
                self.assertIs(mesh, (part + 1).device_mesh)
                self.assertIs(mesh, thread.submit(lambda part: part + 1, part).result().device_mesh)
                meshes.forget()


class Launcher(unittest.TestCase):
    def test_ranks_of_a_launcher(self):
        """With recovery by restart, as under torchrun, the same script has the ranks of the launcher,
        and elastic.run calls its function once."""
        job = Job("--workers", "2", "--", *script("follows.py"), env={"EPOCHS": "1"})
        self.addCleanup(job.close)
        job.wait()
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        ends = job.lines(r"\bends at=")
        self.assertEqual({"0", "1"}, {e["rank"] for e in ends}, job.output)
        self.assertEqual({"2"}, {e["size"] for e in ends}, job.output)
        self.assertEqual(1, len({e["checksum"] for e in ends}), job.output)


class Alone(unittest.TestCase):
    """Without a job there is a group of one."""

    def setUp(self):
        regroup.torch.follow("gloo")
        self.addCleanup(regroup.torch.shutdown)
        self.addCleanup(dist.destroy_process_group)

    def test_it_is_a_group(self):
        self.assertEqual((0, 1), (dist.get_rank(), dist.get_world_size()))
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        self.assertEqual([1, 1], tensor.tolist())

    def test_what_follow_refuses(self):
        for options in ({"rank": 0}, {"store": None, "world_size": 1}, {}):
            with self.assertRaises(InvalidArgumentError) as refused:
                regroup.torch.follow("gloo", **options)
            for name in options or ["init_process_group"]:
                self.assertIn(name, str(refused.exception))

    def test_a_model_over_another_group(self):
        """It would go on with the members that it was made for."""
        models.record()
        net = torch.nn.Linear(1, 1)
        model = DistributedDataParallel(net)
        models.check(dist.group.WORLD)
        other = DistributedDataParallel(net, process_group=dist.new_group([0]))
        with self.assertRaises(UnsupportedError):
            models.check(dist.group.WORLD)
        del other
        models.check(dist.group.WORLD)
        del model


class Store(unittest.TestCase):
    """The store of a group whose first rank has died."""

    def test_a_server_that_is_gone(self):
        """torch tries to connect for minutes, also when the job knows of the death."""
        with socket.socket() as s:  # its port refuses connections
            s.bind(("127.0.0.1", 0))
            group = store.GenerationStore()
            lost = WorkerLostError("rank 0 is lost")
            group.replace(None, f"127.0.0.1:{s.getsockname()[1]}", lambda: lost)
            with self.assertRaisesRegex(RegroupError, "rank 0 is lost"):
                group.set("a", "b")

    def test_it_connects_when_it_is_used(self):
        server, address = store.serve()
        group = store.GenerationStore()
        group.replace(None, address, lambda: None)
        group.set("a", "b")
        self.assertEqual((b"b", b"b"), (server().get("a"), group.get("a")))

    def test_a_torch_without_libuv(self):
        """Its TCPStore asks for a server with libuv all the same, unless told otherwise."""
        built = dist.TCPStore

        def without(*args, use_libuv=True, **options):
            if use_libuv:
                raise RuntimeError(
                    "use_libuv was requested but PyTorch was build without libuv support"
                )
            return built(*args, **options)

        with mock.patch.object(dist, "TCPStore", without):
            server, address = store.serve()
            server().set("a", "b")
            client = store.connect(address, lambda: None)
        self.assertEqual(b"b", client.get("a"))


class Renewed(unittest.TestCase):
    """What a DistributedDataParallel keeps when it gets a new reducer."""

    def setUp(self):
        regroup.torch.follow("gloo")
        self.addCleanup(regroup.torch.shutdown)
        self.addCleanup(dist.destroy_process_group)

        models.record()

    def test_hooks(self):
        """Communication hooks are called, once; gradients are right."""
        calls = []

        def hook(state, bucket):
            calls.append(state)
            future = torch.futures.Future()
            future.set_result(bucket.buffer() * 2)
            return future

        model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        model.register_comm_hook("state", hook)
        for round_ in range(3):
            models.renew()
            for _ in range(2):
                model.zero_grad()
                model(torch.full((1, 1), 3.0)).sum().backward()
                self.assertEqual(6.0, model.module.weight.grad.item())
            self.assertEqual(["state"] * 2 * (round_ + 1), calls)

    def test_a_backward_that_was_cut_off(self):
        """The next one is as if it had not been."""
        fails = []

        def hook(_, bucket):
            if fails:
                raise RuntimeError("cut off")
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        model.register_comm_hook(None, hook)
        fails.append(True)
        with self.assertRaises(RuntimeError):
            model(torch.ones(1, 1)).sum().backward()
        fails.clear()
        models.renew()
        model.zero_grad()
        model(torch.full((1, 1), 3.0)).sum().backward()
        self.assertEqual(3.0, model.module.weight.grad.item())


if __name__ == "__main__":
    unittest.main()
