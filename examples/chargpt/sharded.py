"""The same GPT, of which each worker has a part (FSDP2), in any number of processes: when one dies the
others go on with its part, of which one of them has a copy, and its successor gets a part again::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/chargpt/sharded.py LICENSE
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from train import GPT, Text

import regroup.torch
from regroup.torch.elastic import TorchState, run

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("files", nargs="+")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=16, help="passages of all workers together in a step")
parser.add_argument("--context", type=int, default=64)
args = parser.parse_args()

regroup.torch.follow("gloo")  # "nccl" on GPUs
text = Text(args.files, args.context)


def build(fresh):
    """This worker's part of all that is trained, for the workers that there are now."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    gpt = GPT(len(text.letters), args.context)
    for block in gpt.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(gpt, mesh=mesh)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    return {"gpt": gpt, "optimizer": optimizer, "schedule": schedule}


state = TorchState(build=build, copies=1, step=0)


@run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size} goes on at step {state.step}", flush=True)
    while state.step < args.steps:
        # The passages of a step are the same for any number of workers; each takes its share.
        x, y = (t[rank::size] for t in text.passages(args.batch, seed=state.step))
        torch.manual_seed(state.step * size + rank)  # what dropout leaves out
        state.optimizer.zero_grad()
        loss = state.gpt(x, y) * len(x) * size / args.batch  # gradients are averaged over the workers
        loss.backward()
        torch.nn.utils.clip_grad_norm_(state.gpt.parameters(), 1.0)
        state.optimizer.step()
        state.schedule.step()
        state.step += 1
        state.commit()
        if state.step % 10 == 0:
            loss = loss.detach()
            dist.all_reduce(loss)
            if rank == 0:
                print(f"step {state.step}, {loss.item() / size:.3f} nats for a letter", flush=True)


train(state)
if dist.get_rank() == 0:
    print(f"done at step {state.step}", flush=True)
dist.destroy_process_group()
