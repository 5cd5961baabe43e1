"""Whether gradients that are added up as integers train as well as those that are added up as float32: the same
networks, micro-batches and random numbers, with several seeds each.

    python bench/reproducible_convergence.py             # two minutes on one core

The loss is that of samples that were not trained on. With integers the averages of BatchNorm are those of a step's
first micro-batch, without them of all, as PyTorch has it. One process is enough: how many there are has no effect on
the bits.
"""

import argparse
import glob
import importlib.util
import os
import statistics
import sys
import time

import torch
from torch import nn

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "python"))

from regroup.torch.reproducible import GradientAccumulator  # noqa: E402
from regroup.torch.reproducible.randomness import seed_all, seed_of  # noqa: E402


def example(name):
    """The script of an example, as a module."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(TOP, "examples", name, "train.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Digits:
    """A convolutional network with BatchNorm and dropout, on MNIST."""

    name, clip = "MNIST, convolutional", 0.0

    def __init__(self):
        script = example("mnist_torch")
        folder = os.path.join(TOP, "examples", "mnist", "data")
        self.samples, self.test = (script.digits(folder, part).tensors for part in ("train", "t10k"))
        self.net = lambda: nn.Sequential(script.Net(), nn.Dropout(0.1))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def loss(self, model, g):
        some = torch.randint(len(self.samples[0]), (16,), generator=g)
        return nn.functional.cross_entropy(model(self.samples[0][some]), self.samples[1][some])

    def test_loss(self, model):
        return nn.functional.cross_entropy(model(self.test[0]), self.test[1])


class Characters:
    """The example's GPT, with AdamW and clipping, on this repository's documentation."""

    name, clip = "characters, GPT", 1.0

    def __init__(self, context=32):
        script = example("chargpt")
        files = sorted(glob.glob(os.path.join(TOP, "docs", "*.md")))
        self.train, self.test = script.Text(files[1:], context), script.Text(files[1:], context)
        whole, cut = self.train.numbers, len(self.train.numbers) * 9 // 10
        self.train.numbers, self.test.numbers = whole[:cut], whole[cut:]
        self.net = lambda: script.GPT(len(self.train.letters), context, width=32)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss(self, model, g):
        return model(*self.train.passages(8, seed=int(torch.randint(1 << 40, (), generator=g))))

    def test_loss(self, model):
        return model(*self.test.passages(512, seed=0))


def trained(training, integers, seed, options):
    """The loss after a training."""
    torch.manual_seed(seed)
    model = training.net()
    optimizer, count = training.optimizer(model), options.micro_batches
    gradients = GradientAccumulator(model, count, seed=seed) if integers else None
    for step in range(options.steps):
        optimizer.zero_grad()
        for m in gradients.micro_batches(step) if integers else range(count):
            if not integers:
                seed_all(seed_of(seed, step, m))  # what dropout leaves out is the same
            g = torch.Generator().manual_seed((seed * options.steps + step) * count + m)
            (training.loss(model, g) / (1 if integers else count)).backward()
        if training.clip and integers:
            gradients.clip_grad_norm_(training.clip)
        elif training.clip:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return training.test_loss(model).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--micro-batches", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{options.steps} steps of {options.micro_batches} micro-batches, {options.seeds} seeds", flush=True)
    print(
        f"{'':24}{'float32: loss':>16}{'spread':>9}{'int64: loss':>16}{'spread':>9}{'difference / spread':>21}",
        flush=True,
    )
    for training in (Digits(), Characters()):
        began = time.monotonic()
        floats, integers = ([trained(training, i, s, options) for s in range(options.seeds)] for i in (False, True))
        means = statistics.mean(floats), statistics.mean(integers)
        spreads = statistics.stdev(floats), statistics.stdev(integers)
        row = f"{means[0]:>16.4f}{spreads[0]:>9.4f}{means[1]:>16.4f}{spreads[1]:>9.4f}"
        noise = statistics.mean(s * s for s in spreads) ** 0.5
        print(f"{training.name:24}{row}{(means[1] - means[0]) / noise:>21.3f}", flush=True)
        each = " ".join(f"{b - a:+.1e}" for a, b in zip(floats, integers))
        print(f"    by seed: {each}; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
