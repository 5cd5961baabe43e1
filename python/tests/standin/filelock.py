"""As much of filelock as scripts need."""

import fcntl


class FileLock:
    """One process at a time."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.file = open(self.path, "a", encoding="utf-8")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_):
        self.file.close()
