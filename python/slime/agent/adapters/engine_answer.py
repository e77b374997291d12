"""An engine's answer to a turn: the text before its end, what a stop string left, and what a refusal means to the client."""

import json
import re

from slime.agent.http_app import HttpProblem
from slime.agent.trajectory import Nuclei
from slime.utils.int_arrays import find_int32
from slime.utils.number_table import flat_numbers
from slime.utils.types import TOP_P_IDS, TOP_P_OFFSETS

__all__ = ["end_and_text", "nuclei_of", "problem_of", "stop_text"]


def end_and_text(ids, finish, decode, end_marks, eos_token):
    """(text of the control token that ended the turn or "", the text before it). The engine says which token it was; one that
    does not is believed when the last one is a control token. A limit may fall on the end itself."""
    kind, matched = finish.get("type", "stop"), finish.get("matched")
    if not ids or isinstance(matched, str):
        return "", decode(ids)
    last = decode(ids[-1:])
    is_mark = last in end_marks
    if kind == "stop":
        is_end = matched == ids[-1] or matched is None and is_mark
    else:
        is_end = kind == "length" and last == eos_token
    if not is_end:
        return "", decode(ids)
    return last if is_mark else "", decode(ids[:-1])


def stop_text(text, finish):
    """What the text ends with because a stop string was sampled: the string, and what its last token has behind it."""
    matched = finish.get("matched")
    at = text.rfind(matched) if isinstance(matched, str) and matched else -1
    return text[at:] if at >= 0 else ""


def nuclei_of(meta, num_tokens):
    """The ids among which each token was drawn, where the request asked for them."""
    ids, offsets = find_int32(meta, TOP_P_IDS), find_int32(meta, TOP_P_OFFSETS)
    if ids is None or offsets is None:
        return None
    if len(offsets) != num_tokens + 1 or offsets[0] != 0 or offsets[-1] != len(ids):
        raise HttpProblem(502, f"the engine's answer has {len(offsets)} top-p offsets for {num_tokens} tokens")
    log_probs = meta.get("top_p_log_probs")
    counts = [end - begin for begin, end in zip(offsets, offsets[1:])]
    return Nuclei(list(ids), counts, [] if log_probs is None else list(flat_numbers(log_probs, "f")))


_TOO_LONG = re.compile(r"context length|context holds|size of the KV cache|maximum context", re.IGNORECASE)
_LIMIT = re.compile(r"can have (\d+)|context holds (\d+)|context length of (\d+)|length \((\d+)")


def problem_of(error):
    """What the client is told of an answer of the engine that is none."""
    try:
        told = json.loads(error.text)
        told = told.get("error", told)
        message = told.get("message") if isinstance(told, dict) else str(told)
    except (ValueError, AttributeError):
        message = None
    message = message or error.text or str(error)
    if 400 <= error.status < 500 and _TOO_LONG.search(message):
        limit = _LIMIT.search(message)
        number = next((each for each in limit.groups() if each), None) if limit else None
        begin = f"This model's maximum context length is {number} tokens. " if number else ""
        return HttpProblem(400, begin + message, code="context_length_exceeded", param="messages")
    if error.status in (408, 429, 503):
        return HttpProblem(error.status, message)
    return HttpProblem(400 if 400 <= error.status < 500 else 502, message)
