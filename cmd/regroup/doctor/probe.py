"""What regroup doctor asks a Python interpreter. Each line of its output is a JSON object."""

import datetime
import json
import sys
import time
import warnings


def say(**fields):
    print(json.dumps(fields), flush=True)


def last_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "%s: %s" % (type(error).__name__, lines[-1] if lines else "")


def attempt(stage, do):
    say(stage=stage)
    try:
        say(**do())
    except BaseException as error:
        say(**{stage + "_error": last_line(error)})
        return False
    return True


def import_torch():
    begin = time.monotonic()
    import torch

    return {"torch": torch.__version__, "seconds": time.monotonic() - begin}


def features():
    import inspect

    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return {"distributed": False}
    return {
        "distributed": True,
        "gloo": getattr(dist, "is_gloo_available", lambda: hasattr(dist, "ProcessGroupGloo"))(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
        "reconfigure": "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters,
        "cuda_build": torch.version.cuda or getattr(torch.version, "hip", None) or "",
    }


def new_store():
    import torch.distributed as dist

    args = ("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=5))
    try:
        return dist.TCPStore(*args, use_libuv=True), True
    except TypeError:  # an older torch
        return dist.TCPStore(*args), False
    except RuntimeError:  # built without it
        return dist.TCPStore(*args, use_libuv=False), False


def store():
    begin = time.monotonic()
    s, libuv = new_store()
    s.set("key", "value")
    if s.get("key") != b"value":
        raise RuntimeError("the store returned another value than was set")
    return {"store": time.monotonic() - begin, "libuv": libuv}


def cuda():
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
        count = torch.cuda.device_count()
    return {"cuda": available, "devices": count, "cuda_warning": " ".join(str(w.message) for w in caught)}


def package():
    import regroup

    return {"regroup": regroup.__version__}


def group():
    import torch
    import torch.distributed as dist

    s, _ = new_store()
    dist.init_process_group("gloo", store=s, rank=0, world_size=1, timeout=datetime.timedelta(seconds=5))
    value = torch.ones(1)
    dist.all_reduce(value)
    dist.destroy_process_group()
    return {"group": value.item() == 1.0}


say(python=".".join(str(n) for n in sys.version_info[:3]), executable=sys.executable)
attempt("package", package)
if attempt("torch", import_torch):
    attempt("features", features)
    attempt("cuda", cuda)
    attempt("store", store)
    attempt("group", group)
say(stage="end")
