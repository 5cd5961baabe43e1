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
        self.refused(at)
        for how in self.ways():
            self.rooted(how)
            self.scattered(how)
            self.exchanged(how)
        return "right"

    def refused(self, at):
        """What is wrong is said, and costs nothing."""
        world, stream = self.made.world, self.driver.stream
        outside = ctypes.addressof((ctypes.c_float * 4)())
        for says, call in {
            "is not within": lambda: self.gpu.reduce(at, 4, lib.FLOAT32, lib.SUM, world, stream),
            "none of RG_SUM": lambda: self.gpu.reduce(at, 4, lib.FLOAT32, 99, 0, stream),
            "is not memory of a GPU": lambda: self.gpu.reduce_scatter(at, outside, 4, lib.FLOAT32, lib.SUM, stream),
            "count 0 is -4": lambda: self.gpu.alltoall(at, at, [-4] * world, [0] * world, stream),
            "sends to itself other": lambda: self.gpu.alltoall(at, at + 64, [4] * world, [0] * world, stream),
        }.items():
            try:
                call()
            except InvalidArgumentError as e:
                assert says in str(e), e
                continue
            raise AssertionError(f"not refused: {says}")

    def ways(self):
        """How an operation can be called: what is added to its arguments."""
        yield {}
        yield {"start": True}
        yield {"start": True, "name": "named."}
        yield {"start": True, "name": "ordered.", "ordered": True}

    def call(self, how, operation, *arguments):
        """Calls an operation and waits until its result is there."""
        if "name" in how:
            how = dict(how, name=how["name"] + operation.__name__)
        request = operation(*arguments, self.driver.stream, **how)
        assert (request is not None) == ("start" in how), request
        if request is not None:
            lib.wait(request)
        if "start" not in how or "ordered" in how:
            self.driver.settle()

    def rooted(self, how):
        """A reduction that the last rank gets."""
        world, rank = self.made.world, self.made.rank
        data = self.driver.floats(COUNT)
        data[:] = [rank + 1] * COUNT
        self.call(how, self.gpu.reduce, ctypes.addressof(data), COUNT, lib.FLOAT32, lib.SUM, world - 1)
        if rank == world - 1:
            assert data[:] == [world * (world + 1) / 2] * COUNT, data[:4]
        self.free(data)

    def scattered(self, how):
        """A reduction of which each rank gets its part: element i of part r is i + r of each rank."""
        world, rank = self.made.world, self.made.rank
        given, got = self.driver.floats(COUNT * world), self.driver.floats(COUNT)
        given[:] = [float(i % 1000 + r) for r in range(world) for i in range(COUNT)]
        into = ctypes.addressof(given), ctypes.addressof(got)
        self.call(how, self.gpu.reduce_scatter, *into, COUNT, lib.FLOAT32, lib.SUM)
        assert got[:] == [float(i % 1000 + rank) * world for i in range(COUNT)], got[:4]
        self.free(given, got)

    def exchanged(self, how):
        """Rank r sends (r + 1) * 1000 floats to the next rank, one to all others, and nothing to itself."""
        world, rank = self.made.world, self.made.rank

        def floats(of, to):
            return 0 if of == to else (of + 1) * 1000 if to == (of + 1) % world else 1

        counts = [4 * floats(rank, r) for r in range(world)]
        back = [4 * floats(r, rank) for r in range(world)]
        given, got = self.driver.floats(sum(counts) // 4), self.driver.floats(sum(back) // 4)
        given[:] = [float(10 * rank + r) for r in range(world) for _ in range(floats(rank, r))]
        self.call(how, self.gpu.alltoall, ctypes.addressof(given), ctypes.addressof(got), counts, back)
        assert got[:] == [float(10 * r + rank) for r in range(world) for _ in range(floats(r, rank))], got[:4]
        self.free(given, got)

    def free(self, *memory):
        for data in memory:
            self.driver("cuMemFree_v2", ctypes.byref(data))

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
