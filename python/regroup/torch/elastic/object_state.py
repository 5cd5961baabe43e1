"""State and ObjectState: the state that a worker can restore."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Set

import torch

from ... import membership
from ...errors import DivergedError, HostsUpdatedInterrupt, RegroupError, UnsupportedError, WorkerLostError
from ...training import Training
from .. import replicas
from ..functions import broadcast_object
from ..world import allgather_bytes, describe, world
from .sampler import ElasticSampler
from .untracked import Watch

#: Why a state that is in an elastic.run, or has been, cannot be restored outside of it.
NOTHING_SAVED = "there is nothing to return to: what was saved before elastic.run went over to it; save() keeps the state as it is now"


class State:
    """The base class of states. Derive from it for a state of your own: save, restore, sync and
    maybe reset.

    Such a state is managed by its own methods, as in Horovod: ``save`` is called at each commit,
    ``restore`` after a loss, ``sync`` at the start of each generation. Then rank 0 is a survivor,
    if there is one.
    """

    def __init__(self, bcast_object: Any = None, get_rank: Any = None):
        self._reset_callbacks: List[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Adds functions that are called, without arguments, when the world has changed: to scale a
        learning rate or to rebuild a loader. They run on every rank at the start of a generation,
        also on newcomers, when the state is in sync and rank() and size() are the new ones."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Calls reset and the reset callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any = None, update_res: Any = None) -> None:
        """For compatibility: Horovod's driver calls it. Here the steps carry the notice of a
        change."""

    def commit(self) -> None:
        """Makes the state one that all ranks can restore. All must call it at the same step.

        Raises HostsUpdatedInterrupt if the members change, on all ranks at the same step and after
        saving.
        """
        training = world.training
        if training is None:
            self.save()
            return
        self._before_commit()
        try:
            merge_samplers(self._samplers())
            self.save()
            self._check(training)
            if world.sampler is None and not world.consumed:
                training.end_step()  # commits must differ in their step
            world.consumed = False
            self._commit(training)
        except HostsUpdatedInterrupt as e:
            e.committed = True
            raise
        except DivergedError:
            self._tell_difference()
            raise
        except WorkerLostError:
            self._commit_alone(training)
            raise

    def check_host_updates(self) -> None:
        """Commits if the members are about to change, and raises HostsUpdatedInterrupt. All ranks
        must call it."""
        training = world.training
        if training is None:
            return
        if world.sampler is None and not world.consumed:
            training.end_step()
            world.consumed = True
        if training.commit_due():
            self.commit()

    def save(self) -> None:
        """Saves the state, for restore."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores what was saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """A hook that is called when the world has changed, before the callbacks."""

    # For elastic.run.

    def _before_commit(self) -> None:
        """Called when a commit begins."""

    def _commit(self, training: Training) -> None:
        """Makes what was saved a commit."""
        training.commit()

    def _commit_alone(self, training: Training) -> None:
        """Called when a peer was lost in a commit."""

    def _leaves(self, training: Training, complete: bool) -> None:
        """Called before this rank leaves a generation, in which the training was completed or not."""

    def _returned(self) -> None:
        """Is called when the training function has returned, among all ranks."""

    def _end(self) -> None:
        """Called when elastic.run ends."""

    def _register(self, training: Training) -> None:
        """Registers the state with a training that has not begun."""
        self.save()

    def _arrange(self, training: Training) -> None:
        """Registers what this rank has of a sharded state in a generation."""

    def _enter(self, training: Training, lost: bool, survivor: bool) -> None:
        """Applies the state that the new generation has agreed on. survivor: this worker was in the
        previous one."""
        if lost:
            self.restore()
        with world.root_is_survivor(survivor):
            self.sync()

    def _check(self, training: Training) -> None:
        """Tells the engine what must be the same on all ranks in the commit."""

    def _tell_difference(self) -> None:
        """Raises an error that says what is not the same on all ranks, if something is not."""

    def _samplers(self) -> List[ElasticSampler]:
        return []

    def _addresses(self) -> Set[int]:
        """The addresses of the tensors that a worker which joins later gets with the state."""
        return set()


def merge_samplers(samplers: List[ElasticSampler]) -> None:
    """Merges what the ranks have recorded with samplers."""
    if not samplers:
        return
    mine = json.dumps([s.progress() for s in samplers]).encode()
    reports = [json.loads(b) for b in allgather_bytes(mine)]
    for i, s in enumerate(samplers):
        s.merge([r[i] for r in reports])


class ObjectState(State):
    """A state of plain attributes, which must be picklable: ``ObjectState(epoch=0, batch=0)``.

    They are unpickled on every rank that restores, syncs or continues from a checkpoint, and
    unpickling can run any code. A checkpoint that another user owns, or may write, is refused.

    After a change of the members all ranks have the attributes of one of them. So tensors must be
    there on all ranks, and whole: an attribute with a DTensor, or with tensors that another rank has
    not, is an UnsupportedError. Attributes that are not named here are this process's own.
    """

    if TYPE_CHECKING:  # the attributes are the caller's

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        replicas.check_whole(name, value)
        object.__setattr__(self, name, value)

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **kwargs: Any):
        self.__dict__["_names"] = []
        self.__dict__["_saved"] = None
        self.__dict__["_tensors"] = []  # a description of those that are pickled
        self.__dict__["_watch"] = None  # for what is trained and is not here
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            self._names.append(name)
            setattr(self, name, value)
        self._save_local()

    def _values(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _capture(self) -> Dict[str, Any]:
        return self._values()

    def _apply(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            self.__dict__[name] = value

    def _parts(self) -> Dict[str, Any]:
        """What is pickled, by what it is called in messages."""
        return self._values()

    def _pickled(self) -> bytes:
        try:
            data, self.__dict__["_tensors"] = replicas.dumps(self._capture())
        except Exception as e:
            raise self._unkept(e) from e
        return data

    def _unkept(self, error: Exception) -> Exception:
        """The error for what cannot be pickled, with its name."""
        for name, value in self._parts().items():
            try:
                replicas.dumps(value)
            except UnsupportedError as e:
                return UnsupportedError(f"state.{name} holds {e}")
            except Exception as e:
                return UnsupportedError(
                    f"state.{name} cannot be kept, because it cannot be pickled ({describe(e)}): keep what it is made of"
                )
        return error

    def _check(self, training: Training) -> None:
        if self._watch is not None:
            self._watch.warn(self._tracked(), self._tensors)
            if self._watch.over():
                self.__dict__["_watch"] = None
        training.alike(hashlib.sha1("\n".join(self._tensors).encode()).digest())

    def _tell_difference(self) -> None:
        parts = {name: replicas.dumps(value)[1] for name, value in self._parts().items()}
        all_parts = [json.loads(b) for b in allgather_bytes(json.dumps(parts).encode())]
        for name in sorted({name for p in all_parts for name in p}):
            held = [p.get(name, []) for p in all_parts]
            for rank, tensors in enumerate(held):
                if tensors != held[0]:
                    raise UnsupportedError(
                        f"state.{name} holds {_count(held[0])} on rank 0 and {_count(tensors)} on rank {rank}, and after a "
                        "change of the members all have those of one rank: give it the same tensors on every rank (a full "
                        "state dict without cpu_offload, which leaves it to rank 0), or keep it out of the state"
                    )

    def _tracked(self) -> List[torch.Tensor]:
        """The tensors that are kept where they are."""
        return []

    def _save_local(self) -> None:
        """Saves the attributes outside of elastic.run. Values that cannot be copied are referenced."""
        kept = {}
        for name, value in self._values().items():
            try:
                kept[name] = copy.deepcopy(value)
            except Exception:
                kept[name] = value
        self.__dict__["_saved"] = kept

    def save(self) -> None:
        """Updates what commit is about to save. It does not communicate with other ranks."""
        if world.training is not None:
            world.training.put("objects", self._pickled())
        else:
            self._save_local()

    def restore(self) -> None:
        """Returns to the last commit, on this rank; elastic.run calls it after a loss. Outside of
        elastic.run it returns to the last save, or to the initial values."""
        if world.training is not None:
            world.training.restore()
            self._apply(pickle.loads(world.training.get("objects")))
        elif self._saved is None:
            raise RegroupError(NOTHING_SAVED)
        else:
            ObjectState._apply(self, copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks. Within elastic.run, which has synced the state
        before it calls the training function, it does nothing."""
        if world.training is not None:
            return
        if world.communicator is not None:
            ObjectState._apply(self, broadcast_object(self._values()))
        self._save_local()

    def _register(self, training: Training) -> None:
        training.put("objects", self._pickled())
        self.__dict__["_saved"] = None

    def _enter(self, training: Training, lost: bool, survivor: bool) -> None:
        self._apply(pickle.loads(training.get("objects")))
        first = world.membership.generation == 1 or world.step == 0
        if world.mode == membership.ELASTIC and first and not survivor:
            self.__dict__["_watch"] = Watch()  # at the beginning: it takes some time


def _count(tensors: List[str]) -> str:
    if len(tensors) > 1:
        return f"{len(tensors)} tensors, the first of which is {tensors[0]}"
    return f"the tensor {tensors[0]}" if tensors else "no tensor"
