"""The platform that a wheel claims, beside what binutils read in the same library."""

import _ssl
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import wheel_tag

from . import jobs, launch

LIBRARY = os.path.join(launch.ROOT, "..", "bin", "libregroup.so")


def symbols(path):
    """The versions of glibc's symbols that a library asks for."""
    output = subprocess.run(
        ["objdump", "-T", path], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", output)]


class Tag(unittest.TestCase):
    def test_glibc(self):
        major, minor = max(symbols(LIBRARY) + [(2, 17)])
        machine = os.uname().machine
        self.assertEqual(
            f"manylinux_{major}_{minor}_{machine}", wheel_tag.platform(jobs.binary(), LIBRARY)
        )

    def test_symbols_of_several_libraries(self):
        found = [wheel_tag.glibc(v) for v in wheel_tag.Elf(_ssl.__file__).versions if "GLIBC" in v]
        self.assertEqual(set(symbols(_ssl.__file__)), set(found))

    def test_versions(self):
        for version, glibc in (("GLIBC_2.17", (2, 17)), ("GLIBC_2.2.5", (2, 2)), ("GLIBC_2.34", (2, 34))):
            self.assertEqual(glibc, wheel_tag.glibc(version))
        for version in ("GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "GLIBCXX_3.4"):
            with self.assertRaisesRegex(RuntimeError, f"{version}.* is not known"):
                wheel_tag.glibc(version)

    def test_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(folder, "other")
            with open(LIBRARY, "rb") as f:
                content = bytearray(f.read())
            content[18] = 183 if content[18] == 62 else 62  # of the other processor
            with open(other, "wb") as f:
                f.write(content)
            text = shutil.copy(__file__, os.path.join(folder, "text"))
            for binary, library, why in (
                (os.path.join(folder, "none"), LIBRARY, "none is not there: make build libregroup"),
                (jobs.binary(), os.path.join(folder, "none"), "none is not there"),
                (text, LIBRARY, "text is not a 64-bit little-endian ELF file"),
                ("/bin/sh", LIBRARY, "/bin/sh is not static: build it with CGO_ENABLED=0"),
                (jobs.binary(), other, "regroup is for .*, .*other for "),
                (jobs.binary(), _ssl.__file__, "needs libssl[^ ]*, .*which a manylinux wheel may not"),
            ):
                with self.subTest(why=why), self.assertRaisesRegex(RuntimeError, why):
                    wheel_tag.platform(binary, library)


if __name__ == "__main__":
    unittest.main()
