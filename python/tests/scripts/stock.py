"""A worker of a stock agent: joins a group with gloo, and reduces until a file tells it to end.

With CRASH the worker of that rank fails once, before which it creates the file.
"""

import ctypes
import os
import signal
import sys
import time
from datetime import timedelta

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # torchrun leaves workers behind when it is killed

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"{time.time():.3f} rank={rank} size={size} sum={x.item():.0f} restart={restart}", flush=True)
crash = os.environ.get("CRASH", "")
if rank == 0 and crash and not os.path.exists(crash):
    open(crash, "w").close()
    sys.exit(3)
while True:
    go_on = torch.tensor([0 if os.path.exists(os.environ["END"]) else 1])
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
    if go_on.item() == 0:
        break
    time.sleep(0.02)
print(f"rank={rank} size={size} done", flush=True)
dist.destroy_process_group()
os._exit(0)  # an interpreter that ends beside threads of gloo may abort
