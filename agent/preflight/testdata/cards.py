"""GPUs with faults, for tests: what a GPU does is in its id, as in GPU-slow-1. Figures are the same on each machine."""

import os
import time


def device(base):
    class Card(base):
        def __init__(self, gpu):
            if "unborn" in gpu:
                raise RuntimeError("No CUDA GPUs are available")
            if "asleep" in gpu:
                time.sleep(3600)
            super().__init__(gpu)
            self.model, self.multiplied = "NVIDIA H100 80GB HBM3", 0

        def multiply(self, a, b, into):
            if "hang" in self.gpu:
                time.sleep(3600)
            if "crash" in self.gpu:
                os.write(2, b"Xid 79: fallen off the bus\n")
                os.abort()
            if "ecc" in self.gpu:
                raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCompile with TORCH_USE_CUDA_DSA")
            self.multiplied += 1
            super().multiply(a, b, into)
            if "wrong" in self.gpu:
                into[3, 5] += 1

        def keep(self, chunk):
            if "memory" in self.gpu:
                chunk[7] ^= 1 << 20

        def seconds(self, what, work):
            self.multiplied = 0
            work()
            if what == "matmul":
                return self.multiplied * 2 * self.matrix**3 / (412e12 if "slow" in self.gpu else 650e12)
            copied = {"memory_copy": 2 * self.copied / 3000e9}
            copied["host_to_device_gb_per_s"] = self.pinned / (25e9 if "link" in self.gpu else 50e9)
            copied["device_to_host_gb_per_s"] = self.pinned / 50e9
            copied["all_reduce"] = 2 * self.reduced / 300e9
            return copied.get(what, 1e-3)

    return Card
