"""Trains with commits that copy nothing, and says what this rank has after each step and whenever it
begins again.

DIES="rank@step:line" has a rank of the first generation kill itself in a step: at "forward",
"backward", "optimizer" (within the optimizer's step), "stepped", "save" (in the commit) or "committed".
SPOILS is what the script does that live commits cannot bear: "data" changes weights where PyTorch does
not count it, "between" communicates before the commit, "rarely" commits each second step, "restores"
returns to the last commit once. ELSEWHERE=1 has weights that are not contiguous, and so not in the
memory from which commits are copied, as on a GPU. WITHOUT is "sampler" or "". COMMITTED is a file in which rank 0 says
which commit it has come out of; rank 1 waits for that before its own, if all have agreed on it early.
"""

import hashlib
import logging
import os
import pathlib
import signal
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import regroup.torch as hvd

SPOILS, WITHOUT = os.environ.get("SPOILS", ""), os.environ.get("WITHOUT", "")
ELSEWHERE = os.environ.get("ELSEWHERE", "") == "1"
victim, _, where = os.environ.get("DIES", "-1@-1:").partition("@")
moment, _, LINE = where.partition(":")
VICTIM, MOMENT, EPOCHS = int(victim), int(moment), 3
COMMITTED = pathlib.Path(os.environ["COMMITTED"]) if "COMMITTED" in os.environ else None

logging.basicConfig(format="says: %(message)s", level=logging.INFO)
class Counts(torch.nn.Module):
    """Counts the forward passes in a buffer: it changes before the optimizer's step."""

    def __init__(self):
        super().__init__()
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.passes += 1
        return x


torch.set_num_threads(1)
hvd.init()
torch.manual_seed(7)
inputs, wanted = torch.randn(90, 12), torch.randn(90, 3)
model = torch.nn.Sequential(torch.nn.Linear(12, 40), Counts(), torch.nn.GELU(), torch.nn.Linear(40, 3))
if ELSEWHERE:
    for layer in model[0], model[3]:
        layer.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t())
if WITHOUT == "sampler":  # so much that copies are worth avoiding: only then ranks agree before a step
    model.table = torch.nn.Parameter(torch.zeros(4 << 20), requires_grad=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
parts = {} if WITHOUT == "sampler" else {"sampler": hvd.elastic.ElasticSampler(range(90))}
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, commit_mode="live", steps=0, **parts)


def say(what, **values):
    print(what, "size=%d" % hvd.size(), *("%s=%s" % pair for pair in values.items()), flush=True)


def has():
    """A hash of the parameters, the buffer and the optimizer's state."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [v for p in model.parameters() for _, v in sorted(optimizer.state[p].items())]
    return hashlib.sha1(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


def dies(line):
    if (hvd.rank(), state.steps, line) == (VICTIM, MOMENT, LINE) and hvd.size() == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def waits():
    """Rank 1 lets rank 0 commit first, which would never end if that waited for rank 1."""
    if COMMITTED is None or hvd.rank() != 1 or state._commits._ballot is None:
        return
    while not COMMITTED.exists() or COMMITTED.read_text() != f"{state.steps}.":
        time.sleep(0.002)
    say("was first: rank 0", step=state.steps)


def batches():
    """The indices of this rank's batches."""
    while not parts and state.steps < 45:
        torch.manual_seed(100 * state.steps + hvd.rank())
        yield torch.randint(90, (2,)).tolist()
    while parts and state.sampler.epoch < EPOCHS:
        yield from torch.utils.data.BatchSampler(state.sampler, 2, drop_last=False)
        state.sampler.set_epoch(state.sampler.epoch + 1)


@hvd.elastic.run
def train(state):
    say("enters", step=state.steps, hash=has())
    restored = False
    for indices in batches():
        dies("forward")
        optimizer.zero_grad()
        (model(inputs[indices]) - wanted[indices]).square().mean().backward()
        dies("backward")
        if SPOILS == "data" and state.steps % 2:
            for p in model.parameters():
                p.data.mul_(0.999)
        optimizer.step()
        state.steps += 1
        if parts:
            state.sampler.record_batch(0, 2)
        say("steps", step=state.steps, hash=has())
        dies("stepped")
        waits()
        if SPOILS == "between":
            hvd.allreduce(torch.ones(1), name="between")
        if SPOILS == "restores" and state.steps == 20 and not restored:
            restored = True
            state.restore()
            say("restores", step=state.steps, hash=has())
        elif SPOILS != "rarely" or state.steps % 2 == 0:
            try:
                state.commit()
            finally:  # it has also committed when the members change
                if COMMITTED and hvd.rank() == 0:
                    COMMITTED.write_text(f"{state.steps}.")
            say("commits", step=state.steps)
        dies("committed")
    say(f"says: {state.describe()};")
    say("ends", step=state.steps, hash=has(), account=state.sampler.epoch if parts else 0)


def within_step(*_):
    state.steps += 1
    dies("optimizer")
    state.steps -= 1


save = state.save


def saves():
    save()
    dies("save")


register_optimizer_step_post_hook(within_step)
state.__dict__["save"] = saves
train(state)
