"""How long a group that changes needs until it works again: dist._reconfigure() and one all_reduce of
4 bytes, on our backend and on gloo, round by round in turn, in one run (torch 2.14 or later)::

    PYTHONPATH=python python3 python/bench/reconfigure.py --ranks 2 --json

The members are the same each time, so what is measured is the meeting alone. All ranks are on this
machine, and a trial lasts until the slowest of them has its sum.
"""

import argparse
import json
import statistics
import time
from datetime import timedelta

import together

LIMIT = timedelta(seconds=60)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6, help="of each backend")
    parser.add_argument("--trials", type=int, default=20, help="of a round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    together.run(__file__, args.ranks, lambda: measure(args))


def measure(args):
    import torch
    import torch.distributed as dist

    import regroup.torch.distributed  # noqa: F401

    torch.set_num_threads(1)
    meeting = together.Meeting()
    times = {"regroup": [], "gloo": []}
    for round_ in range(2 * args.rounds):
        backend = ("regroup", "gloo")[(round_ + round_ // 2) % 2]
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(f"round {round_}", meeting.store),
            rank=meeting.rank,
            world_size=meeting.size,
            timeout=LIMIT,
            enable_reconfigure=True,
        )
        tensor = torch.ones(1)
        for trial in range(args.trials + 1):  # the first opens what the process keeps
            handles = meeting.gather(dist._get_reconfigure_handle())
            began = time.perf_counter()
            dist._reconfigure(1 + trial, handles, timeout=LIMIT).wait()
            dist.all_reduce(tensor.fill_(1))
            took = 1000 * (time.perf_counter() - began)
            assert tensor.item() == meeting.size
            slowest = max(meeting.gather(took))
            if trial > 0:
                times[backend].append(slowest)
        dist.destroy_process_group()
    if meeting.rank > 0:
        return
    result = {"ranks": meeting.size, "torch": torch.__version__}
    for backend, row in times.items():
        row.sort()
        result[backend + "_ms"] = statistics.median(row)
        result[backend + "_range_ms"] = [row[0], row[-1]]
    if args.json:
        print(json.dumps(result))
        return
    print(f"{meeting.size} ranks, reconfigure and all_reduce, median (least to most) in ms:")
    for backend, row in times.items():
        print(f"  {backend:<8}{statistics.median(row):6.2f}  ({row[0]:.2f} to {row[-1]:.2f})")


if __name__ == "__main__":
    main()
