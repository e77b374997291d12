"""Scores by the program's own rules: of the run that a plug-in host belongs to, else of a child `slime score`.

A child stays: it reads a line and answers a line. There is one for each rule, and one call at a time in it.
"""

import asyncio
import atexit
import json
import subprocess
import threading

from slime import channel
from slime.program import find_program, program_environment

__all__ = ["score", "score_and_wait"]


class _Child:
    def __init__(self, rule):
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [find_program(), "score", "--rm-type", rule],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=program_environment(),
        )
        atexit.register(self._process.kill)

    def call(self, record):
        with self._lock:
            process = self._process
            try:
                process.stdin.write(json.dumps(record).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except (BrokenPipeError, ValueError):
                line = b""
            if not line:
                raise RuntimeError(f"slime score ended: {process.stderr.read().decode('utf-8', 'replace').strip()}")
            return json.loads(line)

    def is_alive(self):
        return self._process.poll() is None


_children = {}
_starting = threading.Lock()


def _call_child(rule, record):
    with _starting:
        child = _children.get(rule)
        if child is None or not child.is_alive():
            child = _children[rule] = _Child(rule)
    return child.call(record)


def _reward(answer):
    if answer.get("score") is None and "reward" not in answer:
        raise ValueError(f"no score: {answer.get('reason', 'the rule gave none')}")
    return answer.get("reward", answer["score"])


def _record(response, label, metadata):
    # A row's own rm_type was heeded by who calls: the rule here is the one that counts.
    rest = {name: value for name, value in (metadata or {}).items() if name != "rm_type"}
    return {"response": response, "label": label, "metadata": rest}


def score_and_wait(rule, response, label, metadata=None):
    """The reward, a number or a record. Throws ValueError when the rule cannot decide."""
    record = _record(response, label, metadata)
    if channel.program is not None:
        return _reward(channel.program.ask_and_wait("score", {"rule": rule, **record}))
    return _reward(_call_child(rule, record))


async def score(rule, response, label, metadata=None):
    """The same, for coroutines."""
    record = _record(response, label, metadata)
    if channel.program is not None:
        return _reward(await channel.program.ask("score", {"rule": rule, **record}))
    loop = asyncio.get_running_loop()
    return _reward(await loop.run_in_executor(None, _call_child, rule, record))
