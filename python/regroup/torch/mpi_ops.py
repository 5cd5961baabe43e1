"""Horovod's module mpi_ops, for scripts that import from it."""

from . import *  # noqa: F403
