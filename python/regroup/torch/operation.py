"""What an operation on tensors is, and the ways of calling one.

An operation is declared once, as a class: its parameters, how it is started, its gradient. Of that
``sync`` and ``started`` make the public functions, whose names say how they are called:

    allreduce             waits, and returns the result, which has a gradient
    allreduce_async       returns a handle for poll and synchronize
    allreduce_            works in place, without a gradient; and so does allreduce_async_
    grouped_allreduce     takes a list of tensors, and its result is one
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .calls import Call
from .handles import Handle, Handles

#: What alltoall takes and returns.
Splits = Union[None, Sequence[int], torch.Tensor]
Pair = Tuple[torch.Tensor, torch.Tensor]


class Past(NamedTuple):
    """A call whose gradient is computed."""

    call: Call
    how: Any
    shape: torch.Size  # of the tensor
    saved: Sequence[torch.Tensor]  # what saved has returned


class Operation:
    """One of Horovod's operations."""

    #: The beginning of the names of its calls.
    name = ""

    #: The type of its result, as signatures show it.
    result = "torch.Tensor"

    #: Whether it takes a list of tensors.
    grouped = False

    #: Its parameters, in Horovod's order, those of sync functions: a function that returns what the
    #: other methods call how. Functions that return a handle or work in place have no compression.
    how: Callable[..., Any]

    def start(self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False) -> Handle:
        """Starts it. wait: the caller waits for it at once, so it may be executed before this
        returns. For a GPU tensor it then ends when later work on the stream is ordered after it."""
        raise NotImplementedError

    def returned(self, result: Any, how: Any) -> Any:
        """What a sync function returns for the result of a handle."""
        return result

    def calls(self, call: Call, tensor: Any) -> List[Call]:
        """The calls that one consists of. The ranks that wait for them are told if an argument is
        invalid."""
        return [call]

    def differentiable(self, tensors: Sequence[Any], how: Any) -> bool:
        """Whether the result needs a gradient."""
        return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)

    def apply(self, call: Call, tensor: Any, how: Any) -> Any:
        """Executes it so that the result has a gradient."""
        result = _Differentiable.apply(self, call, how, *(tensor if self.grouped else [tensor]))
        return list(result) if self.grouped else result

    def saved(self, tensors: Sequence[torch.Tensor], result: Any, how: Any) -> Sequence[torch.Tensor]:
        """What the gradient is computed from, besides the gradient of the result."""
        return ()

    def gradient(self, past: Past, gradient: Any) -> Any:
        """The gradient of the tensor, for that of the result. Both are lists if it is grouped."""
        raise NotImplementedError


class Each(Operation):
    """An operation on each tensor of a list."""

    grouped = True

    def __init__(self, of: Operation):
        self._of, self.name, self.how = of, of.name, of.how

    def calls(self, call: Call, tensor: Any) -> List[Call]:
        return call.parts(len(tensor))

    def start(self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False) -> Handle:
        return Handles([self._of.start(c, t, how) for c, t in zip(self.calls(call, tensor), tensor)])

    def differentiable(self, tensors: Sequence[Any], how: Any) -> bool:
        return self._of.differentiable(tensors, how)

    def apply(self, call: Call, tensor: Any, how: Any) -> Any:
        return [self._of.apply(c, t, how) for c, t in zip(self.calls(call, tensor), tensor)]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, operation, call, how, *tensors):
        given = list(tensors) if operation.grouped else tensors[0]
        result = operation.start(call, given, how, wait=True).synchronize()
        ctx.operation, ctx.call, ctx.how, ctx.shape = operation, call, how, tensors[0].shape
        saved = operation.saved(tensors, result, how)
        ctx.saves = len(saved) > 0
        ctx.save_for_backward(*saved)
        return tuple(result) if operation.grouped else result

    @staticmethod
    def backward(ctx, *gradients):
        # A program may go backward from each result of a group in turn: what is saved is gone then.
        past = Past(ctx.call, ctx.how, ctx.shape, ctx.saved_tensors if ctx.saves else ())
        if ctx.operation.grouped:
            return (None, None, None, *ctx.operation.gradient(past, list(gradients)))
        return None, None, None, ctx.operation.gradient(past, gradients[0])


def sync(operation: Operation, doc: str, inplace: bool = False) -> Callable[..., Any]:
    """The function that waits for the operation and returns its result."""

    def run(call: Call, tensor: Any, how: Any, differentiable: bool) -> Any:
        if differentiable:
            return operation.returned(operation.apply(call, tensor, how), how)
        return operation.returned(operation.start(call, tensor, how, inplace, True).synchronize(), how)

    result = "List[torch.Tensor]" if operation.grouped else operation.result
    return _function(operation, "_" if inplace else "", doc, result, run)


def started(operation: Operation, doc: str = "", inplace: bool = False) -> Callable[..., Handle]:
    """The function that starts the operation and returns a handle."""

    def run(call: Call, tensor: Any, how: Any, _: bool) -> Handle:
        return operation.start(call, tensor, how, inplace)

    return _function(operation, "_async_" if inplace else "_async", doc, "Handle", run)


def _function(operation: Operation, ending: str, doc: str, result: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a public function: it looks up the call, checks the arguments, and runs."""
    declared = inspect.signature(operation.how)
    first, *rest = declared.parameters.values()
    if operation.grouped:
        first = first.replace(name="tensors", annotation="Sequence[torch.Tensor]")
    if ending:
        rest = [p for p in rest if p.name != "compression"]
    signature = declared.replace(parameters=[first, *rest], return_annotation=result)
    defaults = {p.name: p.default for p in rest if p.default is not p.empty}

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeError(f"{function.__name__}() {e}") from None
        given: Dict[str, Any] = {**defaults, **bound}
        tensor = given.pop(first.name)
        call = Call(operation.name, given.pop("name"), given.pop("process_set"))
        with contextlib.ExitStack() as checked:
            for part in operation.calls(call, tensor):
                checked.enter_context(part)
            how = operation.how(tensor, **given)
            given_tensors = tensor if operation.grouped else [tensor]
            differentiable = not ending and operation.differentiable(given_tensors, how)
        return run(call, tensor, how, differentiable)

    name = ("grouped_" if operation.grouped else "") + operation.name
    function.__name__ = function.__qualname__ = name + ending
    function.__module__ = f"{__package__}.operations"
    function.__doc__ = doc or f"Starts {(name + ending).replace('_async', '')}."
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in (first, *rest)}
    function.__annotations__["return"] = result
    return function
