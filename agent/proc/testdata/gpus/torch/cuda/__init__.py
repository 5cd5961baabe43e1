import os

visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
current = 0


class device:
    def __init__(self, n):
        self.n = n

    def __enter__(self):
        global current
        self.before, current = current, self.n

    def __exit__(self, *_):
        global current
        current = self.before


def is_available():
    return visible != [""]


def device_count():
    return len(visible)


def name():
    return visible[current]


def current_blas_handle():
    if name() == "GPU-bad":
        raise RuntimeError("CUDA error: out of memory")


def synchronize():
    pass


def empty_cache():
    print("CUDA has started on", name(), flush=True)
