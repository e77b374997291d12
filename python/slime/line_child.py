"""A child of the program's that stays: it reads a line of JSON and answers a line."""

import atexit
import json
import subprocess
import threading

from slime.program import find_program, program_environment

__all__ = ["LineChild"]


class LineChild:
    """`slime WORDS...`, one call at a time."""

    def __init__(self, *words):
        self._lock = threading.Lock()
        self._name = words[0]
        self._process = subprocess.Popen(
            [find_program(), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=program_environment(),
        )
        atexit.register(self._process.kill)

    def call(self, record):
        """The answer. RuntimeError with what the child said when it has ended."""
        with self._lock:
            process = self._process
            try:
                process.stdin.write(json.dumps(record).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except (BrokenPipeError, ValueError):
                line = b""
            if not line:
                said = process.stderr.read().decode("utf-8", "replace").strip()
                raise RuntimeError(f"slime {self._name} ended: {said}")
            return json.loads(line)

    def is_alive(self):
        return self._process.poll() is None
