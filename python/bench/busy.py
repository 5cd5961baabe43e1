"""Operations of torch.distributed on a machine that has more to do than it has processors: on our
backend and on gloo, round by round in turn, beside processes that compute without end::

    PYTHONPATH=python python3 python/bench/busy.py --ranks 3 --busy 4 --json

What is told is the median of the rounds' medians, and the median ratio of the two in a round.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time

import together

OPERATIONS = ("barrier", "all_reduce 4 B", "all_reduce 1 MiB")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--busy", type=int, default=4, help="processes that compute")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    busy = []
    try:
        if together.starts():
            for _ in range(args.busy):
                busy.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        together.run(__file__, args.ranks, lambda: measure(args))
    finally:
        for p in busy:
            p.kill()
            p.wait()


def measure(args):
    import torch
    import torch.distributed as dist

    import regroup.torch.distributed  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": None, "regroup": dist.new_group(backend="regroup")}
    small, large = torch.ones(1), torch.ones(1 << 18)

    def once(operation, group):
        if operation == "barrier":
            dist.barrier(group=group)
        else:
            dist.all_reduce(large if "MiB" in operation else small, group=group)

    def timed(operation, group):
        """Milliseconds of each of some operations, as many on all ranks."""
        began = time.perf_counter()
        for _ in range(5):
            once(operation, group)
        count = torch.tensor([max(5, int(5 * args.seconds / (time.perf_counter() - began)))])
        dist.broadcast(count, 0)
        took = []
        for _ in range(count.item()):
            large.fill_(1)
            began = time.perf_counter()
            once(operation, group)
            took.append(1000 * (time.perf_counter() - began))
        return statistics.median(took)

    turns = random.Random(1)  # the same order on all ranks
    rounds = []
    for _ in range(args.rounds):
        cases = [(o, g) for o in OPERATIONS for g in groups]
        turns.shuffle(cases)
        rounds.append({case: timed(case[0], groups[case[1]]) for case in cases})
    dist.barrier()
    if dist.get_rank() > 0:
        return
    rows = [
        {
            "operation": o,
            **{f"{g}_ms": statistics.median(r[o, g] for r in rounds) for g in groups},
            "ratio": statistics.median(r[o, "gloo"] / r[o, "regroup"] for r in rounds),
        }
        for o in OPERATIONS
    ]
    if args.json:
        print(json.dumps({"ranks": args.ranks, "busy": args.busy, "torch": torch.__version__, "rows": rows}))
        return
    print(f"{args.ranks} ranks beside {args.busy} busy processes, medians in ms:")
    for row in rows:
        print("  {operation:<18}regroup {regroup_ms:8.3f}  gloo {gloo_ms:8.3f}  ratio {ratio:6.2f}".format(**row))


if __name__ == "__main__":
    main()
