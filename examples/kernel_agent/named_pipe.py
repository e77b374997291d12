"""A named pipe in a folder that a sandbox shows read-only: what is shown so can still be opened for writing, and a pipe has nothing to keep.

What comes through it was sent by hostile code: reading is bounded in bytes and in time.
"""

import os
import select
import time

__all__ = ["NamedPipe"]

PART = 1 << 20


class NamedPipe:
    def __init__(self, path):
        self.path = path
        os.mkfifo(path)
        path.chmod(0o666)  # a sandbox is another user's where this one is root
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def close(self):
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)

    def read(self, count, deadline, is_over):
        """So many bytes; fewer where the deadline passed, or is_over() said that nobody writes any more."""
        data = bytearray()
        while len(data) < count:
            was_over = is_over()
            if select.select([self._descriptor], [], [], 0 if was_over else 0.02)[0]:
                data += os.read(self._descriptor, min(count - len(data), PART))
            elif was_over or time.perf_counter() > deadline:
                break
        return bytes(data)

    def write(self, data, deadline, is_over):
        """Whether all of it was taken."""
        rest = memoryview(data)
        while rest:
            if select.select([], [self._descriptor], [], 0.02)[1]:
                rest = rest[os.write(self._descriptor, rest[: 1 << 16]) :]
            elif is_over() or time.perf_counter() > deadline:
                return False
        return True
