"""What all operations have in common: the ranks that take part, and the name by which they are
matched."""

from __future__ import annotations

import pickle
import threading
from types import TracebackType
from typing import Any, List, Optional, Type

import torch

from ..errors import InvalidArgumentError, UnsupportedError
from .process_sets import Group, group_of

#: The thread of the program, which has called init. Operations without a name are numbered, which
#: is consistent across ranks only if one thread numbers them.
_program: Optional[int] = None


def begin() -> None:
    """Marks the calling thread as the program's."""
    global _program
    _program = threading.get_ident()


#: Errors that the arguments of a call are to blame for; pickling raises the last three.
_WRONG = (InvalidArgumentError, UnsupportedError, ValueError, TypeError, AttributeError, pickle.PicklingError)


class Call:
    """One call of an operation. Its arguments are checked within ``with``: if they are invalid, the
    ranks that wait for the operation get an error as well."""

    def __init__(self, method: str, name: Optional[str], process_set: Any, full: str = ""):
        self._process_set = process_set
        self.group: Group = group_of(process_set)
        self.comm = self.group.comm
        #: The name on all ranks: that of the method and the caller's, as in Horovod, or a number.
        self.name = full or (f"{method}.{name}" if name else self._number(method))

    def part(self, name: str) -> "Call":
        """A call of an operation that this one consists of, or that computes its gradient."""
        return Call("", None, self._process_set, f"{self.name}.{name}")

    def parts(self, count: int) -> List["Call"]:
        """The calls of so many operations of one kind."""
        return [self.part(f"{i + 1}of{count}") for i in range(count)]

    def _number(self, method: str) -> str:
        if self.comm is None:
            return method
        if _program is not None and threading.get_ident() != _program:
            raise InvalidArgumentError(
                f"{method} needs a name: only the thread that has called init() may do without, because the "
                "ranks' threads run in any order"
            )
        return self.comm.named.number("noname")

    def __enter__(self) -> "Call":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if isinstance(error, _WRONG) and self.comm is not None:
            self.comm.named.refuse(self.name, f"rank {self.group.rank}: {error}")


def signature(tensor: torch.Tensor, *more: str) -> str:
    """What must be equal on all ranks, besides the count: the type, the shape, the kind of device."""
    return " ".join((str(tensor.dtype), str(list(tensor.shape)), tensor.device.type) + more)


def rows_signature(tensor: torch.Tensor) -> str:
    """The signature without the number of rows."""
    rest = ["rows"] + list(tensor.shape[1:])
    return f"{tensor.dtype} {rest} {tensor.device.type}"
