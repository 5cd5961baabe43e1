"""What measure.py measures of one GPU, in a process that sees no other."""

import os
import runpy
import statistics
import time

GIB = 1 << 30
MIB = 1 << 20


class Cuda:
    """The GPU of a process that sees no other."""

    name, backend = "cuda", "nccl"
    matrix, copied, chunk, most, pinned, reduced = 8192, GIB, GIB, 1 << 50, 256 * MIB, 256 * MIB

    progress = staticmethod(lambda: None)  # called whenever the device has ended something

    def __init__(self, gpu):
        import torch

        self.torch, self.gpu = torch, gpu
        torch.cuda.set_device(0)
        torch.ones(1, device="cuda").add_(1).item()  # CUDA has started
        self.device = torch.device("cuda", 0)
        self.model = torch.cuda.get_device_name(0)
        self.dtype = torch.bfloat16 if torch.cuda.get_device_capability(0)[0] >= 8 else torch.float16
        for part in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"):
            setattr(torch.backends.cuda.matmul, part, False)

    @staticmethod
    def problem(torch):
        return "" if torch.version.cuda else "torch %s is built without CUDA" % torch.__version__

    @staticmethod
    def show(gpu):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu

    def memory(self):
        """Bytes that are free, and all."""
        self.torch.cuda.empty_cache()
        return self.torch.cuda.mem_get_info()

    def pinned_memory(self, size):
        return self.torch.empty(size, dtype=self.torch.uint8, pin_memory=True)

    def seconds(self, what, work):
        """How long the device takes for what work starts; what is the figure that it is for."""
        begin, end = self.torch.cuda.Event(enable_timing=True), self.torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000

    def multiply(self, a, b, into):
        self.torch.mm(a, b, out=into)

    def keep(self, chunk):
        """The memory keeps what was written; a stand-in may do otherwise."""


class Cpu(Cuda):
    """A stand-in for tests: the same ways, with small sizes, on the processor."""

    name, backend = "cpu", "gloo"
    matrix, copied, chunk, most, pinned, reduced = 256, 4 * MIB, 4 * MIB, 16 * MIB, 4 * MIB, MIB

    def __init__(self, gpu):
        import torch

        self.torch, self.gpu, self.model = torch, gpu, "cpu"
        self.device, self.dtype = torch.device("cpu"), torch.float32
        torch.set_num_threads(1)

    @staticmethod
    def problem(torch):
        return ""

    @staticmethod
    def show(gpu):
        pass

    def memory(self):
        return 64 * MIB, 64 * MIB

    def pinned_memory(self, size):
        return self.torch.empty(size, dtype=self.torch.uint8)

    def seconds(self, what, work):
        begin = time.perf_counter()
        work()
        return max(time.perf_counter() - begin, 1e-9)


def load(name):
    """The class of the device. A test may give a file that makes one with faults of Cpu."""
    return {"cuda": Cuda, "cpu": Cpu}.get(name) or runpy.run_path(name)["device"](Cpu)


class Wrong(Exception):
    """The GPU has computed or kept something else than it should."""


class TooLittle(Exception):
    """There is no room for this measurement."""


def repeated(d, until, most, once):
    """The median of what once returns, of several times, once at least."""
    values = [once()]
    while len(values) < most and time.monotonic() < until:
        d.progress()
        values.append(once())
    return statistics.median(values)


def digits(figure):
    return float("%.4g" % figure)


def operands(d, n):
    """Two matrices, and their product, which is exact in any order of additions.

    All values have the form k/4. But for the first four, columns of the one are the same in pairs and rows of the other
    opposite in pairs, so all but four products of each sum cancel, and what is left has no more bits than the type. A
    product that is wrong anywhere is seen in its sum.
    """
    torch = d.torch
    random = torch.Generator(device=d.device).manual_seed(n)

    def matrix():
        shape = (n, n)
        size = torch.randint(4, 8, shape, device=d.device, generator=random, dtype=torch.int8)
        sign = torch.randint(0, 2, shape, device=d.device, generator=random, dtype=torch.int8) * 2 - 1
        return (size * sign).to(d.dtype) / 4

    a, b = matrix(), matrix()
    a[:, 5::2] = a[:, 4::2]
    b[5::2] = -b[4::2]
    product = (a[:, :4].float() @ b[:4].float()).to(d.dtype)
    host = (a[:8, :4].cpu().float() @ b[:4, :64].cpu().float()).to(d.dtype)
    if not torch.equal(product[:8, :64].cpu(), host):
        raise Wrong("a product of float32 differs from the processor's")
    return a, b, product


def matmul(d, until):
    n = d.matrix
    while n > 1024 and 12 * n * n * 2 > d.memory()[0]:
        n //= 2
    a, b, product = operands(d, n)
    c, torch = d.torch.zeros_like(product), d.torch
    each = d.seconds("start", lambda: d.multiply(a, b, c))
    begin = time.monotonic()
    while time.monotonic() < begin + min(0.3, (until - begin) / 4):  # until its clock is what it stays at
        each = d.seconds("start", lambda: d.multiply(a, b, c))
    times = max(1, min(1000, int(0.04 / each)))

    def batch():
        c.zero_()

        def work():
            for _ in range(times):
                d.multiply(a, b, c)

        took = d.seconds("matmul", work) / times
        wrong = int(torch.count_nonzero(c != product))
        if wrong:
            what = (wrong, c.numel(), str(d.dtype)[6:])
            raise Wrong("wrong results: %d of %d elements of a matrix product in %s" % what)
        return took

    return {
        "matmul_tflop_per_s": digits(2 * n**3 / repeated(d, until, 15, batch) / 1e12),
        "matmul_type": str(d.dtype)[6:],
        "matmul_size": n,
    }


def memory_copy(d, until):
    size = min(d.copied, d.memory()[0] // 4) // 8
    if size < MIB // 8:
        raise TooLittle("too little free memory")
    source = d.torch.arange(size, dtype=d.torch.int64, device=d.device)
    into = d.torch.empty_like(source)
    d.seconds("start", lambda: into.copy_(source))
    took = repeated(d, until, 15, lambda: d.seconds("memory_copy", lambda: into.copy_(source)))
    if not d.torch.equal(source, into):
        raise Wrong("wrong results: a copy in the memory of the GPU differs")
    return {"memory_copy_gb_per_s": digits(2 * size * 8 / took / 1e9)}  # what is read, and what is written


def memory_pattern(d, until):
    """Fills most of the free memory with different numbers, reads all back, then the same inverted."""
    torch, elements = d.torch, d.chunk // 8
    if d.memory()[0] < 3 * d.chunk:
        elements = d.memory()[0] // 32
    if elements < MIB // 8:
        raise TooLittle("too little free memory")
    base = torch.arange(elements, dtype=torch.int64, device=d.device) * 0x9E3779B97F4A7C1 + 0x123456789ABCDEF
    scratch, chunks = torch.empty_like(base), []
    room = min(d.most, int(0.8 * d.memory()[0]))
    while (len(chunks) + 1) * elements * 8 <= room and (not chunks or time.monotonic() < until):
        try:
            chunks.append(torch.empty_like(base))
        except RuntimeError as error:
            if kind(error) != "not_measured" or not chunks:
                raise
            break  # another process has taken it
    tested = 0
    for inverted in (0, -1):
        written = []
        for i, chunk in enumerate(chunks):
            if written and time.monotonic() > until:
                break
            torch.bitwise_xor(base, (i << 40 | i) ^ inverted, out=chunk)
            written.append(chunk)
        for i, chunk in enumerate(written):
            d.progress()
            d.keep(chunk)
            torch.bitwise_xor(base, (i << 40 | i) ^ inverted, out=scratch)
            wrong = int(torch.count_nonzero(scratch.bitwise_xor_(chunk)))
            if wrong:
                raise Wrong("wrong memory: %d of %d words were not kept as written" % (wrong, elements))
        tested = max(tested, len(written) * elements * 8)
        if time.monotonic() > until:
            break
    return {"memory_tested_bytes": tested}


def host_copies(d, until):
    size = min(d.pinned, d.memory()[0] // 4)
    if size < MIB:
        raise TooLittle("too little free memory")
    host, there = d.pinned_memory(size), d.torch.empty(size, dtype=d.torch.uint8, device=d.device)
    host.fill_(0x5A)
    figures, begin = {}, time.monotonic()
    for i, (name, work) in enumerate(
        {
            "host_to_device_gb_per_s": lambda: there.copy_(host, non_blocking=True),
            "device_to_host_gb_per_s": lambda: host.copy_(there, non_blocking=True),
        }.items()
    ):
        d.seconds("start", work)
        took = repeated(d, begin + (until - begin) * (i + 1) / 2, 7, lambda: d.seconds(name, work))
        figures[name] = digits(size / took / 1e9)
    if int(d.torch.count_nonzero(host != 0x5A)):
        raise Wrong("wrong results: what was copied to the GPU and back differs")
    return figures


def all_reduce(d, until, rank, world, path):
    import datetime

    import torch.distributed as dist

    limit = datetime.timedelta(seconds=max(1, until - time.monotonic()))
    store = dist.FileStore(path, world)
    dist.init_process_group(d.backend, store=store, rank=rank, world_size=world, timeout=limit)
    elements = min(d.reduced, d.memory()[0] // 4) // 4
    values = d.torch.empty(elements, dtype=d.torch.float32, device=d.device)

    small = d.torch.ones(1, device=d.device)

    def once():
        values.fill_(rank + 1)
        dist.all_reduce(small)  # so that none begins before the others
        return d.seconds("all_reduce", lambda: dist.all_reduce(values))

    for _ in range(2):
        once()
    took = statistics.median(once() for _ in range(5))  # all ranks do as many
    wrong = int(d.torch.count_nonzero(values != world * (world + 1) // 2))
    if wrong:
        raise Wrong("wrong results: %d of %d elements of an all-reduce" % (wrong, elements))
    return {"bus_gb_per_s": digits(2 * (world - 1) / world * elements * 4 / took / 1e9), "bytes": elements * 4}


def text_of(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "%s: %s" % (type(error).__name__, lines[0] if lines else "")


def kind(error):
    """What an error says: failure = the GPU is at fault, not_measured = there is no room, problem = the software is."""
    text = str(error)
    if isinstance(error, Wrong):
        return "failure"
    if isinstance(error, TooLittle) or "out of memory" in text or "ALLOC_FAILED" in text:
        return "not_measured"
    if "no kernel image" in text or "not supported" in text.lower() or "NOT_SUPPORTED" in text:
        return "problem"
    device = any(s in text for s in ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "device-side"))
    return "failure" if device else "problem"
