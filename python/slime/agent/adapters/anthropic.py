"""Messages: POST /v1/messages, plain and streamed, and /v1/messages/count_tokens. The session is the key."""

import functools
import hashlib
import json
import logging
import secrets

from slime.agent.adapters.common import BaseAdapter
from slime.agent.adapters.protocol import Protocol, Reply, flatten_content, key_of, tool_call_dict, tool_dict
from slime.agent.http_app import HttpProblem, Response

__all__ = ["AnthropicAdapter"]

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Messages(Protocol):
    max_token_keys = ("max_tokens",)
    stop_keys = ("stop_sequences",)

    def session_names(self, request, body):
        return key_of(request), request.headers.get("x-api-key", "").strip()

    def goes_on(self, body):
        return True

    def error(self, problem):
        message = str(problem)
        if problem.code == "context_length_exceeded":
            message = "prompt is too long: " + message
        return {"type": "error", "error": {"type": _ERRORS.get(problem.status, "api_error"), "message": message}}

    def translate(self, body):
        _move_late_system_messages(body)
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise HttpProblem(400, "messages is a list", param="messages")
        tools = [
            tool_dict(tool["name"], tool.get("description", ""), tool.get("input_schema") or tool.get("parameters"))
            for tool in body.get("tools") or []
            if isinstance(tool, dict) and "name" in tool
        ]
        return _translate_messages(messages, body.get("system")), tools or None

    def build_reply(self, parsed, raw_finish, body):
        blocks, ids = [], []
        known = {"role": "assistant", "content": parsed.text}
        if parsed.reasoning:
            blocks.append({"type": "thinking", "thinking": parsed.reasoning, "signature": _signature(parsed.reasoning)})
            known["reasoning_content"] = parsed.reasoning
        if parsed.text or not (blocks or parsed.tool_uses):
            blocks.append({"type": "text", "text": parsed.text})
        for use in parsed.tool_uses:
            number = f"toolu_{secrets.token_hex(8)}"
            ids.append(number)
            blocks.append({"type": "tool_use", "id": number, "name": use["name"], "input": use["input"]})
        if parsed.tool_uses:
            known["tool_calls"] = [tool_call_dict(use["name"], use["input"]) for use in parsed.tool_uses]
        stop = "tool_use" if parsed.tool_uses else "max_tokens" if raw_finish == "length" else "end_turn"
        return Reply(known, (blocks, stop), tuple(ids))

    def render(self, adapter, body, reply, turn, stream):
        blocks, stop = reply.wire
        if turn.stop_text and stop == "end_turn":
            stop = "stop_sequence"
        message = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "slime-actor"),
            "content": blocks,
            "stop_reason": stop,
            "stop_sequence": turn.stop_text or None,
            "usage": {"input_tokens": len(turn.prompt_ids), "output_tokens": len(turn.output_ids)},
        }
        return Response.of_events(_events(message)) if stream else Response.of_json(message)


class AnthropicAdapter(BaseAdapter):
    logger = logging.getLogger(__name__)
    protocols = {"/v1/messages": Messages()}

    def __init__(self, **options):
        super().__init__(**options)
        (messages,) = self.protocols.values()
        self.app.add("POST", "/v1/messages/count_tokens", functools.partial(self._answer, messages, self._count_tokens))

    async def _count_tokens(self, protocol, request, body, sid):
        messages, tools, options, _ = self._read(protocol, body)
        prompt_ids, _ = self._prompt(sid, messages, tools, options, goes_on=protocol.goes_on(body))
        return Response.of_json({"input_tokens": len(prompt_ids)})


def _signature(thought):
    """Clients send a thought back as a thought only where it has a signature; no check is made of it."""
    return hashlib.sha256(thought.encode()).hexdigest()


def _events(message):
    """The stream of a message that is there already: each block begins, comes in one piece and ends."""

    def event(name, **fields):
        return name, {"type": name, **fields}

    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 0}}
    events = [event("message_start", message=begun)]
    for i, block in enumerate(message["content"]):
        kind = block["type"]
        if kind == "tool_use":
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
        else:
            start = {**block, **{name: "" for name in block if name != "type"}}
            delta = {"type": f"{kind}_delta", kind: block[kind]}
        events.append(event("content_block_start", index=i, content_block=start))
        events.append(event("content_block_delta", index=i, delta=delta))
        if kind == "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            events.append(event("content_block_delta", index=i, delta=signed))
        events.append(event("content_block_stop", index=i))
    end = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    return events + [event("message_delta", delta=end, usage=message["usage"]), event("message_stop")]


def _blocks(content):
    return content if isinstance(content, list) else [{"type": "text", "text": flatten_content(content)}]


def _translate_user(content):
    """Results of tools are messages of their own; other blocks that follow one another are one message."""
    texts = []
    for block in [*_blocks(content), None]:
        is_result = isinstance(block, dict) and block.get("type") == "tool_result"
        if (block is None or is_result) and texts:
            yield {"role": "user", "content": flatten_content(texts)}
            texts = []
        if is_result:
            text = flatten_content(block.get("content"))
            text = f"Error: {text}" if block.get("is_error") is True else text
            yield {"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": text}
        elif block is not None:
            texts.append(block)


def _translate_assistant(content):
    blocks = [block for block in _blocks(content) if isinstance(block, dict)]

    def texts(kind):
        return "".join(block.get(kind, "") for block in blocks if block.get("type") == kind)

    message = {"role": "assistant", "content": texts("text")}
    if texts("thinking"):
        message["reasoning_content"] = texts("thinking")
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    if calls:
        message["tool_calls"] = [
            tool_call_dict(call.get("name", "tool"), call.get("input"), call.get("id")) for call in calls
        ]
    return message


def _translate_messages(messages, system):
    translated = [{"role": "system", "content": flatten_content(system)}] if system else []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            translated += _translate_user(message.get("content"))
        elif role == "assistant":
            translated.append(_translate_assistant(message.get("content")))
        elif role == "system":
            translated.append({"role": "system", "content": flatten_content(message.get("content"))})
    return translated


def _move_late_system_messages(body):
    """Chat templates take a system message at the beginning only. Later ones become a reminder in the user message before
    them, or the next one."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return
    kept, waiting = [], []
    for i, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "system" and i > 0:
            text = f"<system-reminder>\n{flatten_content(message.get('content'))}\n</system-reminder>\n"
            block = {"type": "text", "text": text}
            user = next((each for each in reversed(kept) if isinstance(each, dict) and each.get("role") == "user"), None)
            if user is None:
                waiting.append(block)
            else:
                user["content"] = _blocks(user.get("content")) + [block]
        elif role == "user" and waiting:
            kept.append({**message, "content": waiting + _blocks(message.get("content"))})
            waiting = []
        else:
            kept.append(dict(message) if isinstance(message, dict) else message)
    if waiting:
        kept.append({"role": "user", "content": waiting})
    body["messages"] = kept
