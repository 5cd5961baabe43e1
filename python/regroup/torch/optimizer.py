"""DistributedOptimizer: an optimizer whose gradients are averaged over the ranks while they are
computed."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch

from ..errors import InvalidArgumentError, RegroupError, UnsupportedError
from .buckets import Reducer
from .claims import claim
from .compression import Compression
from .process_sets import ProcessSet, group_of
from .reductions import Adasum, Average, Sum
from .world import world


class _DistributedOptimizer:
    """The methods that DistributedOptimizer adds to the optimizer's own class."""

    def _rg_init(
        self,
        names: List[Tuple[str, torch.Tensor]],
        compression: Any,
        passes: int,
        op: int,
        predivide: float,
        densify: bool,
        process_set: Any,
    ) -> None:
        self._parameter_names = {p: name for name, p in names}  # Horovod's name for it
        self._rg_process_set, self._rg_size = process_set, 1
        self._rg_compression, self._rg_op, self._rg_predivide = compression, op, predivide
        self._rg_passes, self._rg_densify = passes, densify
        self._rg_parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._rg_delay = [passes] * len(self._rg_parameters)
        self._rg_reducer: Optional[Reducer] = None
        self._rg_entry = -1
        self._rg_synchronized = False
        self._rg_synchronize = True
        claim(self._rg_parameters, "DistributedOptimizer")
        # Python does not see that a parameter has its hooks: with a reference both would stay for good.
        reference = weakref.ref(self)

        def arrived(_: torch.Tensor, i: int) -> None:
            optimizer = reference()
            if optimizer is not None:
                optimizer._rg_ready(i)

        for i, p in enumerate(self._rg_parameters):
            p.register_post_accumulate_grad_hook(functools.partial(arrived, i=i))

    def _rg_current(self) -> Optional[Reducer]:
        """The reducer for this generation; None in a world of one."""
        if self._rg_entry != world.entries:
            # Gradients of an earlier generation are dropped, on all ranks.
            if self._rg_reducer is not None:
                self._rg_reducer.close()
            self._rg_reducer = None
            self._rg_entry = world.entries
            self._rg_delay = [self._rg_passes] * len(self._rg_parameters)
            chosen = self._rg_process_set
            if isinstance(chosen, ProcessSet) and not chosen.included():
                return None  # it is a local optimizer
            group = group_of(chosen)
            self._rg_size = group.size
            if group.comm is not None and group.size > 1:
                op = Sum if self._rg_predivide != 1.0 else self._rg_op
                number = group.comm.named.number("DistributedOptimizer")
                how = op, self._rg_compression, chosen
                self._rg_reducer = Reducer(number, self._rg_parameters, group.comm, *how)
        return self._rg_reducer

    def _rg_gradient(self, i: int) -> Optional[torch.Tensor]:
        gradient = self._rg_parameters[i].grad
        if gradient is not None and gradient.is_sparse and self._rg_densify:
            return gradient.to_dense()
        return gradient

    def _rg_ready(self, i: int) -> None:
        if self._rg_current() is None:
            self._rg_gradient(i)
            return
        if self._rg_delay[i] == 0:
            raise world.failed() or RegroupError(
                "gradients were computed more than backward_passes_per_step times before step(): "
                "give DistributedOptimizer the number of passes, or call step() or synchronize() in between"
            )
        self._rg_delay[i] -= 1
        if self._rg_delay[i] == 0:
            self._rg_reducer.add(i, self._rg_gradient(i), self._rg_before())

    def _rg_before(self) -> float:
        """The factor of gradients before the reduction."""
        factor = 1.0 / self._rg_predivide
        if self._rg_op == Average and self._rg_passes == 1 and world.sampler is not None:
            factor *= world.sampler.weight()
        return factor

    def _rg_after(self) -> float:
        return self._rg_predivide / self._rg_size if self._rg_predivide != 1.0 else 1.0

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number of backward passes in a step."""
        self._rg_passes = passes
        self._rg_delay = [passes] * len(self._rg_parameters)

    def synchronize(self) -> None:
        """Waits until the gradients are reduced, for example to clip them.

        A parameter without a gradient on this rank counts as zeros, and has a gradient afterwards.
        """
        reducer = self._rg_current()
        if reducer is not None:
            before = self._rg_before()
            for i in reducer.missing():
                reducer.add(i, self._rg_gradient(i), before)
            reducer.finish(self._rg_after())
        self._rg_delay = [self._rg_passes] * len(self._rg_parameters)
        self._rg_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Within it step() does not synchronize, because the program has."""
        self._rg_synchronize = False
        try:
            yield
        finally:
            self._rg_synchronize = True

    def step(self, closure: Optional[Callable] = None) -> Any:
        """Makes a step with the gradients of all ranks."""
        if self._rg_synchronize:
            if self._rg_synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): "
                    "it synchronizes a second time"
                )
            self.synchronize()
        self._rg_synchronized = False
        return super(type(self), self).step(closure)

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """Zeroes the gradients; not while they are being reduced."""
        if self._rg_reducer is not None and self._rg_entry == world.entries and not self._rg_reducer.idle():
            raise world.failed() or RegroupError(
                "zero_grad() between backward() and step(): gradients are on their way"
            )
        super(type(self), self).zero_grad(*arguments, **options)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: Any = None,
) -> torch.optim.Optimizer:
    """Returns an optimizer of the same class that reduces the gradients of all ranks before each
    step.

    It shares parameter groups and state with the given one. Reductions begin during the backward
    pass. ``num_groups`` and ``groups`` are accepted for compatibility with Horovod: gradients are
    reduced in buckets anyway. With ``process_set`` the gradients are those of some ranks; on the
    others it is a local optimizer.
    """
    if process_set is not None and not isinstance(process_set, ProcessSet):
        raise InvalidArgumentError(f"process_set is a {type(process_set).__name__}, not a ProcessSet")
    if op == Adasum:
        raise UnsupportedError("Adasum is not offered: use Average")
    if op not in (Average, Sum):
        raise InvalidArgumentError("gradients are averaged or added: op=Average or op=Sum")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise InvalidArgumentError("gradient_predivide_factor goes with op=Average")
    if backward_passes_per_step < 1:
        raise InvalidArgumentError(f"backward_passes_per_step={backward_passes_per_step}: must be 1 or more")
    names = _names(optimizer, named_parameters)
    base = optimizer.__class__
    methods = dict(_DistributedOptimizer.__dict__)
    del methods["__dict__"], methods["__weakref__"]
    subclass = type(base.__name__, (base,), methods)
    wrapped = subclass.__new__(subclass)
    # Not initialised again, which would lose state: it is the same optimizer with other methods.
    # A scheduler that was created before has put its own step() into the dictionary, which would
    # bypass ours.
    wrapped.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    wrapped._rg_init(
        names, compression, backward_passes_per_step, op, gradient_predivide_factor, sparse_as_dense, process_set
    )
    return wrapped


def _names(
    optimizer: torch.optim.Optimizer, given: Optional[Iterable[Tuple[str, torch.Tensor]]]
) -> List[Tuple[str, torch.Tensor]]:
    """The parameters with their names, which must be complete and unique."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if given is None:
        return [(f"parameter {i}", p) for i, p in enumerate(parameters)]
    names = list(given)
    if any(not (isinstance(pair, tuple) and len(pair) == 2) for pair in names):
        raise InvalidArgumentError("named_parameters is a sequence of (name, parameter)")
    count: Dict[str, int] = {}
    for name, _ in names:
        count[name] = count.get(name, 0) + 1
    twice = sorted(name for name, n in count.items() if n > 1)
    if twice:
        raise InvalidArgumentError(f"named_parameters has twice: {', '.join(twice)}")
    known = {id(p) for _, p in names}
    unnamed = sum(id(p) not in known for p in parameters)
    if unnamed:
        raise InvalidArgumentError(f"named_parameters lacks {unnamed} of the optimizer's {len(parameters)} parameters")
    return names
