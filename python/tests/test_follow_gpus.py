"""What follow does on a GPU and with NCCL, shown with stand-ins on the host."""

import contextlib
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from regroup.torch.follower import ending, gpus, group, models


class Used(unittest.TestCase):
    def test_backends(self):
        """Of several backends one may be for GPUs; without a GPU none is."""
        backends = {"nccl": True, "nccl2": True, "cpu:gloo,cuda:nccl": True, "gloo": False, "cpu:gloo": False}
        for there in (True, False):
            with mock.patch.object(torch.cuda, "is_available", lambda there=there: there):
                self.assertEqual({b: v and there for b, v in backends.items()}, {b: gpus.used(b) for b in backends})


class Prepare(unittest.TestCase):
    """The host stands in for a GPU, and notes what CUDA would be asked for."""

    def setUp(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.calls = []
        reduce = dist.all_reduce

        def reduced(tensor):
            self.calls.append(f"all_reduce on {tensor.device}")
            reduce(tensor)

        def chosen(device):
            self.calls.append(f"chooses {device}")
            return contextlib.nullcontext()

        for name, stand_in in {
            "device": chosen,
            "current_blas_handle": lambda: self.calls.append("cublas"),
            "synchronize": lambda *device: self.calls.append("waits"),
            "is_initialized": lambda: False,
        }.items():
            self.patch(torch.cuda, name, stand_in)
        self.patch(dist, "all_reduce", reduced)

    def patch(self, where, name, value):
        patcher = mock.patch.object(where, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_the_device_of_the_group(self):
        gpus.prepare(torch.device("cpu"))
        self.assertEqual(["chooses cpu", "cublas", "all_reduce on cpu", "waits"], self.calls)

    def test_the_device_of_the_models(self):
        self.patch(models, "gpu", lambda: torch.device("cpu"))
        gpus.prepare(None)
        self.assertEqual("chooses cpu", self.calls[0])

    def test_a_program_that_has_not_chosen(self):
        """No context is made on a GPU that the program may not want."""
        gpus.prepare(None)
        self.assertEqual([], self.calls)

    def test_models_on_the_host(self):
        models.record()
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        self.assertIsNone(models.gpu())
        del model

    def test_waiting_asks_gpus_in_use_alone(self):
        self.patch(torch.cuda, "device_count", lambda: 3)
        self.patch(torch._C, "_cuda_hasPrimaryContext", lambda device: device == 1)
        self.patch(torch.cuda, "synchronize", self.calls.append)
        gpus.wait()
        self.assertEqual([1], self.calls)


class Backend:
    """A backend of a group that notes what it is asked for."""

    def __init__(self, name, calls, error=None):
        self._name, self._calls, self._error = name, calls, error

    def abort(self):
        self._calls.append(f"abort {self._name}")
        if self._error is not None:
            raise self._error

    def get_error(self):
        return c10d.ErrorType.SUCCESS


class Group:
    """A group of several devices."""

    def __init__(self, calls, *backends):
        self._calls, self._all = calls, backends
        self._device_types = list(range(len(backends)))

    def _get_backend(self, device):
        return self._all[device]

    def shutdown(self):
        self._calls.append("shutdown")


class Ends(unittest.TestCase):
    def test_one_backend_for_two_devices_is_aborted_once(self):
        calls = []
        one = Backend("both", calls)
        ending.abort(Group(calls, one, one, Backend("other", calls)))
        self.assertEqual(["abort both", "abort other"], calls)

    def test_a_shutdown_waits_until_the_program_has_left(self):
        calls = []
        end = ending.Ending([Group(calls, Backend("a", calls, RuntimeError("it is over")))], True, self.fail)
        end.wait_aborted()
        self.assertEqual(["abort a"], calls)
        end.release(2)
        end.join()
        self.assertEqual(["abort a", "shutdown"], calls)
        self.assertGreaterEqual(end.ended, end.began)

    def test_groups_of_a_planned_change_are_not_aborted(self):
        calls = []
        end = ending.Ending([Group(calls, Backend("a", calls))], False, self.fail)
        end.release(2)
        end.join()
        self.assertEqual(["shutdown"], calls)

    def test_torch_forgets_its_groups_and_does_not_end_them(self):
        """They work on, and a group that is made next has the names of a new process."""
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        old, other = dist.group.WORLD, dist.new_group([0])
        self.assertEqual([other, old], ending.current())
        ending.forget()
        self.assertFalse(dist.is_initialized())
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.assertEqual([dist.group.WORLD], ending.current())
        self.assertEqual(1, group.group_count())
        tensor = torch.ones(1)
        old.allreduce([tensor]).wait()
        dist.all_reduce(tensor)
        for one in (other, old):
            one.shutdown()
        dist.all_reduce(tensor)
        self.assertEqual(1, tensor.item())


if __name__ == "__main__":
    unittest.main()
