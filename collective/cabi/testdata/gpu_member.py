"""A rank with a GPU that is not there: it does what its input says, one command and one answer per line.

Arguments: the number of the GPU, and the driver that plays it. Its memory is the host's, so results can be looked at.
"""

import ctypes
import faulthandler
import sys

from regroup import _library as lib
from regroup.communicator import Endpoint
from regroup.errors import InvalidArgumentError, UnsupportedError, WorkerLostError
from regroup.gpu import Gpu

COUNT = 20000  # elements, of many chunks
CHUNK = 4096


class Driver:
    """The fake driver, as a framework in this process would use it."""

    def __init__(self, path, device):
        self.cuda = ctypes.CDLL(path)
        context, handle = ctypes.c_void_p(), ctypes.c_int()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(handle), device)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self("cuCtxSetCurrent", context)
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), 1)
        self.stream = stream.value

    def __call__(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def floats(self, count):
        """Memory of the GPU, as floats that can be read and written here."""
        at = ctypes.c_void_p()
        self("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(4 * count))
        return (ctypes.c_float * count).from_address(at.value)

    def living(self):
        """What has been made and not been given back, beside what this object has."""
        self.cuda.fakeLiving.restype = ctypes.c_long
        own = {b"contexts": 1, b"streams": 1}
        kinds = (b"contexts", b"streams", b"events", b"pinned", b"communicators")
        found = {k.decode(): self.cuda.fakeLiving(k) - own.get(k, 0) for k in kinds}
        return {k: n for k, n in found.items() if n}

    def settle(self):
        """Waits until all that is queued is done."""
        while self.cuda.cuStreamQuery(ctypes.c_void_p(self.stream)):
            pass


class Member:
    """One rank."""

    def __init__(self, device, driver):
        self.device, self.path, self.driver = device, driver, None
        self.endpoint = Endpoint()
        with open("/proc/self/maps", encoding="ascii") as f:
            assert "libcuda" not in f.read(), "loading the library has loaded CUDA"
        self.made = self.gpu = None

    def form(self, generation, rank, local_rank, local_size, *peers):
        """Joins a generation, with the GPU of the one before if there was one."""
        if self.made is not None:
            self.made.close()
        rank, before = int(rank), self.gpu
        self.made = self.endpoint.connect(
            job="gpu", generation=int(generation), token="t", rank=rank, world=len(peers), peers=peers
        )
        try:
            self.gpu = Gpu(
                self.made,
                self.device,
                int(local_rank),
                int(local_size),
                before=before,
                chunk_bytes=CHUNK,
            )
        except UnsupportedError as e:
            return "absent " + str(e)
        if before is not None:
            self.gone(before)
        if self.driver is None:
            self.driver = Driver(self.path, self.device)
        return "formed " + self.gpu.describe()["engine"]

    def gone(self, gpu):
        """The GPU of a generation that is over is used up."""
        try:
            gpu.close()
        except InvalidArgumentError:
            return
        raise AssertionError("it was still open")

    def reduce(self):
        """The allreduce of this rank's number plus one, started."""
        data = self.driver.floats(COUNT)
        data[:] = [self.made.rank + 1] * COUNT
        at, stream = ctypes.addressof(data), self.driver.stream
        return data, self.gpu.allreduce(at, COUNT, lib.FLOAT32, lib.SUM, stream, start=True)

    def check(self):
        """All operations, started and ordered on the stream."""
        world, rank, stream = self.made.world, self.made.rank, self.driver.stream
        total = world * (world + 1) / 2
        data, request = self.reduce()
        lib.wait(request)
        assert data[:] == [total] * COUNT, data[:4]
        at = ctypes.addressof(data)
        self.gpu.allreduce(at, COUNT, lib.FLOAT32, lib.AVERAGE, stream)
        self.gpu.allreduce(at, COUNT, lib.FLOAT32, lib.MAX, stream, wire=lib.FLOAT16)
        self.driver.settle()
        assert data[:] == [total] * COUNT, data[:4]
        data[:] = [rank] * COUNT
        self.gpu.broadcast(at, 4 * COUNT, world - 1, stream)
        every = self.driver.floats(COUNT * world)
        into = ctypes.addressof(every)
        self.gpu.allgather(at, into, 4 * COUNT, stream)
        # The host's own operations go on beside them.
        own = (ctypes.c_float * 1)(1)
        self.made.allreduce(ctypes.addressof(own), 1, lib.FLOAT32, lib.SUM)
        assert own[0] == world, own[0]
        self.driver.settle()
        assert every[:] == [world - 1] * COUNT * world, every[:4]
        data[:] = [rank] * COUNT
        lib.wait(self.gpu.allgather(at, into, 4 * COUNT, stream, start=True))
        for r in range(world):
            assert every[r * COUNT] == every[r * COUNT + COUNT - 1] == r, every[r * COUNT]
        return "right"

    def host(self):
        """An allreduce on the host's memory: what is left without a GPU."""
        own = (ctypes.c_float * 1)(1)
        self.made.allreduce(ctypes.addressof(own), 1, lib.FLOAT32, lib.SUM)
        return f"host {own[0]:g}"

    def fail(self):
        """Reduces until that fails, and tells who was lost."""
        try:
            while True:
                data, request = self.reduce()
                lib.wait(request)
                self.driver("cuMemFree_v2", ctypes.byref(data))
        except WorkerLostError as e:
            return f"lost {e.rank}"

    def stop(self):
        """Comes to a stop within NCCL."""
        self.driver.cuda.fakeKnob(b"freeze_in", ctypes.c_long(1))
        self.reduce()
        said, frozen = ctypes.create_string_buffer(1 << 16), False
        while not frozen:
            self.driver.cuda.fakeCalls(said, len(said))
            frozen = b"frozen" in said.value
        return "stopped"

    def end(self):
        """Gives everything back."""
        if self.gpu is not None:
            self.gpu.close()
            assert not self.driver.living(), self.driver.living()
        self.made.close()
        self.endpoint.close()
        return "ended"


def main():
    faulthandler.dump_traceback_later(60, exit=True)
    member = Member(int(sys.argv[1]), sys.argv[2])
    print("address", member.endpoint.address, flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        print(getattr(member, name)(*arguments), flush=True)
        if name == "end":
            return


main()
