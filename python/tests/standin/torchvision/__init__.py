"""As much of torchvision as scripts for MNIST need, for tests: Debian's PyTorch comes without it.
"""

from . import datasets, transforms

__all__ = ["datasets", "transforms"]
