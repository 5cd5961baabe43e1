"""The same GPT without a restart and without a checkpoint: when a worker dies the others stay in
their processes, and its successor gets the weights from them::

    regroup run --workers 2 --recovery in-process -- python3 examples/chargpt/elastic.py LICENSE
    torchrun --nproc-per-node 2 examples/chargpt/elastic.py LICENSE        # as before

The lines with an arrow are the ones that train.py does not have.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from train import GPT, Text

import regroup.torch  # <- 1
from regroup.torch.elastic import TorchState, run

STEPS, BATCH, CONTEXT = 200, 8, 64

regroup.torch.follow("gloo")  # <- 2, for dist.init_process_group("gloo")
text = Text(sys.argv[1:], CONTEXT)
torch.manual_seed(1)
gpt = GPT(len(text.letters), CONTEXT)
model = DistributedDataParallel(gpt)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
state = TorchState(model=model, optimizer=optimizer, schedule=schedule, step=0)  # <- 3


@run  # <- 4: called again, with the newest state, when the members have changed
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(state.step + 1, STEPS + 1):
        torch.manual_seed(step * size + rank)
        optimizer.zero_grad()
        loss = model(*text.passages(BATCH, seed=step * size + rank))
        loss.backward()
        optimizer.step()
        schedule.step()
        state.step = step
        state.commit()  # <- 5: what was done up to here is never done again
        if rank == 0 and step % 10 == 0:
            print(f"step {step}, {loss.item():.3f} nats for a letter", flush=True)


train(state)
if dist.get_rank() == 0:
    gpt.eval()
    with torch.no_grad():
        print(f"loss {gpt(*text.passages(64, seed=0)).item():.8f}", flush=True)
dist.destroy_process_group()
