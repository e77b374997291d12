"""Chat completions: POST /v1/chat/completions, plain and streamed. The session is the API key, metadata.session_id or
user, the first that there is."""

import json
import logging
import secrets
import time

from slime.agent.adapters.common import (
    BaseAdapter,
    Reply,
    flatten_content,
    manager_finish_reason,
    sid_from_bearer,
    tool_call_dict,
    tool_dict,
)
from slime.agent.http_app import HttpProblem, Response

__all__ = ["OpenAIAdapter"]


class OpenAIAdapter(BaseAdapter):
    logger = logging.getLogger(__name__)
    log_prefix = "openai_adapter"
    max_token_keys = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    stop_keys = ("stop",)

    def _register_routes(self, app):
        app.add("POST", "/v1/chat/completions", self._run_turn)

    def _session_id(self, request, body):
        metadata = body.get("metadata")
        stated = metadata.get("session_id") if isinstance(metadata, dict) else None
        return sid_from_bearer(request) or str(stated or body.get("user") or "default")

    def _translate(self, body):
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise HttpProblem(400, "messages is a list")
        return _translate_messages(messages), _translate_tools(body.get("tools"))

    def _build_reply(self, parsed, raw_finish, translated, tools_schema):
        # One call for each turn, and no text beside it: clients repeat several calls, or text with a call, in forms that
        # differ from what they were sent, and a history that differs forks.
        use = parsed.tool_uses[0] if parsed.tool_uses else None
        wire = {"role": "assistant", "content": None if use else (parsed.text or None)}
        known = {"role": "assistant", "content": "" if use else parsed.text}
        if parsed.reasoning:
            wire["reasoning_content"] = parsed.reasoning
        if use:
            arguments = json.dumps(use["input"], ensure_ascii=False, sort_keys=True)
            call = {"name": use["name"], "arguments": arguments}
            wire["tool_calls"] = [{"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": call}]
            known["tool_calls"] = [tool_call_dict(use["name"], use["input"])]
        finish = "tool_calls" if use else "length" if raw_finish == "length" else "stop"
        return Reply(known, manager_finish_reason(parsed.tool_uses, raw_finish), (wire, finish))

    def _render(self, body, reply, in_tok, out_tok, stream):
        message, finish = reply.wire
        usage = {"prompt_tokens": in_tok, "completion_tokens": out_tok, "total_tokens": in_tok + out_tok}
        common = {
            "id": f"chatcmpl_{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.get("model", "slime-actor"),
        }
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return Response.of_json({**common, "object": "chat.completion", "choices": [choice], "usage": usage})

        def chunk(delta, finish_reason=None, **more):
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            return None, {**common, "object": "chat.completion.chunk", "choices": [choice], **more}

        events = [chunk({"role": "assistant"})]
        events += [chunk({name: message[name]}) for name in ("reasoning_content", "content") if message.get(name)]
        if message.get("tool_calls"):
            events.append(chunk({"tool_calls": [{**call, "index": i} for i, call in enumerate(message["tool_calls"])]}))
        events += [chunk({}, finish, usage=usage), (None, "[DONE]")]
        return Response.of_events(events)


def _arguments(value):
    """A call's arguments by name, as the chat template takes them."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value) if value.strip() else {}
        except ValueError:
            parsed = None
        return parsed if isinstance(parsed, dict) else {"_raw_arguments": value}
    return value if isinstance(value, dict) else {} if value is None else {"_raw_arguments": str(value)}


def _translate_messages(messages):
    """Without ids, and without the reasoning that some clients repeat and others do not."""
    translated = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        role = "system" if role == "developer" else role
        if role not in ("system", "user", "tool", "assistant"):
            continue
        known = {"role": role, "content": flatten_content(message.get("content"))}
        calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
        if role == "assistant" and calls:
            functions = [call.get("function") or call for call in calls]
            known["tool_calls"] = [
                tool_call_dict(each.get("name") or "tool", _arguments(each.get("arguments"))) for each in functions
            ]
        translated.append(known)
    return translated


def _translate_tools(tools):
    translated = []
    for tool in tools or []:
        if not isinstance(tool, dict) or tool.get("type", "function") != "function":
            continue
        function = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if function.get("name"):
            translated.append(tool_dict(function["name"], function.get("description", ""), function.get("parameters")))
    return translated or None
