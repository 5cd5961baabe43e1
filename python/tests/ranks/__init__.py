"""Modules that run as the ranks of a test, one process each. Every function case_... of one is
called on all ranks."""
