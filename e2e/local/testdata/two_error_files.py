"""As two_errors.py, but nothing is printed: errors go to TORCHELASTIC_ERROR_FILE in the form of torch's
@record."""

import json
import os
import signal
import sys
import time
import traceback

RAISED = os.path.join(sys.argv[1], "raised")


def train():
    if os.environ["RANK"] == "1":
        raise ValueError("the cause")
    while not os.path.exists(RAISED):
        time.sleep(0.001)
    time.sleep(0.1)
    raise RuntimeError("a consequence")


try:
    train()
except Exception as e:
    info = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
        json.dump({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": info}}, f)
    if os.environ["RANK"] == "1":
        open(RAISED, "x").close()
        signal.pause()
    sys.exit(1)
