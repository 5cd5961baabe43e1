"""The platform that the binary and the C library of a wheel run on.

The tag is read from the files themselves: the processor, and the newest version of glibc that the
library asks for.
"""

import os
import re
import struct

#: The tag claims no older glibc, whatever the library asks for: it is the oldest that pip knows on
#: ARM, and the one that `make wheels` compiles for.
OLDEST = (2, 17)

#: Processors by their number in the header of an ELF file.
MACHINES = {62: "x86_64", 183: "aarch64"}

#: The parts of glibc that a manylinux wheel may need; anything else would have to be in the wheel.
ALLOWED = re.compile(r"(lib(c|pthread|dl|rt|m)\.so\.\d+|ld-linux[\w-]*\.so\.\d+)$")

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


class Elf:
    """What a 64-bit little-endian ELF file needs at run time."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self._content = f.read()
        if self._content[:6] != b"\x7fELF\x02\x01":
            raise RuntimeError(f"{path} is not a 64-bit little-endian ELF file")
        (number,) = self._read("<H", 18)
        if number not in MACHINES:
            known = " and ".join(MACHINES.values())
            raise RuntimeError(f"{path} is for machine {number} of ELF; wheels are for {known}")
        self.machine = MACHINES[number]
        self._segments = self._program_headers()
        self.interpreted = any(kind == PT_INTERP for kind, *_ in self._segments)
        self.needed, self.versions = self._dynamic()

    def _read(self, form, at):
        return struct.unpack_from(form, self._content, at)

    def _text(self, at):
        return self._content[at : self._content.index(b"\0", at)].decode()

    def _program_headers(self):
        """Kind, offset in the file, address and size in the file of each segment."""
        (start,) = self._read("<Q", 32)
        size, count = self._read("<HH", 54)
        headers = [self._read("<IIQQQQ", start + i * size) for i in range(count)]
        return [(kind, offset, address, length) for kind, _, offset, address, _, length in headers]

    def _offset(self, address):
        """Where in the file the memory at an address comes from."""
        for kind, offset, start, length in self._segments:
            if kind == PT_LOAD and start <= address < start + length:
                return offset + address - start
        raise RuntimeError(f"no segment of the file holds address {address:#x}")

    def _dynamic(self):
        """The names of the libraries that it needs, and the versions of symbols."""
        entries = []
        for kind, offset, _, length in self._segments:
            if kind == PT_DYNAMIC:
                entries += [self._read("<QQ", offset + i) for i in range(0, length, 16)]
        values = dict(entries)
        if DT_STRTAB not in values:
            return [], []
        strings = self._offset(values[DT_STRTAB])
        needed = [self._text(strings + value) for tag, value in entries if tag == DT_NEEDED]
        versions = []
        at = self._offset(values[DT_VERNEED]) if DT_VERNEED in values else 0
        for _ in range(values.get(DT_VERNEEDNUM, 0)):  # one for each library
            _, count, _, first, following = self._read("<HHIII", at)
            symbol = at + first
            for _ in range(count):
                _, _, _, name, next_symbol = self._read("<IHHII", symbol)
                versions.append(self._text(strings + name))
                symbol += next_symbol
            at += following
        return needed, versions


def glibc(version):
    """The glibc in which a version of symbols appeared, GLIBC_2.17 or GLIBC_2.2.5."""
    found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
    if not found:
        raise RuntimeError(f"the library asks for {version}, of which the glibc is not known")
    return int(found[1]), int(found[2])


def platform(binary, library):
    """The platform tag of a wheel with these two files. Raises a RuntimeError if they cannot be in
    one, or would not run everywhere that the tag says."""
    for path in (binary, library):
        if not os.path.exists(path):
            raise RuntimeError(f"{path} is not there: make build libregroup")
    program, shared = Elf(binary), Elf(library)
    if program.interpreted or program.needed:
        raise RuntimeError(f"{binary} is not static: build it with CGO_ENABLED=0")
    if program.machine != shared.machine:
        raise RuntimeError(f"{binary} is for {program.machine}, {library} for {shared.machine}")
    foreign = [name for name in shared.needed if not ALLOWED.match(name)]
    if foreign:
        raise RuntimeError(f"{library} needs {', '.join(foreign)}, which a manylinux wheel may not")
    major, minor = max([OLDEST, *(glibc(version) for version in shared.versions)])
    return f"manylinux_{major}_{minor}_{shared.machine}"
