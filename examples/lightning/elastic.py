"""The classifier of train.py, sharded (FSDP2), with a Trainer of Lightning that goes on in its process when
workers come and go::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/lightning/elastic.py

The model and its optimizer are made in each generation anew, and so is a Trainer for them. No checkpoint
is read or written.
"""

import argparse
import os

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from train import Rings, points

import regroup.torch
from regroup.torch.elastic import ElasticSampler, TorchState, run

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch", type=int, default=48, help="points of a step, of all workers together")
parser.add_argument("--backend", default="gloo", help="nccl on GPUs")
parser.add_argument("--device", default="cpu")
args = parser.parse_args()

regroup.torch.follow(args.backend)


class ShardedRings(Rings):
    def training_step(self, batch, i):
        return super().training_step(batch, i) * sampler.weight()  # the last batches of an epoch differ in length

    def configure_model(self):
        """Lightning asks for it. It was sharded in build."""

    def configure_optimizers(self):
        return {"optimizer": state.optimizer, "lr_scheduler": {"scheduler": state.schedule, "interval": "step"}}


def build(fresh):
    """This worker's parts, for the workers that there are now."""
    mesh = init_device_mesh(args.device, (dist.get_world_size(),))
    torch.manual_seed(1)
    model = ShardedRings().to(args.device)
    fully_shard(model.net, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


class Batches:
    """As many as there are steps left, in what is left of an epoch and in the next ones: one epoch for
    Trainer, whose own would depend on the number of workers. Without a length it would fetch a batch before
    the last one was recorded."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return args.steps - state.step

    def __iter__(self):
        while True:
            yield from DataLoader(sampler.dataset, self.size, sampler=sampler)
            sampler.set_epoch(sampler.epoch + 1)


class Commits(Callback):
    """Makes each step a commit."""

    def on_train_batch_end(self, trainer, module, outputs, batch, i):
        sampler.record_batch(i, trainer.train_dataloader.size)
        state.step += 1
        if trainer.is_global_zero and state.step % 10 == 0:
            print(f"step {state.step}", flush=True)
        state.commit()


sampler = ElasticSampler(points(2000, 1))
state = TorchState(build=build, copies=1, sampler=sampler, step=0)


@run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    local_rank, local_size = regroup.torch.local_rank(), regroup.torch.local_size()
    ranks = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
    os.environ.update({name: str(value) for name, value in ranks.items()})  # for TorchElasticEnvironment
    print(f"rank {rank} of {size} goes on at step {state.step}", flush=True)
    trainer = L.Trainer(
        accelerator="gpu" if args.device == "cuda" else args.device,
        strategy=ModelParallelStrategy(data_parallel_size=size, tensor_parallel_size=1),
        devices=local_size,
        num_nodes=size // local_size,
        max_epochs=1,
        callbacks=[Commits()],
        plugins=[TorchElasticEnvironment()],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if state.step < args.steps:
        trainer.fit(state.model, Batches(max(1, args.batch // size)))
    (result,) = trainer.validate(state.model, DataLoader(points(512, 2), 64), verbose=False)
    if rank == 0:
        print(f"loss {result['loss']:.8f}", flush=True)


train(state)
dist.destroy_process_group()
