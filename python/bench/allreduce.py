"""torch.distributed.all_reduce on our backend and on gloo, in one run, round by round in turn::

    PYTHONPATH=python python3 python/bench/allreduce.py --ranks 2 --bytes 4096 --json

Each round measures both, in an order that changes; what is told is the median of the rounds'
medians, and the ratio of medians of each round, so that what else the machine does hits both. All
ranks are on this machine.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    return parser.parse_args()


def launch(args):
    """Starts the ranks; rank 0 prints."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(
        os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(args.ranks)
    )
    env.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", LOCAL_WORLD_SIZE=str(args.ranks))
    ranks = [
        subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--rank", str(r)],
            env=dict(env, RANK=str(r), LOCAL_RANK=str(r)),
        )
        for r in range(args.ranks)
    ]
    return max(p.wait() for p in ranks)


def main():
    args = arguments()
    if args.rank < 0:
        return launch(args)
    import torch
    import torch.distributed as dist

    import regroup.torch.distributed  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("regroup")
    groups = {"regroup": None, "gloo": dist.new_group(backend="gloo")}
    tensor = torch.ones(args.bytes // 4)

    def measure(group):
        """Microseconds of each of some operations, as many on all ranks."""
        dist.barrier()
        began = time.perf_counter()
        for _ in range(5):
            dist.all_reduce(tensor, group=group)
        count = torch.tensor([max(5, int(5 * args.seconds / (time.perf_counter() - began)))])
        dist.broadcast(count, 0)
        took = []
        for _ in range(count.item()):
            tensor.fill_(1)
            began = time.perf_counter()
            dist.all_reduce(tensor, group=group)
            took.append(1e6 * (time.perf_counter() - began))
        return statistics.median(took)

    turns = random.Random(1)  # the same order on all ranks
    rounds = []
    for _ in range(args.rounds):
        names = list(groups)
        turns.shuffle(names)
        rounds.append({name: measure(groups[name]) for name in names})
    if dist.get_rank() == 0:
        ratios = sorted(r["gloo"] / r["regroup"] for r in rounds)
        result = {
            "ranks": args.ranks,
            "bytes": args.bytes,
            "torch": torch.__version__,
            "regroup_us": statistics.median(r["regroup"] for r in rounds),
            "gloo_us": statistics.median(r["gloo"] for r in rounds),
            "ratio": statistics.median(ratios),
            "ratio_min": ratios[0],
            "ratio_max": ratios[-1],
            "rounds": rounds,
        }
        if args.json:
            print(json.dumps(result))
        else:
            print(
                "{ranks} ranks, {bytes} bytes: regroup {regroup_us:.1f} us, gloo {gloo_us:.1f} us, ratio {ratio:.1f} "
                "({ratio_min:.1f} to {ratio_max:.1f})".format(**result)
            )
    dist.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
