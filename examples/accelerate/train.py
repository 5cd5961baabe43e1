"""A small classifier with a loop of its own on accelerate; it knows nothing of Regroup::

    regroup run --workers 2 -- python3 examples/accelerate/train.py
    torchrun --nproc-per-node 2 examples/accelerate/train.py

When a worker dies all are started again, and continue from the last whole checkpoint.
"""

import argparse
import glob
import os
import shutil

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset


def points(size):
    """Which of three rings around the origin is a point in?"""
    x = torch.randn(size, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.norm(dim=1).mul(1.5).long().clamp(max=2))


def checkpoints(folder):
    """The whole checkpoints, oldest first."""
    return sorted(map(os.path.dirname, glob.glob(f"{folder}/step-*/whole")))


def save(accelerator, folder, step):
    """Writes a checkpoint, and marks it as whole once all ranks have written their part of it."""
    path = f"{folder}/step-{step:06}"
    accelerator.save_state(path)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        open(f"{path}/whole", "w").close()
        for old in checkpoints(folder)[:-2]:
            shutil.rmtree(old)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--every", type=int, default=45, help="steps between checkpoints")
    args = parser.parse_args()

    # The order of an epoch follows from the seed and the number of the epoch alone.
    order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=1)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=order)
    set_seed(1)
    model = torch.nn.Sequential(
        *(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 3)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    data = points(2048)
    # Whenever a pass begins, and so also when an epoch is resumed, a loader without a generator of
    # its own takes a number from the one that dropout uses: then other numbers would follow.
    loader = DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    found = checkpoints(args.out)
    if found:
        accelerator.load_state(found[-1])
        step = int(found[-1].rpartition("-")[2])
        accelerator.print(f"resumes at step {step}", flush=True)

    first, done = divmod(step, len(loader))
    for epoch in range(first, args.epochs):
        loader.set_epoch(epoch)
        rest = accelerator.skip_first_batches(loader, done) if done else loader
        done = 0
        for x, y in rest:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            step += 1
            if step % args.every == 0:
                save(accelerator, args.out, step)
            if step % 10 == 0:
                accelerator.print(f"step {step}", flush=True)

    model.eval()
    with torch.no_grad():
        x, y = (t.to(accelerator.device) for t in data.tensors)
        loss = torch.nn.functional.cross_entropy(accelerator.unwrap_model(model)(x), y)
    accelerator.print(f"loss {loss.item():.8f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
