"""Scores by the program's own rules: of the run that a plug-in host belongs to, else of a child `slime score`.

A child stays: it reads a line and answers a line. There is one for each rule, and one call at a time in it.
"""

import asyncio
import threading

from slime import channel
from slime.line_child import LineChild

__all__ = ["score", "score_and_wait"]

_children = {}
_starting = threading.Lock()


def _call_child(rule, record):
    with _starting:
        child = _children.get(rule)
        if child is None or not child.is_alive():
            child = _children[rule] = LineChild("score", "--rm-type", rule)
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
