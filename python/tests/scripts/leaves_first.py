"""After elastic.run rank 0 ends at once, and the others have something left to do among them."""

import os
import time

import torch

import regroup.torch as hvd

gone = os.path.join(os.environ["FOLDER"], "pid")

hvd.init()
others = hvd.add_process_set(list(range(1, hvd.size())))
state = hvd.elastic.TorchState(step=0)


@hvd.elastic.run
def train(state):
    hvd.barrier()
    state.step += 1
    state.commit()


def ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "Z"


train(state)
if hvd.rank() == 0:
    with open(gone + ".new", "w", encoding="utf-8") as f:
        f.write(str(os.getpid()))
    os.rename(gone + ".new", gone)
else:
    limit = time.monotonic() + 300
    while time.monotonic() < limit and not os.path.exists(gone):
        time.sleep(0.01)
    with open(gone, encoding="utf-8") as f:
        pid = int(f.read())
    while time.monotonic() < limit and not ended(pid):
        time.sleep(0.01)
    total = hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum, process_set=others, name="among the others")
    print(f"sums pid={os.getpid()} total={total.item()}", flush=True)
