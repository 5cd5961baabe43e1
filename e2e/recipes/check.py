"""Checks the files of deploy/queues for SkyPilot, dstack and Ray by what these read them with: python check.py.

SkyPilot and dstack read theirs; nothing is launched, which needs a cloud. Ray's runs on a cluster of two local nodes.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUEUES = os.path.join(ROOT, "deploy", "queues")

os.environ.update(
    SKYPILOT_DISABLE_USAGE_COLLECTION="1",
    RAY_USAGE_STATS_ENABLED="0",
    PATH=f"{ROOT}/bin:{os.environ['PATH']}",  # of the nodes too
)


#: A rank of two that writes down how many there are, once both have begun.
TRAIN = """
import os, time
with open(os.path.join({folder!r}, os.environ["RANK"]), "w") as f:
    f.write(os.environ["WORLD_SIZE"])
while not all(os.path.exists(os.path.join({folder!r}, rank)) for rank in "01"):
    time.sleep(0.05)  # another process gives no other sign
"""


def variables(commands: str) -> set:
    """The variables of a shell that commands use."""
    return set(re.findall(r"\$([A-Z_]+)", commands))


class Recipes(unittest.TestCase):
    def test_skypilot(self):
        import sky
        import yaml
        from sky.skylet import constants

        with open(os.path.join(QUEUES, "skypilot.yaml"), encoding="utf-8") as f:
            task = sky.Task.from_yaml_config(yaml.safe_load(f), secrets_overrides=[("REGROUP_SECRET", "s")])
        self.assertEqual((task.name, task.num_nodes, list(task.secrets)), ("mnist", 4, ["REGROUP_SECRET"]))
        given = {value for value in vars(constants).values() if isinstance(value, str)}
        self.assertLessEqual(variables(task.run), given)
        subprocess.run(["bash", "-n", "-c", task.run], check=True)

    def test_dstack(self):
        import yaml
        from dstack._internal.core.models.configurations import parse_apply_configuration

        with open(os.path.join(QUEUES, "dstack.yaml"), encoding="utf-8") as f:
            task = parse_apply_configuration(yaml.safe_load(f))
        task = getattr(task, "__root__", task)
        self.assertEqual((task.type, task.name, task.nodes), ("task", "mnist", 4))
        self.assertEqual(list(task.env), ["REGROUP_SECRET"])
        for command in task.commands:
            subprocess.run(["bash", "-n", "-c", command], check=True)

    def test_ray(self):
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            cluster.add_node(num_cpus=1)
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as f:
                    f.write(TRAIN.format(folder=folder))
                program = [sys.executable, os.path.join(QUEUES, "ray_nodes.py"), os.path.join(folder, "train.py")]
                subprocess.run(program, env=dict(os.environ, RAY_ADDRESS=cluster.address), check=True, timeout=300)
                worlds = {}
                for rank in ("0", "1"):
                    with open(os.path.join(folder, rank), encoding="utf-8") as f:
                        worlds[rank] = f.read()
                self.assertEqual(worlds, {"0": "2", "1": "2"})
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    unittest.main(verbosity=2)
