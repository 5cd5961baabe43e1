"""Tests that scripts for other frameworks work as they are, run by ``make test-torch``."""
