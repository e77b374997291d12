"""A conversation about one kernel: write, compile, test, measure, hear what came of it, write a better one.

It knows neither training nor an engine: `ask` is whoever answers, a session of a run (kernel_agent.py) or a server (solve.py).
"""

from examples.kernel_agent.prompts import code_of, heard, without_code
from examples.kernel_agent.scores import turn_score


class ContextFull(Exception):
    """The conversation no longer fits."""


async def _ask(ask, messages, first):
    """(messages that were asked, answer, whether it is whole). A full context leaves out all but the `first` messages, the last
    answer and what was said about it; ContextFull where that does not help."""
    try:
        return (messages, *await ask(messages))
    except ContextFull:
        shorter = [*messages[:first], *messages[first:][-2:]]
        if len(shorter) == len(messages):
            raise
    return (shorter, *await ask(shorter))


async def write_kernel(ask, messages, grade, backend, max_turns, is_brief=False):
    """The turns, at most `max_turns`: what the grader found of each, with its "code" and "score".

    `messages` end with the question. `ask(messages)` gives (text, whether it is whole) or raises ContextFull; `grade(code)`
    gives what the grader found. An answer that is cut off is the last turn and worth nothing. One without code keeps the kernel before it, if that is correct.
    """
    first, messages = len(messages), list(messages)
    turns = []
    while len(turns) < max_turns:
        try:
            messages, text, is_whole = await _ask(ask, messages, first)
        except ContextFull:
            break
        code = code_of(text, backend) if is_whole else None
        if code is None and is_whole and any(turn["correct"] for turn in turns):
            break
        if code is None:
            found = without_code(backend, None if is_whole else "cut off")
        else:
            found = await grade(code)
        turns.append({"code": code, **found, "score": turn_score(found)})
        if not is_whole:
            break
        messages = [
            *messages,
            {"role": "assistant", "content": text},
            {"role": "user", "content": heard(found, is_brief)},
        ]
    return turns
