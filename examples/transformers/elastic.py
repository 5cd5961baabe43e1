"""The Trainer of transformers with a Llama that is sharded (FSDP2), which goes on in its process when
workers come and go::

    regroup run --workers 2:4 --recovery in-process -- python3 examples/transformers/elastic.py

The loop is Trainer's own. The model is sharded by transformers itself, in each generation anew, and a
Trainer is made for it, which begins at the step of the last commit: no checkpoint is read or written.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from train import Counting
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
)
from transformers.distributed import DistributedConfig

import regroup.torch
from regroup.torch.elastic import ElasticSampler, TorchState, run

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--batch", type=int, default=24, help="sequences of a step, of all workers together")
parser.add_argument("--backend", default="gloo", help="nccl on GPUs")
parsed = parser.parse_args()

#: What a Trainer knows that does not depend on the number of workers.
KEPT = ("global_step", "epoch", "log_history", "total_flos", "num_input_tokens_seen")

regroup.torch.follow(parsed.backend)


def build(fresh):
    """This worker's parts, for the workers that there are now."""
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
    )
    # accelerate and transformers read the ranks where torchrun writes them.
    ranks = {"RANK": dist.get_rank(), "WORLD_SIZE": dist.get_world_size()}
    ranks.update(LOCAL_RANK=regroup.torch.local_rank(), LOCAL_WORLD_SIZE=regroup.torch.local_size())
    os.environ.update({name: str(value) for name, value in ranks.items()})
    if dist.get_world_size() == 1:
        del os.environ["LOCAL_RANK"]  # else accelerate wraps the model and moves its parameters
    # Of a model on a disk all of this is LlamaForCausalLM.from_pretrained(path, distributed_config=how).
    how = DistributedConfig(fsdp_size=dist.get_world_size())
    how, device, meshes = LlamaForCausalLM.prepare_distribute_model(how)
    torch.manual_seed(1)
    with torch.device(device or "cpu"):
        model = LlamaForCausalLM.maybe_distribute_model(LlamaForCausalLM(config), how, meshes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, parsed.steps)
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


class Batches:
    """What is left of an epoch, and then the next ones. It has no length, so Trainer ends by its steps."""

    def __init__(self, sampler, size):
        self.sampler, self.size = sampler, size

    def __iter__(self):
        while True:
            for batch in DataLoader(self.sampler.dataset, self.size, sampler=self.sampler):
                if self.sampler.weight() == 0:  # another worker has trained on it: this one keeps step
                    batch["labels"].fill_(-100)
                yield batch
            self.sampler.set_epoch(self.sampler.epoch + 1)


class Commits(TrainerCallback):
    """Makes each step a commit of a state, with all that Trainer has logged of it."""

    def __init__(self, state):
        self.state, self.made = state, False

    def on_substep_end(self, args, trainer, control, **_):  # with gradient_accumulation_steps
        self.state.sampler.record_batch(0, args.per_device_train_batch_size)

    def on_step_end(self, args, trainer, control, **_):
        sampler = self.state.sampler
        sampler.record_batch(0, args.per_device_train_batch_size)
        trainer.epoch = sampler.epoch + sampler.processed_num / len(sampler.dataset)
        self.made = True

    def on_step_begin(self, args, trainer, control, **_):
        if self.made:
            self.made = False
            self.state.trainer = {name: getattr(trainer, name) for name in KEPT}
            self.state.commit()

    on_train_end = on_step_begin


class ElasticTrainer(Trainer):
    """A Trainer that begins where a state is."""

    def __init__(self, state, args):
        parts = (state.optimizer, state.schedule)
        super().__init__(state.model, args, optimizers=parts, callbacks=[Commits(state)])
        self.elastic = state

    def get_train_dataloader(self):
        return Batches(self.elastic.sampler, self.args.per_device_train_batch_size)

    def create_scheduler(self, *args, **kwargs):
        """Called when Trainer has a state of its own, and has not begun to count from it."""
        for name, value in self.elastic.trainer.items():
            setattr(self.state, name, value)
        return super().create_scheduler(*args, **kwargs)


sampler = ElasticSampler(Counting(300))
state = TorchState(build=build, copies=1, sampler=sampler, trainer={"global_step": 0})


@run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    step = state.trainer["global_step"]
    print(f"rank {rank} of {size} goes on at step {step}", flush=True)
    args = TrainingArguments(
        max_steps=parsed.steps,
        per_device_train_batch_size=max(1, parsed.batch // size),  # so a step has the same sequences
        save_strategy="no",  # commits take its place
        logging_steps=1,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    if step < parsed.steps:  # else it would make one more
        ElasticTrainer(state, args).train()


train(state)
if dist.get_rank() == 0:
    history = [(logged["step"], logged["loss"]) for logged in state.trainer["log_history"] if "loss" in logged]
    print(f"done: {json.dumps(history)}", flush=True)
dist.destroy_process_group()
