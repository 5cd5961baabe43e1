"""For hatchling: the wheel has a C library for one platform in it, and runs on any Python 3."""

import os
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):
    """Names the platform, and refuses to build a wheel without the library."""

    def initialize(self, version, build_data):
        """Called by hatchling before it builds."""
        library = os.path.join(self.root, "regroup", "libregroup.so")
        if version != "editable" and not os.path.exists(library):
            raise RuntimeError(f"{library} is not there: make libregroup")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
