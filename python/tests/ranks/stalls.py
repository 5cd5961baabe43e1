"""Ranks that wait for each other in different process sets, which nobody can see: a limit ends it
on all of them."""

import torch

import regroup.torch as hvd

from .operations import RANK


def case_two_sets():
    pair = hvd.add_process_set([0, 1])
    one = torch.ones(1)
    assert hvd.allreduce(one, op=hvd.Sum, name="before").item() == 3
    if RANK < 2:
        assert hvd.allreduce(one, op=hvd.Sum, name="before", process_set=pair).item() == 2
    try:
        if RANK == 0:
            hvd.allreduce(one, name="in the pair", process_set=pair)
        else:
            hvd.allreduce(one, name="in all")
    except hvd.HorovodInternalError as e:
        # The rank that has met its limit first may have ended before the others meet theirs.
        assert any(part in str(e) for part in ("the limit", "aborted", "its process is dead")), e
    else:
        raise AssertionError("numbers came out of it")
