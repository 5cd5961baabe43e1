"""For hatchling: what a wheel and a source distribution have besides the package.

A wheel has the binary, the C library and the worker of `regroup demo`, from the folder
WHEEL_BINARIES, or ../bin of a checkout. A source distribution has the Go sources of which they are
made, in the folder go, and a wheel that is made of it builds them first: that needs Go and a C
compiler.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: The Go packages that are built, and what of them.
PACKAGES = {"regroup": "./cmd/regroup", "mnist": "./examples/mnist", "libregroup.so": "./collective/cabi"}

#: Files of a Go package that its build reads, by their names in the output of go list.
READ = ["GoFiles", "CgoFiles", "CFiles", "HFiles", "SFiles", "EmbedFiles"]

#: Files of the module that the build reads, and no package names.
MORE = ["go.mod", "go.sum", "collective/cabi/exports.map"]

STAMP = "github.com/regroup-io/regroup/internal/version"


class Known(MetadataHookInterface):
    """Names classifiers that are newer than the list of Debian's hatchling."""

    def update(self, metadata):
        """Called by hatchling; pyproject.toml has everything."""

    def get_known_classifiers(self):
        """Called by hatchling before it checks the classifiers."""
        return ["Programming Language :: Go", "Programming Language :: Python :: 3.13"]


class Hook(BuildHookInterface):
    """Adds files, and to a wheel the tag of the platform that they run on."""

    def initialize(self, version, build_data):
        """Called by hatchling before it builds."""
        if version == "editable":  # a checkout has its library in place
            return
        self._temporary = tempfile.TemporaryDirectory(prefix="regroup-")
        if self.target_name == "sdist":
            build_data.setdefault("force_include", {}).update(self._sources())
        else:
            self._wheel(build_data)

    def finalize(self, version, build_data, artifact_path):
        """Called by hatchling after it has built."""
        if hasattr(self, "_temporary"):
            self._temporary.cleanup()

    def _top(self, name):
        """A file of the top of a checkout, or of an unpacked source distribution."""
        here = os.path.join(self.root, name)
        return here if os.path.exists(here) else os.path.join(self.root, "..", name)

    def _sources(self):
        """The files that a source distribution has besides those of this folder, by their path."""
        top = os.path.join(self.root, "..")
        names = set(MORE)
        for arch in ("amd64", "arm64"):
            for cgo in ("0", "1"):
                names.update(go_sources(top, arch, cgo))
        stamp = os.path.join(self._temporary.name, "stamp")
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(os.environ.get("REGROUP_STAMP", "") + "\n")
        sources = {os.path.join(top, name): "go/" + name for name in sorted(names)}
        return {**sources, stamp: "go/stamp", os.path.join(top, "LICENSE"): "LICENSE"}

    def _wheel(self, build_data):
        folder = os.environ.get("WHEEL_BINARIES")
        if not folder and os.path.exists(os.path.join(self.root, "go", "go.mod")):
            folder = self._temporary.name
            build(os.path.join(self.root, "go"), folder)
        folder = folder or os.path.join(self.root, "..", "bin")
        binary, worker, library = (os.path.join(folder, name) for name in PACKAGES)
        build_data["pure_python"] = False
        platform = wheel_tag(self.root).platform
        build_data["tag"] = f"py3-none-{platform(binary, library)}"
        platform(worker, library)  # that it runs there too
        # pip puts what is in scripts/ on PATH as it is; Debian's hatchling has no option for it.
        name = f"{self.metadata.core.raw_name.replace('-', '_')}-{self.metadata.version}"
        build_data["force_include"] = {
            binary: f"{name}.data/scripts/regroup",
            worker: f"{name}.data/data/libexec/regroup/mnist",
            library: "regroup/libregroup.so",
        }
        if not os.path.exists(os.path.join(self.root, "LICENSE")):  # else hatchling finds it itself
            build_data["force_include"][self._top("LICENSE")] = f"{name}.dist-info/licenses/LICENSE"


def wheel_tag(root):
    """The module beside this one, which hatchling does not put on the path."""
    sys.path.insert(0, root)
    try:
        import wheel_tag as module
    finally:
        sys.path.remove(root)
    return module


def go_sources(top, arch, cgo):
    """The files of this module of which Go makes the packages, by their paths from its top."""
    env = dict(os.environ, GOOS="linux", GOARCH=arch, CGO_ENABLED=cgo, GOFLAGS="")
    fields = ",".join(["Dir", "Module", *READ])
    command = ["go", "list", "-e", "-deps", "-json=" + fields, *PACKAGES.values()]
    output = subprocess.run(command, cwd=top, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    decoder, at, names = json.JSONDecoder(), 0, set()
    while at < len(output):
        package, at = decoder.raw_decode(output, at)
        at += 1  # the end of the line
        if package.get("Module", {}).get("Main"):
            files = [file for kind in READ for file in package.get(kind) or []]
            names.update(os.path.relpath(os.path.join(package["Dir"], file), os.path.realpath(top)) for file in files)
    return names


def build(source, folder):
    """Builds the programs and the C library of a source distribution into a folder."""
    if not sys.platform.startswith("linux"):
        raise RuntimeError(f"regroup-elastic runs on Linux; this is {sys.platform}")
    with open(os.path.join(source, "go.mod"), encoding="utf-8") as f:
        wanted = next(line.split()[1] for line in f if line.startswith("go "))
    compiler = os.environ.get("CC", "gcc").split()[0]
    needed = {"go": f"Go {wanted} or newer (https://go.dev/doc/install)", compiler: f"a C compiler ({compiler})"}
    missing = [what for program, what in needed.items() if not shutil.which(program)]
    if missing:
        raise RuntimeError(
            f"to build regroup-elastic from source, {' and '.join(missing)} must be on PATH. "
            "Wheels for Linux on x86_64 and aarch64 need neither: pip install --only-binary :all: regroup-elastic"
        )
    with open(os.path.join(source, "stamp"), encoding="utf-8") as f:
        commit, state = (f.read().split() + ["", ""])[:2]
    flags = f"-s -w -X {STAMP}.commit={commit} -X {STAMP}.state={state}"
    exports = os.path.abspath(os.path.join(source, "collective", "cabi", "exports.map"))
    linker = {
        "regroup": flags,
        "mnist": "-s -w",
        "libregroup.so": f"{flags} -buildid= -extldflags '-Wl,--version-script={exports}'",
    }
    for name, package in PACKAGES.items():
        shared = name.endswith(".so")
        command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=" + linker[name]]
        command += ["-buildmode=c-shared"] * shared + ["-o", os.path.join(folder, name), package]
        env = dict(os.environ, CGO_ENABLED="1" if shared else "0")
        ran = subprocess.run(command, cwd=source, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} in {source} fails with exit code {ran.returncode}:\n{ran.stdout}")
