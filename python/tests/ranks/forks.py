"""Forked children of a rank: they cannot use the library, they end well, and they do not hide that
the rank has died."""

import os
import signal
import sys
import tempfile

import torch

import regroup.torch as hvd
from regroup.errors import ForkedError
from regroup.torch.world import world

hvd.init()


class Data(torch.utils.data.Dataset):
    """Samples that say which process has made them."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor([i, os.getpid()])


def forked(function):
    """Runs a function in a forked child; returns its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(function() or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def case_loader():
    """Workers of a DataLoader are forked while training goes on."""
    loader = torch.utils.data.DataLoader(
        Data(), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    pids = set()
    for _ in range(2):
        for batch in loader:
            total = hvd.allreduce(batch[:, 0].float(), op=hvd.Sum)
            assert torch.equal(total, batch[:, 0].float() * hvd.size())
            pids.update(batch[:, 1].tolist())
    assert os.getpid() not in pids and len(pids) == 4, pids


def case_refusal():
    def child():
        comm = world.communicator
        for call in (comm.barrier, comm.close, lambda: comm.allreduce(0, 0, 8, 0), comm.describe):
            try:
                call()
            except ForkedError as e:
                assert "must exec" in str(e)
            else:
                return 1
        return 0

    assert forked(child) == 0
    assert forked(lambda: forked(child)) == 0  # and its children
    hvd.barrier()


def case_exits():
    """All ways to end, with the hooks for the exit of an interpreter."""

    def leave():
        sys.exit(7)

    pid = os.fork()
    if pid == 0:
        import atexit

        atexit.register(lambda: None)
        sys.stdout.flush()
        import threading

        threading._shutdown()
        atexit._run_exitfuncs()  # as at the end of a child that returns
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    hvd.barrier()


def case_spawned():
    """A child that executes another program is nobody's business."""
    import subprocess

    assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\n"
    hvd.barrier()


def case_sockets():
    """A child has none of our sockets: with one left, peers would not see the end of this process.
    """
    address = world.communicator.endpoint.address
    ports = {int(a.rpartition(":")[2]) for a in hvd.allgather_object(address)}

    def ours():
        """Sockets of this process that are, or talk to, an endpoint."""
        found = set()
        with open("/proc/self/net/tcp") as f:
            for row in (line.split() for line in f.readlines()[1:]):
                if {int(end.rpartition(":")[2], 16) for end in row[1:3]} & ports:
                    found.add(row[9])
        held = set()
        for fd in os.listdir("/proc/self/fd"):
            try:
                held.add(os.readlink("/proc/self/fd/" + fd)[len("socket:[") : -1])
            except OSError:
                pass  # that of this listing
        return found & held

    assert len(ours()) > 1, "the listener, and connections"
    assert forked(lambda: len(ours())) == 0
    assert len(ours()) > 1
    hvd.barrier()


def case_death_is_not_hidden():
    """The last rank dies while a child of it lives on, until the first rank has learned of the
    death."""
    last = hvd.size() - 1
    gate = os.path.join(tempfile.mkdtemp(), "gate") if hvd.rank() == 0 else None
    gate = hvd.broadcast_object(gate, 0)
    if hvd.rank() == 0:
        os.mkfifo(gate)
    hvd.barrier()
    orphan = 0
    if hvd.rank() == last:
        orphan = os.fork()
        if orphan == 0:
            signal.alarm(150)  # ends it if the first rank never learns of anything
            with open(gate, encoding="utf-8"):
                os._exit(0)
    orphan = hvd.broadcast_object(orphan, last)
    if hvd.rank() == last:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            hvd.allreduce(torch.ones(1))
    except hvd.HorovodInternalError as e:
        assert e.rank == last, e
    os.kill(orphan, 0)  # it is still there
    with open(gate, "w", encoding="utf-8"):
        pass
    os.remove(gate)
    os.rmdir(os.path.dirname(gate))
