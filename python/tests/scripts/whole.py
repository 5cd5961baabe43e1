"""Trains ten steps of two ranks, and does what WHAT says: "rank 0" keeps a full state dict on rank 0
alone, "copied" one on all ranks; "nowhere" makes the model in the function, and no state has it;
"kept" has everything in the state. "interrupts" raises HostsUpdatedInterrupt in step 5, two steps
after its commit, on all ranks; "interrupts alone" on rank 0. FOLDER is where a rank notes that it
has done so."""

import os

import torch
import torch.utils.data

import regroup.torch as hvd

WHAT, FOLDER = os.environ["WHAT"], os.environ["FOLDER"]
SAMPLES, BATCH = 80, 4

hvd.init()
torch.manual_seed(0)
dataset = torch.utils.data.TensorDataset(torch.ones(SAMPLES, 3))
sampler = hvd.elastic.ElasticSampler(dataset, batch_size=BATCH)
outer = torch.nn.Linear(3, 3)
torch.nn.init.zeros_(outer.weight)
parts = {"steps": 0, "sampler": sampler, "full": None}
if WHAT not in ("nowhere", "copied", "rank 0"):
    parts.update(model=outer, optimizer=torch.optim.Adam(outer.parameters(), lr=0.01))
state = hvd.elastic.TorchState(**parts)


def once():
    """Whether this rank has not noted yet that it was here."""
    mark = os.path.join(FOLDER, os.environ["REGROUP_SLOT"])
    if os.path.exists(mark):
        return False
    open(mark, "w").close()
    return True


@hvd.elastic.run
def train(state):
    model, optimizer = outer, getattr(state, "optimizer", None)
    if optimizer is None:
        model = torch.nn.Linear(3, 3)
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    weight = model.weight[0, 0].item()
    print(
        f"enters rank={hvd.rank()} step={state.steps} weight={weight} processed={sampler.processed_num}",
        flush=True,
    )
    for i, (x,) in enumerate(torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler)):
        if WHAT.startswith("interrupts"):
            with torch.no_grad():
                model.weight += 1  # its value is the number of steps
        else:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        sampler.record_batch(i, BATCH)
        state.steps += 1
        if WHAT == "copied":
            # As many copies as there are tensors: of the optimizer's moments too.
            state.full = [model.state_dict(), optimizer.state_dict()]
        if WHAT == "rank 0":
            state.full = model.state_dict() if hvd.rank() == 0 else {}
        if state.steps == 5 and WHAT.startswith("interrupts"):
            if (hvd.rank() == 0 or WHAT == "interrupts") and once():
                raise hvd.HostsUpdatedInterrupt()
        hvd.allreduce(torch.ones(1), name="step")
        if state.steps % 3 == 0:
            state.commit()


train(state)
