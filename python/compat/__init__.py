"""Tests of what only current versions of torch have, run by ``make test-torch``."""
