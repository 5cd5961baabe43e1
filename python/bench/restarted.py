"""A script for torchrun: DDP with gloo on a small model, without a checkpoint. It notes, in a file of
its own in the folder STAMPS, when it has begun, imported, and so on, and each step."""

import os
import time

BEGAN = time.time()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

IMPORTED = time.time()


def born():
    """When this process was made, by the clock of the machine, in steps of 10 ms."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def main():
    torch.set_num_threads(1)
    path = os.path.join(os.environ["STAMPS"], f"{os.getpid()}-{BEGAN:.3f}")
    with open(path, "w", encoding="ascii") as f:

        def note(what, at=None):
            print(what, f"{at or time.time():.6f}", file=f, flush=True)

        note("born", born())
        note("main", BEGAN)
        note("imported", IMPORTED)
        dist.init_process_group("gloo")
        note("connected")
        note(f"world {dist.get_world_size()} {dist.get_rank()} {os.getpid()}")
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        model = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(8, 64)
        note("made")
        while True:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            note("step")
            time.sleep(0.04)  # the work of a larger model


main()
