"""Trains with GradientAccumulator, and says what the weights are at the end.

RECORDS is a folder in which each worker records the micro-batches that it has computed, and its death. DEATHS is how
likely it is to kill itself at each of several places of a step, in a generation of more than one. BACKEND is that of
torch.distributed, or empty for none.
"""

import os
import random
import signal

import torch

import regroup
import regroup.torch as hvd
from regroup.torch.reproducible import GradientAccumulator

from tests.histories import digest
from tests.trainings import TRAININGS

torch.set_num_threads(1)
if os.environ["BACKEND"]:
    hvd.follow(os.environ["BACKEND"])
else:
    hvd.init()
training, dice = TRAININGS["convolutional"], random.Random(os.urandom(8))
model, optimizer = training.make()
gradients = GradientAccumulator(model, training.micro_batches, seed=5)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, gradients=gradients, step=0)
record = open(os.path.join(os.environ["RECORDS"], str(os.getpid())), "w", buffering=1, encoding="utf-8")


def reach(_=None):
    if hvd.size() > 1 and dice.random() < float(os.environ["DEATHS"]):
        print("dies", state.step, file=record)
        os.kill(os.getpid(), signal.SIGKILL)


for p in model.parameters():
    p.register_post_accumulate_grad_hook(reach)


@hvd.elastic.run
def train(state):
    while state.step < int(os.environ["STEPS"]):
        for m in gradients.micro_batches(state.step):
            reach()
            training.loss(model, state.step, m).backward()
            print("computes", state.step, m, file=record)
        reach()
        optimizer.step()
        reach()
        state.step += 1
        state.commit()
        reach()
    print(f"ends size={hvd.size()} gen={regroup.generation()} hash={digest(model, optimizer)}", flush=True)


train(state)
