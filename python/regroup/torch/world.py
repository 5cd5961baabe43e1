"""The world of this process: which generation it is in, and the communicator of it."""

from __future__ import annotations

import atexit
import os
from typing import Any, List, Optional

from .. import _library as lib
from .. import place as places
from ..communicator import Communicator
from ..errors import RegroupError
from ..place import Place
from ..training import Training, communicator


class World:
    """There is one, ``world``. Everything here belongs to the training thread."""

    def __init__(self) -> None:
        self.mode: Optional[str] = None  # one of regroup.place; None = not initialised
        self.place = Place()
        self.training: Optional[Training] = None  # while elastic.run goes on
        self.sampler: Any = None  # the elastic sampler whose samples are accounted for
        self.consumed = False  # a step was made since the last commit
        self.entries = (
            0  # grows with every communicator: what belongs to one is made again for the next
        )
        self._communicator: Optional[Communicator] = None
        self._owned = False
        self._gpus: Any = None  # regroup.torch.gpus.Gpus of the newest generation
        self._pid = 0

    def init(self) -> None:
        """Finds the place of this process; connects it where the launcher has given it a rank."""
        if self.mode is not None:
            return
        place, mode = places.expected(), places.mode()
        self._pid = os.getpid()
        if mode == places.STATIC and place.size > 1:
            from . import mesh

            made = mesh.from_environment(place.rank, place.size)
            self._set(place, made, owned=True)
        else:
            self.place = place
        self.mode = mode
        atexit.register(self.at_exit)

    def shutdown(self) -> None:
        """Leaves the generation."""
        self._drop()
        self.mode = None
        self.place = Place()
        atexit.unregister(self.at_exit)

    def at_exit(self) -> None:
        """Says goodbye, so that the last bytes reach peers that are slower. A forked child has nothing to say."""
        if os.getpid() == self._pid:
            self._drop()

    def _drop(self) -> None:
        made, self._communicator = self._communicator, None
        if made is not None and self._owned:
            made.close()

    def _set(self, place: Place, made: Communicator, owned: bool) -> None:
        self.place, self._communicator, self._owned = place, made, owned
        self.entries += 1

    def enter(self, session: lib.Session) -> None:
        """Takes the place that a session gives."""
        self._set(
            Place(
                generation=session.generation,
                rank=session.rank,
                size=session.world,
                local_rank=session.local_rank,
                local_size=session.local_size,
                cross_rank=session.cross_rank,
                cross_size=session.cross_size,
            ),
            communicator(session),
            owned=False,
        )

    def survey(self) -> None:
        """Finds out whether all ranks of the generation have GPUs. All of them call it, before any operation."""
        from . import gpus

        made, place = self._communicator, self.place
        told = made.allgather_bytes(gpus.absence().encode()) if made.world > 1 else []
        reason = gpus.agreed([b.decode() for b in told]) or gpus.absence()
        made.gpus = self._gpus = gpus.Gpus(
            made, reason, place.local_rank, place.local_size, self._gpus
        )

    def end(self) -> None:
        """Gives back what generations have handed on to each other."""
        left, self._gpus = self._gpus, None
        if left is not None:
            left.close()

    def leave(self) -> None:
        """Forgets the communicator of a session that is over; the place stays what it was last."""
        if not self._owned:
            self._communicator = None

    def initialized(self) -> Place:
        """The place, for whoever asks the API."""
        if self.mode is None:
            raise RegroupError("Regroup has not been initialized; call init() first")
        return self.place

    @property
    def communicator(self) -> Optional[Communicator]:
        """Of the generation; None where this process is alone and needs none."""
        made = self._communicator
        if made is not None:
            return made
        self.initialized()
        if self.mode == places.ELASTIC:
            raise RegroupError(
                "there is no generation: in a job with --recovery in-process, collective operations belong into the "
                "function that is decorated with elastic.run; a script without one runs with --recovery restart"
            )
        return None

    def gpus(self) -> str:
        """How tensors on GPUs travel, for people."""
        self.initialized()
        made = self._communicator
        if made is None or made.gpus is None:
            return "there is nobody to exchange tensors with"
        return made.gpus.describe()

    def failed(self) -> Optional[Exception]:
        """Why the generation is over; None while it is not, or where there is none."""
        return None if self._communicator is None else self._communicator.failed()


world = World()


def allgather_bytes(data: bytes) -> List[bytes]:
    """What all ranks give, in the order of the ranks."""
    made = world.communicator
    return [data] if made is None else made.allgather_bytes(data)
