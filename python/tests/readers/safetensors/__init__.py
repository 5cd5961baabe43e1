"""What torch's HuggingFaceStorageReader needs of the package safetensors, for a machine that lacks it."""

import json
import math
import struct

from .torch import _getdtype

import torch


class safe_open:
    """An open file. It is refused where the package would: with holes, or with sizes that do not match."""

    def __init__(self, filename, framework):
        assert framework == "pt"
        with open(filename, "rb") as f:
            (size,) = struct.unpack("<Q", f.read(8))
            header = f.read(size)
            self._data = bytearray(f.read())
        assert header[:1] == b"{"
        self._entries = json.loads(header)
        self._metadata = self._entries.pop("__metadata__", None)
        assert all(isinstance(v, str) for v in (self._metadata or {}).values())
        end = 0
        for entry in sorted(self._entries.values(), key=lambda e: e["data_offsets"]):
            begin, after = entry["data_offsets"]
            assert (
                begin == end and after - begin == math.prod(entry["shape"]) * _getdtype(entry["dtype"]).itemsize
            ), entry
            end = after
        assert end == len(self._data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def keys(self):
        return list(self._entries)

    def metadata(self):
        return self._metadata

    def get_slice(self, name):
        return _Slice(self._entries[name], self._data)


class _Slice:
    def __init__(self, entry, data):
        self._entry, self._data = entry, data

    def get_shape(self):
        return self._entry["shape"]

    def get_dtype(self):
        return self._entry["dtype"]

    def __getitem__(self, slices):
        begin, end = self._entry["data_offsets"]
        dtype = _getdtype(self._entry["dtype"])
        whole = torch.frombuffer(self._data[begin:end], dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
        return whole.reshape(self._entry["shape"])[slices]
