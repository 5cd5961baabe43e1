"""What a commit at each step costs: a script for Horovod on this machine, whose state is large.

    python bench/commit.py [--mib 256] [--step 0.05] [--ranks 3] [--rounds 3] [--last]
    python bench/commit.py --sharded [--copies 0] ...

Jobs that do not commit, that commit without copying (commit_mode="live") and that copy ("copied") are
run in turn. With --sharded each rank has so many MiB of a model of its own, of which others keep copies,
and there are commits that copy while the next step goes on ("overlapped"). Prints the medians of the
rounds: how long a step lasts, what of it is the commit, and how much longer the step is than without
commits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Dict, List, Tuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from tests import jobs  # noqa: E402

MODES = {"": ("none", "live", "copied"), "1": ("none", "overlapped", "copied")}
#: Steps before those that are measured: the first commits prove that later ones may be live, and
#: every so often one makes a copy.
WARM, STEPS = 20, 60


def worker() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import regroup.torch as hvd

    mode, lasts, last = os.environ["MODE"], float(os.environ["STEP"]), bool(os.environ["LAST"])
    torch.set_num_threads(1)
    how = {"commit_mode": None if mode == "none" else mode, "steps": 0}

    def table(ranks):
        return torch.nn.Parameter(torch.zeros(ranks, int(os.environ["MIB"]) << 18), requires_grad=False)

    def build(fresh):
        size = dist.get_world_size()
        net, large = torch.nn.Linear(256, 256), torch.nn.Module()
        large.table = table(size)
        fully_shard(large, mesh=init_device_mesh("cpu", (size,)))  # never called: what is measured is the commit
        return {"model": net, "large": large, "optimizer": torch.optim.AdamW(net.parameters())}

    if os.environ["SHARDED"]:
        hvd.follow("regroup")
        state = hvd.elastic.TorchState(build=build, copies=int(os.environ["COPIES"]), **how)
    else:
        hvd.init()
        net = torch.nn.Linear(256, 256)
        net.table = table(1)
        optimizer = torch.optim.AdamW(net.parameters())
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
        state = hvd.elastic.TorchState(model=net, optimizer=optimizer, **how)

    @hvd.elastic.run
    def train(state):
        net, optimizer = state.model, state.optimizer
        steps, commits = [], []
        while state.steps < WARM + STEPS:
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = net(torch.ones(2, 256)).square().mean()
            if not last:
                loss.backward()  # what it reduces is reduced while it goes on
            time.sleep(max(0.0, lasts - (time.perf_counter() - began)))
            if last:
                loss.backward()
            optimizer.step()
            state.steps += 1
            trained = time.perf_counter()
            if mode != "none":
                state.commit()
            steps.append(time.perf_counter() - began)
            commits.append(time.perf_counter() - trained)
        if hvd.rank() == 0:
            # Means: a copy that is made now and then belongs to the cost.
            print(f"took step={statistics.mean(steps[WARM:])} commit={statistics.mean(commits[WARM:])}", flush=True)

    train(state)


def measure(mode: str, args: argparse.Namespace) -> Tuple[float, float]:
    """Milliseconds of a step and of a commit in one job."""
    env = {"WORKER": "1", "MODE": mode, "STEP": str(args.step), "MIB": str(args.mib), "LAST": "1" if args.last else ""}
    env |= {"SHARDED": "1" if args.sharded else "", "COPIES": str(args.copies)}
    command = ["--recovery", "in-process", "--workers", str(args.ranks), "--", sys.executable, os.path.abspath(__file__)]
    with jobs.Job(*command, env=env) as job:
        took = job.wait().lines(r"\btook step=")
        if len(took) != 1:
            raise SystemExit(job.output)
        return 1000 * float(took[0]["step"]), 1000 * float(took[0]["commit"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--step", type=float, default=0.05, help="seconds that a step lasts without a commit")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--last", action="store_true", help="all gradients are reduced at the end of a step, and waited for")
    parser.add_argument("--sharded", action="store_true", help="each rank has a part of so many MiB")
    parser.add_argument("--copies", type=int, default=0, help="of each part, by other ranks")
    args = parser.parse_args()
    modes = MODES["1" if args.sharded else ""]
    found: Dict[str, List[Tuple[float, float]]] = {mode: [] for mode in modes}
    for _ in range(args.rounds):
        for mode in modes:
            found[mode].append(measure(mode, args))
            step, commit = found[mode][-1]
            print(f"  {mode}: step {step:.2f}, commit {commit:.3f}", file=sys.stderr, flush=True)
    print(f"{args.ranks} ranks, {args.mib} MiB of state, median of {args.rounds}, in ms:")
    without = statistics.median(step for step, _ in found["none"])
    for mode, rows in found.items():
        step, commit = (statistics.median(column) for column in zip(*rows))
        print(f"  {mode:<11}step {step:7.2f}  commit {commit:7.3f}  step is {step / without:.3f} of that without commits")


if __name__ == "__main__":
    worker() if "WORKER" in os.environ else main()
