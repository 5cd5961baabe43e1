"""A torch.distributed script as people write it for torchrun: no import of ours, its own checkpoint, env:// initialisation."""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ckpt, steps, die_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
start = 0
if os.path.exists(ckpt):
    saved = torch.load(ckpt)
    model.load_state_dict(saved["model"])
    start = saved["step"]

g = torch.Generator().manual_seed(7 + rank)
want = torch.arange(8.0)
loss = torch.tensor(0.0)
for step in range(start, steps):
    x = torch.randn(32, 8, generator=g)
    loss = ((model(x).squeeze(1) - x @ want) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step + 1}, ckpt + ".new")
        os.replace(ckpt + ".new", ckpt)
    dist.barrier()
    if step == die_at and rank == world - 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

print(f"rank {rank} of {world} began at {start} loss {loss.item():.4f} local {os.environ['LOCAL_RANK']}/{os.environ['LOCAL_WORLD_SIZE']}", flush=True)
dist.destroy_process_group()
