"""torch.distributed's default group with the members of the job: see ``follow``."""

from .follower import Follower, follow

__all__ = ["Follower", "follow"]
