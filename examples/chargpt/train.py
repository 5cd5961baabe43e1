"""A small GPT that learns from text files to write, letter by letter: plain PyTorch for torchrun,
which knows nothing of Regroup::

    regroup run --workers 2 -- python3 examples/chargpt/train.py LICENSE
    torchrun --nproc-per-node 2 examples/chargpt/train.py LICENSE

When a worker dies all are started again, and continue from the last checkpoint.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            *(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(x.shape)), self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters, context, width=64, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, x, target):
        x = self.letters(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), target.flatten())


class Text:
    """A text as numbers, and passages of it."""

    def __init__(self, files, context):
        text = "".join(open(path, encoding="utf-8").read() for path in files)
        self.letters = sorted(set(text))
        self.numbers = torch.tensor([self.letters.index(c) for c in text])
        self.context = context

    def passages(self, size, seed):
        """The same ones for the same seed: nothing of it needs to be in a checkpoint."""
        g = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(self.numbers) - self.context, (size, 1), generator=g)
        rows = self.numbers[starts + torch.arange(self.context + 1)]
        return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8, help="passages of one worker and step")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--checkpoint", default="chargpt.pt")
    parser.add_argument("--every", type=int, default=25, help="steps between checkpoints")
    args = parser.parse_args()

    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank, size = dist.get_rank(), dist.get_world_size()
    text = Text(args.files, args.context)
    torch.manual_seed(1)
    gpt = GPT(len(text.letters), args.context)
    model = DistributedDataParallel(gpt)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    first = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        first = saved["step"]
        for name, part in (("gpt", gpt), ("optimizer", optimizer), ("schedule", schedule)):
            part.load_state_dict(saved[name])
        if rank == 0:
            print(f"resumes at step {first}", flush=True)

    for step in range(first + 1, args.steps + 1):
        torch.manual_seed(step * size + rank)  # what dropout leaves out
        optimizer.zero_grad()
        loss = model(*text.passages(args.batch, seed=step * size + rank))
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and step % args.every == 0:
            parts = {"gpt": gpt, "optimizer": optimizer, "schedule": schedule}
            saved = {"step": step, **{name: part.state_dict() for name, part in parts.items()}}
            torch.save(saved, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)  # whole, or not there
        if rank == 0 and step % 10 == 0:
            print(f"step {step}, {loss.item():.3f} nats for a letter", flush=True)

    if rank == 0:
        gpt.eval()
        with torch.no_grad():
            print(f"loss {gpt(*text.passages(64, seed=0)).item():.8f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
