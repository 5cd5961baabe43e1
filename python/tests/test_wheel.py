"""The wheel: it is built without a network, installs into an environment, and is whole."""

import os
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

from . import launch

USE = """
import regroup, regroup.torch as hvd, torch, torch.distributed as dist
from regroup import _library
hvd.init()
assert hvd.allreduce(torch.ones(3)).tolist() == [1, 1, 1]
dist.init_process_group("regroup", rank=0, world_size=1, store=dist.HashStore())
x = torch.ones(3)
dist.all_reduce(x)
dist.destroy_process_group()
print(regroup.__file__, _library.path())
"""


class Wheel(unittest.TestCase):
    def run_checked(self, *command, **options):
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            **options,
        )
        self.assertEqual(0, ran.returncode, ran.stdout)
        return ran.stdout

    def test_install_and_use(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_checked(
                *(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder),
                cwd=launch.ROOT,
            )
            (name,) = [n for n in os.listdir(folder) if n.endswith(".whl")]
            self.assertRegex(name, r"^regroup-[\d.]+-py3-none-linux_\w+\.whl$")
            wheel = os.path.join(folder, name)
            with zipfile.ZipFile(wheel) as z:
                held = set(z.namelist())
            self.assertIn("regroup/libregroup.so", held)
            self.assertIn("regroup/torch/elastic/__init__.py", held)
            self.assertEqual([], [n for n in held if n.startswith(("tests/", "bench/"))])

            home = os.path.join(folder, "env")
            venv.create(home, system_site_packages=True, with_pip=True)
            python = os.path.join(home, "bin", "python")
            env = launch.environment()
            del env["PYTHONPATH"]
            self.run_checked(
                *(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel), env=env
            )
            said = self.run_checked(python, "-W", "ignore", "-c", USE, env=env, cwd=folder)
            for path in said.split():
                self.assertTrue(path.startswith(home), f"{path} is not of the environment")


if __name__ == "__main__":
    unittest.main()
