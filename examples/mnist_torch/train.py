"""MNIST with PyTorch and as many workers as there are; it goes on when workers come and go::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/mnist_torch/train.py
    python3 examples/mnist_torch/train.py                    # alone, without Regroup

It is written as one writes it for Horovod Elastic; only the import is another. The data (10,000 digits of MNIST, see
data/README.md of examples/mnist) is read from there, or from --data. After four epochs about 95 of 100 digits of the test
part are read right.
"""

import argparse
import gzip
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data

import regroup
import regroup.torch as hvd

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of one worker and step")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one worker")
    parser.add_argument("--batches-per-commit", type=int, default=10)
    parser.add_argument("--loaders", type=int, default=0, help="processes that load data")
    parser.add_argument(
        "--step-time", type=float, default=0.0, help="make a step last, to watch it"
    )
    parser.add_argument("--data", default=os.path.join(HERE, "..", "mnist", "data"))
    return parser.parse_args()


def digits(folder, part):
    """Pictures and labels of files in the IDX format."""

    def content(name, head):
        with gzip.open(os.path.join(folder, f"{part}-{name}-ubyte.gz")) as f:
            return torch.frombuffer(bytearray(f.read()[head:]), dtype=torch.uint8)

    labels = content("labels-idx1", 8).long()
    images = content("images-idx3", 16).reshape(len(labels), 1, 28, 28).float() / 255
    return torch.utils.data.TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.hidden = nn.Linear(8 * 12 * 12, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).flatten(1)
        return self.out(F.relu(self.hidden(x)))


@regroup.record
def main():
    args = arguments()
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(1)
    training, testing = digits(args.data, "train"), digits(args.data, "t10k")
    sampler = hvd.elastic.ElasticSampler(training, batch_size=args.batch_size)
    loader = torch.utils.data.DataLoader(
        training, batch_size=args.batch_size, sampler=sampler, num_workers=args.loaders
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def on_reset():  # the world has changed
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()

    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0
    )
    state.register_reset_callbacks([on_reset])

    @hvd.elastic.run
    def train(state):
        while state.epoch < args.epochs:
            model.train()
            for i, (x, y) in enumerate(loader):
                began = time.monotonic()
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                sampler.record_batch(i, args.batch_size)
                time.sleep(max(0.0, args.step_time - (time.monotonic() - began)))
                state.batch += 1
                if state.batch % args.batches_per_commit == 0:
                    regroup.report(loss=loss.item())
                    state.commit()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()
            if hvd.rank() == 0:
                print(
                    f"epoch {state.epoch}: loss {loss.item():.3f}, {hvd.size()} workers", flush=True
                )
        right = test(model, testing)
        regroup.report(accuracy=right)
        return right

    right = train(state)
    if right is None:  # the job was stopped
        return
    if hvd.rank() == 0:
        print(f"{100 * right:.1f} of 100 digits are read right", flush=True)


def test(model, data):
    """The share of digits that are read right; each worker reads a part of them."""
    model.eval()
    part = range(hvd.rank(), len(data), hvd.size())
    images, labels = zip(*(data[i] for i in part))
    with torch.no_grad():
        right = (model(torch.stack(images)).argmax(1) == torch.stack(labels)).sum()
    total = hvd.allreduce(torch.tensor([right.item(), len(labels)]), op=hvd.Sum)
    return total[0].item() / total[1].item()


if __name__ == "__main__":
    main()
