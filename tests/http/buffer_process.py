"""Starts `slime buffer` on a free port of loopback for the tests in this folder."""

import re
import signal
import subprocess
import sys

from server_process import PROGRAM

from slime.rollout.buffer_client import BufferClient


class Buffer:
    """A running rollout buffer over `folder`, which outlives it."""

    def __init__(self, folder, *flags, port=0):
        self.process = subprocess.Popen(
            [str(PROGRAM), "buffer", "--folder", str(folder), "--port", str(port), *flags],
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )
        self.ready_line = self.process.stdout.readline()
        match = re.search(r"http://\S+", self.ready_line)
        if not match:
            raise RuntimeError(f"slime buffer did not start; it said {self.ready_line!r}")
        self.url = match[0]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.client = BufferClient(self.url, key="")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        exit_code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return exit_code


def item(instance, uid, **fields):
    return {"uid": uid, "instance_id": instance, "messages": [], "reward": 1.0, "extra_info": {}, **fields}
