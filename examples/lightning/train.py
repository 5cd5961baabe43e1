"""A small classifier with Lightning; it knows nothing of Regroup::

    regroup run --workers 2 -- python3 examples/lightning/train.py
    torchrun --nproc-per-node 2 examples/lightning/train.py

When a worker dies all are started again, and Trainer resumes from the last checkpoint. Lightning
takes Regroup for torchrun, and finds the ranks by itself.
"""

import argparse
import os
from itertools import islice

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch.utils.data import DataLoader, TensorDataset


class Rings(L.LightningModule):
    """Which of three rings around the origin is a point in?"""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            *(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)),
        )

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.005)


def points(size, seed):
    x = torch.randn(size, 2, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.norm(dim=1).mul(1.5).long().clamp(max=2))


class ResumableLoader(DataLoader):
    """Continues in the middle of an epoch. Lightning keeps the state of a loader that has one; with
    another it begins the epoch's data again, but counts on from where it was."""

    begin = 0  # the batch with which the next pass begins
    done = 0  # of this epoch

    def __iter__(self):
        self.done, self.begin = self.begin, 0
        for batch in islice(super().__iter__(), self.done, None):
            self.done += 1
            yield batch

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.begin = state["done"] % len(self)


class WholeFiles(TorchCheckpointIO):
    """A checkpoint is whole or not there, even if a worker dies while it is written. Lightning
    moves it from the folder for temporary files, which copies it if that is on another disk."""

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        super().save_checkpoint(checkpoint, f"{path}.new", storage_options)
        os.replace(f"{path}.new", path)


class Steps(Callback):
    """Says where the training is."""

    def on_train_start(self, trainer, *_):
        if trainer.is_global_zero and trainer.global_step:
            print(f"resumes at step {trainer.global_step}", flush=True)

    def on_train_batch_end(self, trainer, *_):
        if trainer.is_global_zero and trainer.global_step % 10 == 0:
            print(f"step {trainer.global_step}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--every", type=int, default=45, help="steps between checkpoints")
    args = parser.parse_args()

    L.seed_everything(1, verbose=False)
    save = ModelCheckpoint(args.out, every_n_train_steps=args.every, save_last=True)
    trainer = L.Trainer(
        accelerator="auto",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),  # workers on this node
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
        max_epochs=args.epochs,
        callbacks=[save, Steps()],
        plugins=[WholeFiles()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Rings()
    trainer.fit(model, ResumableLoader(points(2048, 1), 16, shuffle=True), ckpt_path="last")
    (result,) = trainer.validate(model, DataLoader(points(512, 2), 64), verbose=False)
    if trainer.is_global_zero:
        print(f"loss {result['loss']:.8f}", flush=True)


if __name__ == "__main__":
    main()
