"""The backend ``regroup`` of torch.distributed::

    import regroup.torch.distributed
    torch.distributed.init_process_group("regroup")

Everything that uses process groups runs on it as it is: torch.distributed's operations, DistributedDataParallel. Small
tensors of the host's memory are carried out by the calling thread before the call returns; larger ones go on in the
background. Tensors on a GPU are copied to the host and back.

Written for torch 1.13 and 2.x.
"""

from __future__ import annotations

import inspect
import weakref
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from .. import _library as lib
from .. import settings
from ..communicator import Communicator
from ..errors import InvalidArgumentError
from . import mesh
from .reductions import bitwise, reduction
from .tensors import TYPES, check, kind, moved, reachable, staged
from .works import Done, Pending, Started, Waiter, called_by_python, done_work

#: The name of the backend.
BACKEND = "regroup"

#: Up to how many bytes an operation is carried out by the calling thread.
INLINE_BYTES = settings.inline_bytes()

_FILE = (lambda: 0).__code__.co_filename


class ProcessGroup(dist.ProcessGroup):
    """The ranks of one group, connected."""

    def __init__(self, made: Communicator, timeout: Optional[timedelta] = None):
        super().__init__(made.rank, made.world)
        self._made, self._timeout = made, timeout
        self._handle = made.handle
        self._allreduce = lib.library().rg_allreduce
        self._waiter = Waiter(made)
        self._goodbye = weakref.finalize(self, _close, made)

    # What torch asks a group.

    def getBackendName(self) -> str:
        """The name of the backend."""
        return BACKEND

    def name(self) -> str:
        """The name of the backend."""
        return BACKEND

    def rank(self) -> int:
        """This process's number in the group."""
        return self._made.rank

    def size(self) -> int:
        """How many processes the group has."""
        return self._made.world

    @property
    def communicator(self) -> Communicator:
        """The communicator of the group."""
        return self._made

    def shutdown(self) -> None:
        """Leaves the group."""
        self._goodbye()

    def abort(self) -> None:
        """Ends the group on all ranks: whatever goes on fails within milliseconds."""
        self._made.abort("abort() was called")

    # How an operation runs.

    def _run(
        self,
        size: int,
        call: Callable[[bool], Optional[int]],
        result: Any,
        finish: Optional[Callable[[], None]] = None,
        wait: bool = False,
    ) -> Any:
        """Carries out call, or starts it if it is large; finish puts the result where it belongs.

        With wait, a caller in C++ gets it done: it may not look whether a future has failed.
        """
        python = called_by_python(_FILE)
        if size <= INLINE_BYTES or (wait and not python):
            call(False)
            if finish is not None:
                finish()
            return Done(result) if python else done_work(result)
        started = Started(call(True), result, finish, call)
        return Pending(started, self._waiter) if python else self._waiter.work(started)

    # Operations. Lists have one tensor, but for the ..._coalesced ones.

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceOptions()) -> Any:
        """Combines the ranks' tensors in place."""
        tensor = tensors[0]
        if (
            len(tensors) == 1
            and tensor.is_cpu
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
        ):
            # The way of small tensors, written out: it is what a step of a small model waits for.
            op, type_ = reduction(opts, tensor), TYPES.get(tensor.dtype)
            count = tensor.numel()
            if op is not None and type_ and 0 < count * tensor.element_size() <= INLINE_BYTES:
                status = self._allreduce(self._handle, tensor.data_ptr(), count, type_, op, None)
                if status:
                    raise lib.failure(status)
                return Done(tensors) if called_by_python(_FILE) else done_work(tensors)
        return self._allreduce_any(tensors, opts)

    def _allreduce_any(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        for tensor in tensors:
            check(tensor)
        op = reduction(opts, tensors[0])
        if op is None:
            bitwise(self._made, opts, tensors)
            return self._run(0, lambda start: None, tensors)
        if len(tensors) == 1 and reachable(tensors[0]) and not tensors[0].is_complex():
            flat, finish = tensors[0], None
        else:
            flat = _joined(tensors)
            finish = lambda: _parted(flat, tensors)  # noqa: E731
        if flat.numel() == 0:
            return self._run(0, lambda start: None, tensors)
        size = flat.numel() * flat.element_size()
        call = lambda start: self._made.allreduce(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        return self._run(size if tensors[0].is_cpu else 0, call, tensors, finish)

    def allreduce_coalesced(
        self, tensors: List[torch.Tensor], opts: Any = dist.AllreduceCoalescedOptions()
    ) -> Any:
        """Combines many tensors of one type in one go."""
        return self._allreduce_any(tensors, opts)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Copies the root's tensor to all."""
        (tensor,) = tensors
        check(tensor)
        work = tensor if reachable(tensor) else staged(tensor)
        finish = None if work is tensor else lambda: tensor.copy_(work)
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, tensors)
        call = lambda start: self._made.broadcast(  # noqa: E731
            work.data_ptr(), *moved(work), opts.rootRank, start
        )
        return self._run(_size(tensor), call, tensors, finish, wait=True)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Combines the ranks' tensors at the root; the others keep theirs."""
        (tensor,) = tensors
        check(tensor)
        root = opts.rootRank == self._made.rank
        op = reduction(opts, tensor)
        if op is None:
            raise InvalidArgumentError("reduce has no bitwise operations: use all_reduce")
        pairs = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        own = root and reachable(pairs)
        work = pairs if own else staged(pairs)
        finish = (lambda: pairs.copy_(work)) if root and not own else None
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, tensors)
        call = lambda start: self._made.reduce(  # noqa: E731
            work.data_ptr(), work.numel(), kind(work), op, opts.rootRank, start
        )
        return self._run(_size(tensor), call, tensors, finish, wait=True)

    def allgather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers the ranks' tensors into lists."""
        (into,), (tensor,) = outputs, inputs
        check(tensor)
        self._parts(into, tensor, "output")
        direct = _adjacent(into) and reachable(into[0])
        flat = (
            into[0]
            if direct
            else torch.empty(len(into), tensor.numel(), dtype=tensor.dtype, device="cpu")
        )

        def finish() -> None:
            for part, row in zip(into, flat):
                part.copy_(row.view(part.shape))

        return self._gather(tensor, flat, outputs, None if direct else finish)

    def _gather(
        self, tensor: torch.Tensor, flat: torch.Tensor, result: Any, finish: Optional[Callable]
    ) -> Any:
        work = tensor if reachable(tensor) else staged(tensor)
        if tensor.numel() == 0:
            return self._run(0, lambda start: None, result)
        call = lambda start: self._made.allgather(  # noqa: E731
            work.data_ptr(), flat.data_ptr(), *moved(work), start
        )
        size = _size(tensor) * self._made.world
        return self._run(size, call, result, finish, wait=True)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Gathers the ranks' tensors into one."""
        check(tensor)
        check(output, "output")
        if output.numel() != tensor.numel() * self._made.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"output has {output.numel()} elements of {output.dtype}, not {self._made.world} times "
                f"{tensor.numel()} of {tensor.dtype}"
            )
        if reachable(output):
            return self._gather(tensor, output, output, None)
        flat = torch.empty(output.shape, dtype=output.dtype, device="cpu")
        return self._gather(tensor, flat, output, lambda: output.copy_(flat))

    def all_gather_into_tensor(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """The same under its newer name."""
        return self._allgather_base(output, tensor, opts)

    def allgather_coalesced(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Gathers several tensors: list r of outputs has those of rank r."""
        for i, tensor in enumerate(inputs):
            self.allgather([[row[i] for row in outputs]], [tensor]).wait()
        return self._run(0, lambda start: None, outputs)

    def _parts(self, parts: Sequence[torch.Tensor], like: torch.Tensor, name: str) -> None:
        if len(parts) != self._made.world:
            raise InvalidArgumentError(
                f"{len(parts)} tensors of {name} for {self._made.world} ranks"
            )
        for part in parts:
            check(part, name)
            if part.numel() != like.numel() or part.dtype != like.dtype:
                raise InvalidArgumentError(
                    f"{name} of {part.numel()} elements of {part.dtype}, not {like.numel()} of {like.dtype}"
                )

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None
    ) -> Any:
        """Combines the ranks' lists; each rank gets its tensor of the result."""
        (output,), (parts,) = outputs, inputs
        self._parts(parts, output, "input")
        return self._scatter_reduced(output, _joined(parts), opts, outputs)

    def _reduce_scatter_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """Combines the ranks' tensors; each rank gets its part of the result."""
        check(tensor)
        check(output, "output")
        if tensor.numel() != output.numel() * self._made.world or output.dtype != tensor.dtype:
            raise InvalidArgumentError(
                f"input has {tensor.numel()} elements of {tensor.dtype}, not {self._made.world} times "
                f"{output.numel()} of {output.dtype}"
            )
        return self._scatter_reduced(output, staged(tensor).reshape(-1), opts, output)

    def reduce_scatter_tensor(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Any:
        """The same under its newer name."""
        return self._reduce_scatter_base(output, tensor, opts)

    def _scatter_reduced(
        self, output: torch.Tensor, flat: torch.Tensor, opts: Any, result: Any
    ) -> Any:
        op = lib.SUM if opts is None else reduction(opts, flat)
        if op is None:
            raise InvalidArgumentError("reduce_scatter has no bitwise operations")
        mine = flat[self._made.rank * output.numel() :][: output.numel()]
        if flat.numel() == 0:
            return self._run(0, lambda start: None, result)
        call = lambda start: self._made.reduce_scatter(  # noqa: E731
            flat.data_ptr(), flat.numel(), kind(flat), op, start
        )
        finish = lambda: output.copy_(mine.view(output.shape))  # noqa: E731
        return self._run(_size(flat) if output.is_cpu else 0, call, result, finish)

    def gather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any
    ) -> Any:
        """Gathers the ranks' tensors at the root."""
        (tensor,) = inputs
        check(tensor)
        root, world = opts.rootRank, self._made.world
        work = staged(tensor)
        counts, kind_ = moved(work)
        receive = root == self._made.rank
        if receive:
            self._parts(outputs[0], tensor, "output")
        flat = torch.empty(world if receive else 0, tensor.numel(), dtype=tensor.dtype)
        self._made.alltoall(
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [counts if r == root else 0 for r in range(world)],
            [counts if receive else 0] * world,
        )
        if receive:
            for part, row in zip(outputs[0], flat):
                part.copy_(row.view(part.shape))
        return self._run(0, lambda start: None, outputs or inputs)

    def scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any
    ) -> Any:
        """Gives each rank its tensor of the root's list."""
        (output,) = outputs
        check(output, "output")
        root, world = opts.rootRank, self._made.world
        count, kind_ = moved(output)
        send = root == self._made.rank
        if send:
            self._parts(inputs[0], output, "input")
            work = torch.cat([t.detach().cpu().reshape(-1) for t in inputs[0]])
        else:
            work = torch.empty(0, dtype=output.dtype)
        flat = torch.empty(output.shape, dtype=output.dtype)
        self._made.alltoall(
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [count if send else 0] * world,
            [count if r == root else 0 for r in range(world)],
        )
        output.copy_(flat)
        return self._run(0, lambda start: None, outputs)

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: List[int],
        input_splits: List[int],
        opts: Any = None,
    ) -> Any:
        """Sends rows to all ranks, as many as the splits say; none = in equal parts."""
        check(tensor)
        check(output, "output")
        if output.dtype != tensor.dtype:
            raise InvalidArgumentError(f"output is of {output.dtype}, input of {tensor.dtype}")
        out = self._split(tensor, input_splits, "input")
        into = self._split(output, output_splits, "output")
        work = tensor if reachable(tensor) else staged(tensor)
        own = reachable(output) and output.data_ptr() != work.data_ptr()
        flat = output if own else torch.empty(output.shape, dtype=output.dtype)
        _, kind_ = moved(work)
        width = work.element_size() if work.dtype not in TYPES else 1
        call = lambda start: self._made.alltoall(  # noqa: E731
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [n * width for n in out],
            [n * width for n in into],
            start,
        )
        finish = None if own else lambda: output.copy_(flat)
        return self._run(_size(tensor), call, output, finish, wait=True)

    def _split(self, tensor: torch.Tensor, splits: List[int], name: str) -> List[int]:
        """Elements for or from each rank."""
        world = self._made.world
        rows = tensor.shape[0] if tensor.dim() else 1
        width = tensor.numel() // rows if rows else 0
        if not splits:
            if rows % world:
                raise InvalidArgumentError(
                    f"{name} has {rows} rows, no multiple of {world} ranks: give splits"
                )
            splits = [rows // world] * world
        if len(splits) != world or sum(splits) != rows:
            raise InvalidArgumentError(
                f"splits {splits} do not divide {rows} rows of {name} among {world} ranks"
            )
        return [n * width for n in splits]

    def alltoall(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Sends tensor i of inputs to rank i."""
        for name, parts in (("output", outputs), ("input", inputs)):
            if len(parts) != self._made.world:
                raise InvalidArgumentError(
                    f"{len(parts)} tensors of {name} for {self._made.world} ranks"
                )
            for part in parts:
                check(part, name)
        work = torch.cat([t.detach().cpu().reshape(-1) for t in inputs])
        flat = torch.empty(sum(t.numel() for t in outputs), dtype=outputs[0].dtype)
        _, kind_ = moved(work)
        width = work.element_size() if work.dtype not in TYPES else 1
        self._made.alltoall(
            work.data_ptr(),
            flat.data_ptr(),
            0,
            kind_,
            [t.numel() * width for t in inputs],
            [t.numel() * width for t in outputs],
        )
        _parted(flat, outputs)
        return self._run(0, lambda start: None, outputs)

    def send(self, tensors: List[torch.Tensor], dst: int, tag: int) -> Any:
        """Sends a tensor to a rank that receives one as long with this tag."""
        (tensor,) = tensors
        check(tensor)
        work = tensor if reachable(tensor) else staged(tensor)
        request = self._made.send(
            work.data_ptr(), work.numel() * work.element_size(), dst, tag, start=True
        )
        return self._direct(Started(request, tensors, None, work))

    def recv(self, tensors: List[torch.Tensor], src: int, tag: int) -> Any:
        """Receives the next tensor of a rank with this tag."""
        (tensor,) = tensors
        check(tensor)
        work = tensor if reachable(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
        request = self._made.recv(
            work.data_ptr(), work.numel() * work.element_size(), src, tag, start=True
        )
        finish = None if work is tensor else lambda: tensor.copy_(work)
        return self._direct(Started(request, tensors, finish, work))

    def _direct(self, started: Started) -> Any:
        python = called_by_python(_FILE)
        return Pending(started, self._waiter) if python else self._waiter.work(started)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int) -> Any:
        """Not offered."""
        raise NotImplementedError("recv without a source is not offered: name the rank")

    def barrier(self, opts: Any = None) -> Any:
        """Returns when every rank has called it."""
        self._made.barrier()
        return self._run(0, lambda start: None, [])


def _size(tensor: torch.Tensor) -> int:
    """Bytes that decide where an operation runs. Copies to and from a GPU are made by the calling thread."""
    return tensor.numel() * tensor.element_size() if tensor.is_cpu else 0


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """A copy of tensors one behind the other, in the host's memory; complex numbers as pairs."""
    if len({t.dtype for t in tensors}) > 1:
        raise InvalidArgumentError("tensors of several types in one operation")
    parts = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    return torch.cat([t.detach().cpu().reshape(-1) for t in parts])


def _parted(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Takes apart what _joined has put together."""
    at = 0
    for t in tensors:
        view = torch.view_as_real(t) if t.is_complex() else t
        view.copy_(flat[at : at + view.numel()].view(view.shape))
        at += view.numel()


def _adjacent(parts: Sequence[torch.Tensor]) -> bool:
    """Whether tensors lie one behind the other in memory."""
    at = parts[0].data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != at:
            return False
        at += part.numel() * part.element_size()
    return True


def _close(made: Communicator) -> None:
    lib.library().rg_comm_close(made.handle)  # a forked child's "no" does not matter


def create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    """Makes a group: what torch.distributed calls."""
    return ProcessGroup(mesh.connect(store, rank, size, timeout), timeout)


def register() -> None:
    """Makes the backend known to torch.distributed."""
    if hasattr(dist.Backend, BACKEND.upper()):
        return
    more = {}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        more["devices"] = ["cpu", "cuda"]  # torch 2
    dist.Backend.register_backend(BACKEND, create, **more)


if dist.is_available():
    register()
