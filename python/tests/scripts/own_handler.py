"""A state with parts that keep themselves in Horovod's way, and a worker that fails: HOW is raise,
exit or kill; VICTIM its slot, or all; ON its node, if not all nodes. LIVES is how many of its lives
end so.

Who fails waits before its process ends until another worker has noticed: that it has to be told,
not found out by the end of the process.
"""

import os
import signal
import sys
import time

import regroup.torch as hvd
from regroup.torch.elastic import StateHandler, get_handler_registry, set_handler_registry

FOLDER, HOW = os.environ["FOLDER"], os.environ["HOW"]
FAILS = (
    os.environ["VICTIM"] in (os.environ["REGROUP_SLOT"], "all")
    and os.environ.get("ON", os.environ["REGROUP_NODE"]) == os.environ["REGROUP_NODE"]
    and int(os.environ["REGROUP_ATTEMPT"]) <= int(os.environ.get("LIVES", "1"))
)


class Table:
    """Rows, which no part of the engine knows."""

    def __init__(self):
        self.rows = [f"made by {os.getpid()}"]


class TableHandler(StateHandler):
    def __init__(self, value):
        super().__init__(value)
        self.save()

    def save(self):
        self.saved = list(self.value.rows)

    def restore(self):
        self.value.rows = list(self.saved)

    def sync(self):
        self.value.rows = hvd.broadcast_object(self.value.rows, root_rank=0)
        self.save()


def noticed():
    return os.path.join(FOLDER, "noticed")


hvd.init()
set_handler_registry([(Table, TableHandler), *get_handler_registry()])
table = Table()
state = hvd.elastic.TorchState(table=table, step=0)


@hvd.elastic.run
def train(state):
    print(f"enters pid={os.getpid()} rank={hvd.rank()} step={state.step} rows={len(table.rows)}", flush=True)
    try:
        while state.step < 12:
            hvd.barrier()
            table.rows.append(f"step {state.step}")
            state.step += 1
            if state.step % 3 == 0:
                state.commit()
            if FAILS and state.step == 7:
                print(f"fails pid={os.getpid()}", flush=True)
                if HOW == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if HOW == "exit":
                    sys.exit(3)
                raise KeyError("a mistake in the script")
    except hvd.HorovodInternalError as e:
        print(f"notices pid={os.getpid()} lost={e.rank}", flush=True)
        with open(noticed(), "w", encoding="utf-8"):
            pass
        raise


try:
    train(state)
except (KeyError, SystemExit) as e:
    if not isinstance(e, hvd.elastic.WorkerExit):
        limit = time.monotonic() + 300
        while not os.path.exists(noticed()) and time.monotonic() < limit:
            time.sleep(0.01)
    raise
print(f"ends rank={hvd.rank()} rows={len(table.rows)} same={table.rows[1:] == [f'step {k}' for k in range(12)]}", flush=True)
