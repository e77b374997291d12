"""A protocol that clients speak: its requests as messages of the chat template, its answers, its errors."""

import dataclasses
import json
from typing import Any

__all__ = ["Protocol", "Reply", "call_arguments", "flatten_content", "key_of", "tool_call_dict", "tool_dict"]


@dataclasses.dataclass
class Reply:
    """The answer as the trajectory knows it, and in the client's protocol; `call_ids`: those of its calls, in their order."""

    message: dict
    wire: Any
    call_ids: tuple = ()


class Protocol:
    """Without a state: one serves all sessions. `adapter` is who asks, for its tokenizer."""

    max_token_keys = ()
    stop_keys = ()
    acted_on = ()  # further fields of a request

    def goes_on(self, body):
        """Whether a last message of the assistant is the beginning of the answer."""
        return False

    def session_names(self, request, body):
        """What may name the session, the most explicit first; None among them is passed over."""
        return (key_of(request),)

    def error(self, problem):
        """An HttpProblem as a JSON value."""
        raise NotImplementedError

    def translate(self, body):
        """(messages of the chat template, tools or None); may change the body."""
        raise NotImplementedError

    def build_reply(self, parsed, raw_finish, body):
        """A Reply."""
        raise NotImplementedError

    def render(self, adapter, body, reply, turn, stream):
        """The Response."""
        raise NotImplementedError


_NO_TEXT = {
    "input_audio": "audio",
    "audio": "audio",
    "file": "file",
    "input_file": "file",
    "document": "document",
    "video": "video",
    "video_url": "video",
}


def flatten_content(content):
    """A message's content as one string: texts by line, what is no text as a remark."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content if isinstance(content, str) else str(content)
    return "\n".join(text for text in map(_part_text, content) if text)


def _part_text(part):
    if not isinstance(part, dict):
        return part if isinstance(part, str) else str(part)
    kind = part.get("type")
    if kind in ("image", "image_url", "input_image"):
        return "[image omitted]"
    if kind not in ("text", "input_text", "output_text") and "content" in part:
        return flatten_content(part["content"])
    source = part.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        return str(source.get("data") or "")
    if kind in _NO_TEXT:
        return f"[{_NO_TEXT[kind]} omitted]"
    return str(part.get("text") or "")


def tool_call_dict(name, arguments, id=None):
    """A call as the chat template takes it: arguments by name."""
    if not isinstance(name, str):
        raise TypeError("the name of a tool is a text")
    call = {"type": "function", "function": {"name": name, "arguments": arguments or {}}}
    return call if id is None else {"id": str(id), **call}


def tool_dict(name, description, parameters):
    if not isinstance(name, str):
        raise TypeError("the name of a tool is a text")
    parameters = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def call_arguments(value):
    """A call's arguments by name, as the chat template takes them."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value) if value.strip() else {}
        except ValueError:
            parsed = None
        return parsed if isinstance(parsed, dict) else {"_raw_arguments": value}
    return value if isinstance(value, dict) else {} if value is None else {"_raw_arguments": str(value)}


def key_of(request):
    """The key that the client was given."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if kind.lower() == "bearer" else None
