"""MNIST from IDX files."""

import os
import struct

import torch
import torch.utils.data


def _read(path):
    with open(path, "rb") as f:
        data = f.read()
    dimensions = data[3]
    shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
    return torch.frombuffer(bytearray(data[4 + 4 * dimensions :]), dtype=torch.uint8).reshape(shape)


class MNIST(torch.utils.data.Dataset):
    """Images and labels of a folder. There is nothing to download: the files are there, or it
    fails."""

    def __init__(self, root, train=True, download=False, transform=None):
        kind = "train" if train else "t10k"
        if download:
            with open(os.path.join(root, "downloads"), "a", encoding="utf-8") as f:
                f.write(f"{os.getpid()}\n")
        self.data = _read(os.path.join(root, f"{kind}-images-idx3-ubyte"))
        self.targets = _read(os.path.join(root, f"{kind}-labels-idx1-ubyte")).long()
        self.transform = transform

    def __getitem__(self, i):
        image = self.data[i]
        return (image if self.transform is None else self.transform(image)), int(self.targets[i])

    def __len__(self):
        return len(self.data)
