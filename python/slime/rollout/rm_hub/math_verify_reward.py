"""--rm-type math_verify: 1 where the package math-verify takes the last box of a response for the label, else 0."""

import re
import sys
import threading

try:
    from math_verify import parse, verify
except ImportError as error:
    raise ImportError(
        f"--rm-type math_verify: {sys.executable} cannot import math_verify ({error}); install it with\n"
        f"  {sys.executable} -m pip install 'math-verify[antlr4_13_2]'\n"
        "or name an interpreter that has it with --plugin-python"
    ) from error


def limit():
    """Seconds for the package's own alarm, which works on the main thread alone; the host has a deadline of its own."""
    return 5 if threading.current_thread() is threading.main_thread() else None


def right_answers(label):
    """A label may be a list of right answers, also as text (JSON, Python, numpy), and a solution in the form of GSM8K."""
    if isinstance(label, str) and re.fullmatch(r"\s*\[\s*['\"].*['\"]\s*\]\s*", label, re.DOTALL):
        quoted = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", label, re.DOTALL)
        label = [(one or other).replace("\\\\", "\\") for one, other in quoted]
    answers = [str(each) for each in (label if isinstance(label, (list, tuple)) else [label])]
    answers = [answer.rsplit("####", 1)[-1].strip() for answer in answers if answer.strip()]
    if label is None or not answers:
        raise ValueError("math_verify: the label is missing or empty")
    return answers


def equals(gold, given):
    gold = gold if "\\boxed" in gold else "\\boxed{%s}" % gold
    parsed = parse(gold, parsing_timeout=limit())
    return bool(parsed) and bool(verify(parsed, given, timeout_seconds=limit()))


async def reward_func(args, sample, **kwargs):
    """As frameworks call it: the label in a box first, then the response."""
    if isinstance(sample, list):
        return [await reward_func(args, each, **kwargs) for each in sample]
    given = parse(sample.response, parsing_timeout=limit())
    return 1 if any(equals(answer, given) for answer in right_answers(sample.label)) else 0
