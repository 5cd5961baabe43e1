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
        assert "the limit" in str(e) or "aborted" in str(e), e
    else:
        raise AssertionError("numbers came out of it")
