#!/usr/bin/env bash
# Prints the Python that tests use PyTorch with: PYTHON_TORCH, or python3 if that has PyTorch 2.6 or newer, or the newest
# that make torch has installed into .tools. Prints nothing if there is none.
set -euo pipefail
has='import sys; from importlib.metadata import version
if tuple(map(int, version("torch").split(".")[:2])) >= (2, 6): print(sys.executable)'
found=${PYTHON_TORCH:-$(python3 -c "$has" 2>/dev/null || true)}
[ -n "$found" ] || found=$(find -L "$(dirname "$(dirname "$(realpath "$0")")")/.tools" -mindepth 3 -maxdepth 3 -path '*/torch-*/bin/python' 2>/dev/null | sort -V | tail -n 1)
echo "$found"
