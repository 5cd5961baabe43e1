"""One rank of a group that meets in the store of an agent: RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and TORCHELASTIC_USE_AGENT_STORE are set as an agent sets them."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for group, factor in ((None, 1), (dist.new_group(), 10)):
    t = torch.full((1000,), float(rank + 1) * factor)
    dist.all_reduce(t, group=group)
    want = factor * size * (size + 1) / 2
    if not bool((t == want).all()):
        raise AssertionError(f"{t[0]}, not {want}")
dist.barrier()
print(f"rank {rank} of {size}: done")
dist.destroy_process_group()
