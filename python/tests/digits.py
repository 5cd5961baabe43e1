"""Makes small IDX files that look like MNIST: what scripts for it read."""

import os
import random
import struct


def make(folder: str, train: int, test: int) -> str:
    """Writes the four files; a label is where the bright bar of its image is."""
    rng = random.Random(5)
    for kind, n in (("train", train), ("t10k", test)):
        labels = [rng.randrange(10) for _ in range(n)]
        with open(os.path.join(folder, f"{kind}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">II", 0x801, n) + bytes(labels))
        with open(os.path.join(folder, f"{kind}-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">IIII", 0x803, n, 28, 28))
            for label in labels:
                row = bytes(255 if 2 * label <= x < 2 * label + 3 else rng.randrange(40) for x in range(28))
                f.write(row * 28)
    return folder
