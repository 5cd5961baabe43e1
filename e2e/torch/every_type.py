"""Calls every operation with every type and reduction on regroup and on gloo, and compares.

    cd python && ../.tools/torch-2.15.0/bin/python ../e2e/torch/every_type.py [--ranks 3] [--special]

One line is printed for each operation and reduction, with the types for which the two differ. The
exit code is 0 if regroup does what gloo does, with the same results. --special gives NaN,
infinities, zeros with signs and the largest and smallest integers; there gloo's results depend on
the order of the ranks, so they are printed only.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections import defaultdict
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.multiprocessing

REDUCTIONS = ["SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR"]
TYPES = sorted(
    {t for t in vars(torch).values() if isinstance(t, torch.dtype) and not str(t).startswith("torch.q")}, key=str
)
nan, inf = float("nan"), float("inf")
FLOATS = [[nan, -0.0, inf, 3.0, 6e4, 1e-3], [1.0, 0.0, -inf, nan, 6e4, 2e-3], [1.0, 0.0, 1.0, 2.0, 1.0, -3e-3]]


def numbers(dtype: torch.dtype, rank: int, special: bool, count: int = 6) -> torch.Tensor:
    """What a rank gives to an operation; another for each rank."""
    if special and dtype.is_floating_point:
        return torch.tensor(FLOATS[rank % 3]).repeat(9)[:count].to(dtype)
    if special and not dtype.is_complex and dtype is not torch.bool:
        i = torch.iinfo(dtype)
        rows = [[i.max, i.min, 0, 7, i.max - 1, 1], [i.max, i.min, 1, 5, 2, 3], [1, i.max, 2, i.max, 2, i.min]]
        return torch.tensor(rows[rank % 3], dtype=dtype).repeat(9)[:count]
    g = torch.Generator().manual_seed(rank + 5)
    real, imaginary = (torch.randint(0, 3, (count,), generator=g) for _ in range(2))
    return torch.complex(real.float(), imaginary.float()).to(dtype) if dtype.is_complex else real.to(dtype)


def calls(group: Any, dtype: torch.dtype, special: bool) -> Iterator[Tuple[str, Callable[[], List[torch.Tensor]]]]:
    """Operations by name; each returns what this rank gets."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def mine(count: int = 6, seed: Optional[int] = None) -> torch.Tensor:
        return numbers(dtype, rank if seed is None else seed, special, count)

    def done(call: Callable, got: Any, *arguments: Any, **options: Any) -> List[torch.Tensor]:
        call(*arguments, group=group, **options)
        return list(got) if isinstance(got, (list, tuple)) else [got]

    for name in REDUCTIONS:
        op = getattr(dist.ReduceOp, name)
        x, y, part = mine(), mine(3, rank + 7), mine(3, 0)
        parts = [mine(3, rank + 10 * i) for i in range(size)]
        yield f"all_reduce {name}", lambda x=x, op=op: done(dist.all_reduce, x, x, op)
        x = mine()
        yield f"reduce {name}", lambda x=x, op=op: done(dist.reduce, x, x, 0, op)[rank:]
        yield (
            f"reduce_scatter {name}",
            lambda part=part, parts=parts, op=op: done(dist.reduce_scatter, part, part, parts, op),
        )
        x = mine()
        yield (
            f"all_reduce_coalesced {name}",
            lambda x=x, y=y, op=op: done(dist.all_reduce_coalesced, [x, y], [x, y], op),
        )
    x, into, own = mine(), [mine(6, 9) for _ in range(size)], mine()
    several = [mine(3, rank + 10 * i) for i in range(size)]
    got = [mine(3, 9) for _ in range(size)]
    yield "broadcast", lambda: done(dist.broadcast, x, x, size - 1)
    yield "all_gather", lambda: done(dist.all_gather, into, into, own)
    yield "all_to_all", lambda: done(dist.all_to_all, got, got, several)
    at_root = [mine(6, 9) for _ in range(size)] if rank == 0 else None
    yield "gather", lambda: done(dist.gather, at_root or [], own, at_root, 0)
    given = [mine(6, i) for i in range(size)] if rank == 0 else None
    one = mine(6, 9)
    yield "scatter", lambda: done(dist.scatter, one, one, given, 0)
    sent = mine(6, 9)
    if rank == 0:
        yield "send", lambda: done(dist.send, [], mine(), 1)
    elif rank == 1:
        yield "send", lambda: done(dist.recv, sent, sent, 0)


def bits(tensors: List[torch.Tensor], loose: bool) -> Any:
    """The numbers of tensors, to compare: loose ones to six digits."""
    if not loose:  # gloo's sum of two True is a byte of 2, which is True as well
        return [t.tolist() if t.dtype is torch.bool else t.view(torch.uint8).tolist() for t in tensors]
    wide = [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in tensors]
    return [[f"{number:.6g}" if not t.is_complex() else f"{number:.5g}" for number in t.tolist()] for t in wide]


def outcomes(group: Any, special: bool) -> Dict[Tuple[str, str], Any]:
    """What comes of each operation and type: numbers, or the text of an error."""
    found: Dict[Tuple[str, str], Any] = {}
    for dtype in TYPES:
        try:
            numbers(dtype, 0, special)
        except Exception:
            continue  # torch cannot make such a tensor
        for name, call in calls(group, dtype, special):
            loose = name.endswith("AVG") and dtype not in (torch.float16, torch.bfloat16)
            try:
                found[name, str(dtype)[6:]] = bits(call(), loose)
            except Exception as e:
                found[name, str(dtype)[6:]] = f"{type(e).__name__}: {str(e).splitlines()[0]}"
    return found


def rank_main(rank: int, size: int, file: str, special: bool) -> None:
    """One rank; rank 0 prints, and its exit code counts."""
    import regroup.torch.distributed  # noqa: F401: registers the backend

    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("regroup", init_method=f"file://{file}", rank=rank, world_size=size, timeout=limit)
    gloo = dist.new_group(backend="gloo", timeout=limit)
    theirs, ours = outcomes(gloo, special), outcomes(None, special)
    everybody: List[Any] = [None] * size
    dist.all_gather_object(everybody, (theirs, ours), group=gloo)
    differ: Dict[Tuple[str, str], set] = defaultdict(set)
    for theirs, ours in everybody:
        for key, want in theirs.items():
            got = ours[key]
            if isinstance(want, str) and isinstance(got, str) or want == got:
                continue
            how = "only regroup" if isinstance(want, str) else "only gloo" if isinstance(got, str) else "other results"
            differ[key[0], how].add(key[1])
    if rank == 0:
        for (name, how), types in sorted(differ.items()):
            print(f"{name}: {how}: {', '.join(sorted(types))}")
        print(f"{len(theirs)} calls on {size} ranks, differences in {sum(map(len, differ.values()))}", flush=True)
    dist.barrier(group=gloo)
    os._exit(not special and any(how != "only regroup" for _, how in differ))


def main() -> int:
    """Starts the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--special", action="store_true", help="numbers at the ends of their types")
    given = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "store")
        fork = torch.multiprocessing.get_context("fork").Process
        ranks = [fork(target=rank_main, args=(r, given.ranks, file, given.special)) for r in range(given.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return ranks[0].exitcode or 0


if __name__ == "__main__":
    sys.exit(main())
