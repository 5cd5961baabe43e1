"""The program of agent/preflight, which measures GPUs, on the processor: with GPUs that are wrong, silent or gone."""

import json
import os
import subprocess
import sys
import time
import unittest

import torch

from . import launch

FOLDER = os.path.join(launch.ROOT, "..", "agent", "preflight")
CARDS = os.path.join(FOLDER, "testdata", "cards.py")
sys.path.insert(0, FOLDER)

import measurements  # noqa: E402


def measure(gpus, device=CARDS, *more):
    program = os.path.join(FOLDER, "measure.py")
    out = subprocess.run([sys.executable, program, "--gpus", gpus, "--device", device, *more], stdout=-1, timeout=300)
    if out.returncode:
        raise AssertionError("exit %d" % out.returncode)
    return json.loads(out.stdout)


class Measured(unittest.TestCase):
    def test_the_processor_takes_all_ways(self):
        found = measure("a,b", "cpu", "--seconds", "60")
        self.assertEqual(("cpu", torch.__version__), (found["device"], found["torch"]))
        for gpu in found["gpus"]:
            self.assertNotIn("failure", gpu)
            self.assertNotIn("not_measured", gpu)
            for figure in ("matmul_tflop_per_s", "memory_copy_gb_per_s", "host_to_device_gb_per_s"):
                self.assertGreater(gpu[figure], 0)
            self.assertEqual(16 << 20, gpu["memory_tested_bytes"])
        self.assertEqual(2, found["all_reduce"]["gpus"])
        self.assertGreater(found["all_reduce"]["bus_gb_per_s"], 0)

    def test_one_alone_reduces_with_nobody(self):
        found = measure("GPU-a", CARDS, "--seconds", "60")
        self.assertNotIn("all_reduce", found)
        self.assertNotIn("not_measured", found["gpus"][0])

    def test_instances_do_not_reduce(self):
        found = measure("MIG-a,MIG-b", CARDS, "--seconds", "60")
        self.assertNotIn("all_reduce", found)
        self.assertEqual("all_reduce", found["gpus"][0]["not_measured"])

    def test_one_that_never_starts_ends_nothing(self):
        found = measure("GPU-asleep,GPU-a", CARDS, "--start-seconds", "10", "--seconds", "60")
        asleep, other = found["gpus"]
        self.assertRegex(asleep["failure"], "^hangs: start, and nothing more for")
        self.assertEqual(650, other["matmul_tflop_per_s"])

    def test_all_that_never_start_are_the_problem_of_the_machine(self):
        found = measure("GPU-asleep-1,GPU-asleep-2", CARDS, "--start-seconds", "3")
        self.assertEqual("CUDA has started on no GPU within 3 s", found["problem"])
        self.assertEqual([False, False], ["failure" in gpu for gpu in found["gpus"]])

    def test_nothing_is_left_when_its_parent_ends(self):
        program = os.path.join(FOLDER, "measure.py")
        command = [sys.executable, program, "--gpus", "GPU-asleep", "--device", CARDS, "--start-seconds", "600"]
        start = "subprocess.Popen([*sys.argv[1:], '--parent', str(os.getpid())], stdout=2)"
        script = "import os, subprocess, sys\nprint(%s.pid)" % start
        out = subprocess.run([sys.executable, "-c", script, *command], stdout=-1, stderr=subprocess.DEVNULL)
        folder = "/proc/%d" % int(out.stdout)
        end = time.monotonic() + 300
        while os.path.exists(folder) and " Z " not in open(folder + "/stat").read():
            self.assertLess(time.monotonic(), end, "it runs on without its parent")
            time.sleep(0.1)


class Exact(unittest.TestCase):
    def test_a_product_in_any_order_and_type(self):
        d = measurements.Cpu("a")
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            d.dtype = dtype
            a, b, product = measurements.operands(d, 64)
            order = torch.randperm(64)
            self.assertTrue(torch.equal(product.double(), a[:, order].double() @ b[order].double()))
            self.assertGreater(len(product.unique()), 50)

    def test_what_an_error_says(self):
        for text, kind in {
            "CUDA error: uncorrectable ECC error encountered": "failure",
            "CUDA out of memory. Tried to allocate 20.00 MiB": "not_measured",
            "CUDA error: out of memory": "not_measured",
            "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate": "not_measured",
            "CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx": "failure",
            "CUDA error: no kernel image is available for execution on the device": "problem",
            "module 'torch' has no attribute 'x'": "problem",
        }.items():
            self.assertEqual(kind, measurements.kind(RuntimeError(text)), text)
        self.assertEqual("failure", measurements.kind(measurements.Wrong("x")))


if __name__ == "__main__":
    unittest.main()
