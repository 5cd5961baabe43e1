"""How late an operation of torch.distributed fails that waits for a rank which does nothing: by the
timeout of its group, and by that of Work.wait, on our backend and on gloo (torch 2.14 or later)::

    PYTHONPATH=python python3 python/bench/limits.py --json

Two ranks of this machine; a timeout is one second, and each ends with its group.
"""

import argparse
import json
import statistics
import time
from datetime import timedelta

import together

LIMIT = 1.0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10, help="of each kind")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    together.run(__file__, 2, lambda: measure(args))


def measure(args):
    import torch
    import torch.distributed as dist

    import regroup.torch.distributed  # noqa: F401

    torch.set_num_threads(1)
    meeting = together.Meeting()
    tensor = torch.ones(1 << 18)

    def of_the_group():
        dist.all_reduce(tensor)

    def of_the_group_asynchronous():
        dist.all_reduce(tensor, async_op=True).wait()

    def of_wait():
        dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=LIMIT))

    kinds = {
        "group's timeout": (of_the_group, LIMIT),
        "group's timeout, async_op": (of_the_group_asynchronous, LIMIT),
        "wait(timeout)": (of_wait, 60),
    }
    late = {}
    for name, (waits, limit) in kinds.items():
        for backend in ("regroup", "gloo"):
            for trial in range(args.trials):
                dist.init_process_group(
                    backend,
                    store=dist.PrefixStore(f"{name} {backend} {trial}", meeting.store),
                    rank=meeting.rank,
                    world_size=meeting.size,
                    timeout=timedelta(seconds=30),
                )
                dist.all_reduce(tensor)  # all are connected
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=limit), dist.group.WORLD)
                meeting.gather("ready")
                took = 0.0
                if meeting.rank == 0:
                    began = time.perf_counter()
                    try:
                        waits()
                    except RuntimeError:
                        took = time.perf_counter() - began
                    assert took > 0, f"{name} of {backend}: no error"
                meeting.gather("done")
                dist.destroy_process_group()
                late.setdefault((name, backend), []).append(1000 * (took - LIMIT))
    if meeting.rank > 0:
        return
    rows = [
        {
            "timeout": name,
            "backend": backend,
            "late_ms": statistics.median(row),
            "range_ms": [min(row), max(row)],
        }
        for (name, backend), row in late.items()
    ]
    if args.json:
        print(json.dumps({"trials": args.trials, "rows": rows}))
        return
    print(f"how late timeouts of {LIMIT:g} s end, median (least to most) in ms:")
    for row in rows:
        first, last = row["range_ms"]
        print(f"  {row['timeout']:<28}{row['backend']:<8}{row['late_ms']:7.1f}  ({first:.1f} to {last:.1f})")


if __name__ == "__main__":
    main()
