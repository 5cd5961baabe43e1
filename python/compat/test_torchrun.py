"""`regroup torchrun` beside the torchrun of the installed torch: its flags, and what its workers
get."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

REGROUP = os.environ["REGROUP_BINARY"]
STOCK = [sys.executable, "-m", "torch.distributed.run"]

#: Variables of a worker whose values differ, and why.
DIFFERENT = {
    "MASTER_ADDR": "an address: stock says localhost, the agent its own",
    "MASTER_PORT": "a free port in both",
    "TORCHELASTIC_RUN_ID": "an id in both",
    "TORCHELASTIC_ERROR_FILE": "a path in both",
    "_": "the program that the shell of this test has started",
}

#: Values of the flags whose values are checked. All others take any text.
VALUES = {
    "--nnodes": "1",
    "--nproc-per-node": "1",
    "--rdzv-endpoint": "127.0.0.1:29400",
    "--rdzv-conf": "timeout=60",
    "--max-restarts": "1",
    "--monitor-interval": "0.5",
    "--start-method": "spawn",
    "--redirects": "0",
    "--tee": "0",
    "--local-ranks-filter": "0",
    "--node-rank": "0",
    "--master-addr": "127.0.0.1",
    "--master-port": "29500",
    "--local-addr": "127.0.0.1",
    "--numa-binding": "node",
    "--signals-to-handle": "SIGTERM",
    "--shutdown-timeout": "5",
}

SCRIPT = """
import json, os
with open(os.path.join({folder!r}, os.environ["RANK"]), "w") as f:
    json.dump(dict(os.environ), f)
"""


def output(*command, **variables):
    """Runs a command in an environment without variables of launchers."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TORCHELASTIC_", "OMP_"))}
    environ.update(variables)
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def flags_of_stock():
    """The flags of the installed torchrun, with whether each takes a value, from its help."""
    code, text, errors = output(*STOCK, "--help", COLUMNS="200")
    assert code == 0, errors
    found = {}
    for line in text[text.index("\noptions:") :].splitlines():
        if not re.match(r"  -", line):
            continue
        names = re.split(r"\s{2,}", line.strip())[0]  # before the text about the flag
        for part in names.split(", "):
            match = re.match(r"(--?[a-z][a-z_-]*)( \S+)?$", part)
            if match:
                found[match[1]] = match[2] is not None
    return found


class Flags(unittest.TestCase):
    def test_every_flag_is_in_the_table(self):
        stock = flags_of_stock()
        self.assertGreater(len(stock), 30, stock)
        code, table, errors = output(REGROUP, "docs", "generate", "torchrun")
        self.assertEqual(code, 0, errors)
        known = set()
        for row in table.splitlines():
            known.update(re.findall(r"(--?[a-z][a-z-]*)", row.split(" | ")[0]))
        missing = {f for f in stock if f.replace("_", "-") not in known} - {"-h", "--help"}
        self.assertEqual(missing, set(), "not in the table of docs/torchrun.md")

    def test_every_flag_is_accepted(self):
        """Each of them in a run, all but those that stand against each other."""
        for flag, valued in flags_of_stock().items():
            canonical = {"-r": "--redirects", "-t": "--tee", "-m": "--module", "-h": "--help"}.get(flag, flag.replace("_", "-"))
            with self.subTest(flag), tempfile.TemporaryDirectory() as folder:
                line = [REGROUP, "torchrun", "--state-dir", folder]
                if canonical == "--print-completion":
                    code, _, errors = output(*line, flag, "bash", "--no-python", "true")
                    self.assertEqual(code, 2, errors)
                    self.assertIn("regroup completion", errors)
                    continue
                if canonical == "--help":
                    self.assertEqual(output(*line, flag)[0], 0)
                    continue
                line.append(flag)
                if valued:
                    line.append(VALUES.get(canonical, folder if canonical == "--log-dir" else "x"))
                if canonical == "--module":
                    line += ["platform"]
                elif canonical == "--run-path":
                    script = os.path.join(folder, "script.py")
                    with open(script, "w") as f:
                        f.write("pass\n")
                    line += [script]
                else:
                    line += ["true"] if canonical == "--no-python" else ["--no-python", "true"]
                code, text, errors = output(*line, PYTHON_EXEC=sys.executable)
                self.assertEqual(code, 0, text + errors)


class Environment(unittest.TestCase):
    def workers(self, launcher):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "out"))
            script = os.path.join(folder, "script.py")
            with open(script, "w") as f:
                f.write(SCRIPT.format(folder=os.path.join(folder, "out")))
            more = ["--state-dir", os.path.join(folder, "state")] if launcher[0] == REGROUP else []
            code, text, errors = output(*launcher, *more, "--standalone", "--nproc-per-node", "2", script, PYTHON_EXEC=sys.executable)
            self.assertEqual(code, 0, text + errors)
            ranks = []
            for rank in range(2):
                with open(os.path.join(folder, "out", str(rank))) as f:
                    ranks.append(json.load(f))
            return ranks

    def test_every_variable_is_there(self):
        """What torchrun gives to a worker beyond its own environment, `regroup torchrun` gives too,
        with the same value."""
        shell = dict(os.environ)
        stock, ours = self.workers(STOCK), self.workers([REGROUP, "torchrun"])
        for rank in range(2):
            given = {k: v for k, v in stock[rank].items() if shell.get(k) != v}
            self.assertIn("RANK", given)
            self.assertIn("OMP_NUM_THREADS", given)
            for name, value in given.items():
                with self.subTest(name, rank=rank):
                    self.assertIn(name, ours[rank])
                    if name not in DIFFERENT:
                        self.assertEqual(ours[rank][name], value)


if __name__ == "__main__":
    unittest.main()
