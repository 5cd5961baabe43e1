"""A loop for pre-training in the manner of torchtitan, which goes on when workers come and go::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/titan/elastic.py LICENSE
    python3 examples/titan/elastic.py LICENSE                # alone, without Regroup

A Llama that is made on the meta device, wrapped block by block (FSDP2, and HSDP with --replicas 2),
and initialised in its parts; gradients that are accumulated to a batch of one size for any number of
workers, and clipped; a learning rate that rises, stays and falls; metrics. When a worker dies the others
go on with its part, of which one of them has a copy. A step has the same samples at any number of
workers, so nobody can tell from the losses that one was lost.
"""

import argparse
import time
from functools import partial
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from llama import Llama
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

import regroup
import regroup.torch
from regroup.torch.elastic import ElasticSampler, TorchState, run

IGNORED = -100  # the label of what is not learnt

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("files", nargs="+")
parser.add_argument("--steps", type=int, default=100)
# A multiple of --micro for each number of workers that there may be, so that all steps have as many.
parser.add_argument("--batch", type=int, default=24, help="samples of a step, of all workers together")
parser.add_argument("--micro", type=int, default=2, help="samples of a worker that are computed at once")
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--rate", type=float, default=3e-3)
parser.add_argument("--warmup", type=int, default=10, help="steps in which the learning rate rises")
parser.add_argument("--max-norm", type=float, default=1.0)
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--recompute", action="store_true", help="activations in the backward pass")
parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
parser.add_argument("--every", type=int, default=10, help="steps between metrics")
parser.add_argument("--backend", default="gloo", help="nccl on GPUs")
parser.add_argument("--device", default="cpu")
args = parser.parse_args()

regroup.torch.follow(args.backend)


def samples(files, context):
    """A text as passages of bytes; what follows each byte is to be learnt."""
    text = b"".join(open(path, "rb").read() for path in files)
    rows = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    rows = rows[: (len(rows) - 1) // context * context + 1]
    return TensorDataset(rows[:-1].view(-1, context), rows[1:].view(-1, context))


def mesh():
    """Replicas of parts, if the workers can be divided so; else parts alone."""
    size, replicas = dist.get_world_size(), args.replicas
    if replicas > 1 and size % replicas == 0:
        shape = (replicas, size // replicas)
        return init_device_mesh(args.device, shape, mesh_dim_names=("replicas", "parts"))
    return init_device_mesh(args.device, (size,), mesh_dim_names=("parts",))


def factor(step):
    """Of the learning rate: it rises, stays, and falls in the last fifth of the steps."""
    falls = max(1, args.steps // 5)
    return min(1.0, (step + 1) / args.warmup, max(0.0, (args.steps - step) / falls))


def build(fresh):
    """This worker's parts, for the workers that there are now."""
    with torch.device("meta"):
        model = Llama(256, args.context)
    dtype = torch.bfloat16 if args.precision == "bfloat16" else None
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    shard = partial(fully_shard, mesh=mesh(), mp_policy=precision)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = shard(checkpoint_wrapper(block) if args.recompute else block)
    shard(model)
    model.to_empty(device=args.device)
    model.init_buffers()
    if fresh:  # else it is filled from the last commit
        model.init_weights()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


class Loop:
    """The training between two changes of the workers."""

    def __init__(self, state):
        self.state, self.rank, self.size = state, dist.get_rank(), dist.get_world_size()
        self.accumulated = max(1, args.batch // (args.micro * self.size))
        self.since, self.tokens = time.monotonic(), 0

    def run(self):
        state = self.state
        print(f"rank {self.rank} of {self.size} goes on at step {state.step}", flush=True)
        batches = self.batches()
        while state.step < args.steps:
            step = list(islice(batches, self.accumulated))  # fewer at the end of an epoch
            if step:
                self.step(step)
            else:
                state.sampler.set_epoch(state.sampler.epoch + 1)
                batches = self.batches()

    def batches(self):
        """What is left of the epoch, for this worker."""
        sampler = self.state.sampler
        for i, (x, y) in enumerate(DataLoader(sampler.dataset, args.micro, sampler=sampler)):
            if sampler.weight() == 0:  # another worker has trained on it: this one keeps step
                y.fill_(IGNORED)
            sampler.record_batch(i, args.micro)
            yield x.to(args.device), y.to(args.device)

    def step(self, batches):
        state = self.state
        state.optimizer.zero_grad()
        tokens = sum((y != IGNORED).sum() for _, y in batches)
        dist.all_reduce(tokens)  # of all workers: their batches may differ in length
        sums = torch.zeros((), device=args.device)
        for i, (x, y) in enumerate(batches):
            state.model.set_requires_gradient_sync(i + 1 == len(batches))
            logits = state.model(x).flatten(0, 1).float()
            loss = F.cross_entropy(logits, y.flatten(), reduction="sum", ignore_index=IGNORED) / tokens
            (loss * self.size).backward()  # gradients are averaged over the workers
            sums += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), args.max_norm)
        rate = state.schedule.get_last_lr()[0]
        state.optimizer.step()
        state.schedule.step()
        state.step += 1
        state.tokens += tokens.item()
        self.tokens += tokens.item()
        if state.step % args.every == 0:
            self.tell(sums, norm.full_tensor() if isinstance(norm, DTensor) else norm, rate)
        state.commit()

    def tell(self, loss, norm, rate):
        """The metrics of a step."""
        dist.all_reduce(loss)
        speed = self.tokens / (time.monotonic() - self.since)
        self.since, self.tokens = time.monotonic(), 0
        if self.rank == 0:
            step, loss = self.state.step, loss.item()
            regroup.report(step=step, loss=loss, grad_norm=norm.item(), rate=rate, tokens_per_second=speed)
            told = f"loss {loss:.5f}, norm {norm.item():.4f}, rate {rate:.6f}, {self.state.tokens} tokens"
            print(f"step {step}: {told}", flush=True)


data = samples(args.files, args.context)
sampler = ElasticSampler(data, batch_size=args.micro)
state = TorchState(build=build, copies=1, sampler=sampler, step=0, tokens=0)


@run
def train(state):
    Loop(state).run()


train(state)
if dist.get_rank() == 0:
    print(f"done at step {state.step} after {state.tokens} tokens", flush=True)
dist.destroy_process_group()
