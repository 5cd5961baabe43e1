"""A small GPT-2 with the Trainer of transformers; it knows nothing of Regroup::

    regroup run --workers 2 -- python3 examples/transformers/train.py
    torchrun --nproc-per-node 2 examples/transformers/train.py

When a worker dies all are started again, and Trainer resumes from the last whole checkpoint.
Nothing is downloaded: the weights are random and the text is made here.
"""

import argparse
import glob
import os

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Counting(torch.utils.data.Dataset):
    """Sequences to be learnt: each number is the one before plus a constant."""

    def __init__(self, size, length=32, words=61):
        start = torch.arange(size).unsqueeze(1)
        self.rows = (start * 7 + (start % 5 + 1) * torch.arange(length)) % words

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


class Whole(TrainerCallback):
    """Marks a checkpoint as whole once all ranks have written their part of it. Trainer writes into
    the final folder, so one in which a worker died looks like the last checkpoint."""

    def on_save(self, args, state, control, **_):
        if dist.is_initialized():
            dist.barrier()
        if state.is_world_process_zero:
            open(f"{args.output_dir}/checkpoint-{state.global_step}/whole", "w").close()

    def on_step_end(self, args, state, control, **_):
        if state.is_world_process_zero and state.global_step % 5 == 0:
            print(f"step {state.global_step}", flush=True)


def last(folder):
    """The last whole checkpoint; None if there is none."""
    whole = glob.glob(f"{folder}/checkpoint-*/whole")
    folders = map(os.path.dirname, whole)
    return max(folders, key=lambda path: int(path.rpartition("-")[2]), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parsed = parser.parse_args()

    args = TrainingArguments(
        parsed.out,
        max_steps=parsed.steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        save_steps=parsed.every,
        save_total_limit=2,  # not 1: the one before must be there until the next is whole
        ddp_find_unused_parameters=False,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    # The seed comes first: weights are random, and must be the same on all ranks and in each start.
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=61, n_positions=32, n_embd=64, n_layer=2, n_head=4)
    config.bos_token_id = config.eos_token_id = 0
    data = Counting(1200)
    trainer = Trainer(
        GPT2LMHeadModel(config), args, train_dataset=data, eval_dataset=data, callbacks=[Whole()]
    )
    checkpoint = last(parsed.out)
    if checkpoint and args.process_index == 0:
        print(f"resumes at step {checkpoint.rpartition('-')[2]}", flush=True)
    trainer.train(resume_from_checkpoint=checkpoint)

    # The mean of the losses that train() reports covers only what was trained after the last start.
    loss = trainer.evaluate()["eval_loss"]
    if args.process_index == 0:
        print(f"loss {loss:.8f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()  # Trainer leaves it, and gloo may then abort the process


if __name__ == "__main__":
    main()
