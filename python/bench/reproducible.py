"""What gradients cost that do not depend on the number of workers: steps of GradientAccumulator beside those of
DistributedDataParallel, in turn, on one group of gloo.

    python bench/reproducible.py                      # two ranks, two micro-batches a step
    python bench/reproducible.py --micro-batches 3    # no multiple of the ranks
    python bench/reproducible.py --micro-batches 12 --witness 1 --samples 250
    python bench/reproducible.py --micro-batches 12 --width 128 --layers 40 --norms   # many small parameters

DistributedDataParallel accumulates with no_sync, as many micro-batches as the rank with most has here. The ratio is of
the medians of both, by rounds of some steps each; the last line has the median of the rounds.
"""

import argparse
import contextlib
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def model(width, layers, norms):
    torch.manual_seed(0)
    net = nn.Sequential()
    for _ in range(layers):
        net.extend([nn.Linear(width, width), *([nn.LayerNorm(width)] if norms else []), nn.GELU()])
    return net.append(nn.Linear(width, 10))


def run(rank, options, port):
    from regroup.torch.reproducible import GradientAccumulator, allreduce_hook

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    total, size = options.micro_batches, options.ranks
    torch.manual_seed(1)  # a witness has the same samples
    x = torch.randn(options.samples, options.width)
    y = torch.randint(10, (options.samples,))

    shape = options.width, options.layers, options.norms
    plain, hooked = DistributedDataParallel(model(*shape)), DistributedDataParallel(model(*shape))
    hooked.register_comm_hook(None, allreduce_hook)
    ours = model(*shape)
    accumulators = {"accumulator": GradientAccumulator(ours, total, seed=1)}
    nets = {"ddp": plain, "hook": hooked, "accumulator": ours}
    if options.witness:
        watched = nets["with witness"] = model(*shape)
        accumulators["with witness"] = GradientAccumulator(watched, total, seed=1, witness=options.witness)
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.01) for name, net in nets.items()}
    made = dict.fromkeys(accumulators, 0)

    def step(name):
        net, most = nets[name], -(-total // size)
        optimizers[name].zero_grad()
        if name in accumulators:
            for _ in accumulators[name].micro_batches(made[name]):
                nn.functional.cross_entropy(net(x), y).backward()
            made[name] += 1
        else:
            for i in range(most):
                with net.no_sync() if i < most - 1 else contextlib.nullcontext():
                    nn.functional.cross_entropy(net(x), y).backward()
        optimizers[name].step()

    names = [n for n in nets if n != "hook" or total == size]
    for name in names:
        for _ in range(5):
            step(name)
    ratios = {name: [] for name in names}
    for _ in range(options.rounds):
        took = {name: [] for name in names}
        for _ in range(options.steps):
            for name in names:  # in turn, so that what else the machine does is the same for all
                dist.barrier()
                began = time.perf_counter()
                step(name)
                took[name].append(time.perf_counter() - began)
        for name in names:
            ratios[name].append(statistics.median(took[name]) / statistics.median(took["ddp"]))
    if rank == 0:
        elements, tensors = sum(p.numel() for p in ours.parameters()), len(list(ours.parameters()))
        print(f"{size} ranks, {total} micro-batches, {tensors} parameters of {elements / 1e6:.1f} million", flush=True)
        for name in names:
            ratio = f"{statistics.median(ratios[name]):.3f} of ddp ({min(ratios[name]):.3f} to {max(ratios[name]):.3f})"
            print(f"{name}: {1e3 * statistics.median(took[name]):.1f} ms a step, {ratio}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=2, help="in a step, of all ranks")
    parser.add_argument("--witness", type=int, default=0, help="micro-batches of a step that two ranks compute")
    parser.add_argument("--width", type=int, default=512, help="of the model's layers")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--norms", action="store_true", help="each layer has a norm, with parameters of its own")
    parser.add_argument("--samples", type=int, default=512, help="of a micro-batch: how long a step is")
    parser.add_argument("--steps", type=int, default=20, help="in a round, of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from tests.launch import free_port

    torch.multiprocessing.spawn(run, (options, free_port()), nprocs=options.ranks)


if __name__ == "__main__":
    main()
