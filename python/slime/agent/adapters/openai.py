"""Chat completions: POST /v1/chat/completions, plain and streamed. The session is named by the path, the API key,
metadata.session_id or user, the first of them under which one is open."""

import json
import logging
import secrets
import time

from slime.agent.adapters.common import BaseAdapter
from slime.agent.adapters.protocol import (
    Protocol,
    Reply,
    call_arguments,
    flatten_content,
    key_of,
    tool_call_dict,
    tool_dict,
)
from slime.agent.adapters.responses import Responses, openai_error
from slime.agent.http_app import HttpProblem, Response

__all__ = ["ChatCompletions", "OpenAIAdapter"]


class ChatCompletions(Protocol):
    max_token_keys = ("max_completion_tokens", "max_tokens")
    stop_keys = ("stop",)
    acted_on = ("continue_final_message",)

    def session_names(self, request, body):
        metadata = body.get("metadata")
        stated = metadata.get("session_id") if isinstance(metadata, dict) else None
        return key_of(request), stated, body.get("user")

    def goes_on(self, body):
        return body.get("continue_final_message") is True

    def error(self, problem):
        return openai_error(problem)

    def translate(self, body):
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise HttpProblem(400, "messages is a list", param="messages")
        return _translate_messages(messages), _translate_tools(body.get("tools"))

    def build_reply(self, parsed, raw_finish, body):
        wire = {"role": "assistant", "content": parsed.text or None}
        known = {"role": "assistant", "content": parsed.text}
        if parsed.reasoning:
            wire["reasoning_content"] = known["reasoning_content"] = parsed.reasoning
        calls = [
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {
                    "name": use["name"],
                    "arguments": json.dumps(use["input"], ensure_ascii=False, sort_keys=True),
                },
            }
            for use in parsed.tool_uses
        ]
        if calls:
            wire["tool_calls"] = calls
            known["tool_calls"] = [tool_call_dict(use["name"], use["input"]) for use in parsed.tool_uses]
        finish = "tool_calls" if calls else "length" if raw_finish == "length" else "stop"
        ids = tuple(call["id"] for call in calls)
        return Reply(known, (wire, finish), ids)

    def _log_probs(self, adapter, body, turn):
        """Of every token that was sampled, thoughts and marks included."""
        if not body.get("logprobs"):
            return {}

        def entry(token, log_prob):
            text = adapter.decode([token])
            return {"token": text, "logprob": log_prob, "bytes": list(text.encode()), "top_logprobs": []}

        return {"logprobs": {"content": [entry(*each) for each in zip(turn.output_ids, turn.output_log_probs)]}}

    def render(self, adapter, body, reply, turn, stream):
        message, finish = reply.wire
        in_tok, out_tok = len(turn.prompt_ids), len(turn.output_ids)
        usage = {"prompt_tokens": in_tok, "completion_tokens": out_tok, "total_tokens": in_tok + out_tok}
        common = {
            "id": f"chatcmpl_{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.get("model", "slime-actor"),
        }
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": finish, **self._log_probs(adapter, body, turn)}
            return Response.of_json({**common, "object": "chat.completion", "choices": [choice], "usage": usage})

        def chunk(delta, finish_reason=None, more_of_choice=None, **more):
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, **(more_of_choice or {})}
            return None, {**common, "object": "chat.completion.chunk", "choices": [choice], **more}

        events = [chunk({"role": "assistant"}, more_of_choice=self._log_probs(adapter, body, turn))]
        events += [chunk({name: message[name]}) for name in ("reasoning_content", "content") if message.get(name)]
        if message.get("tool_calls"):
            events.append(chunk({"tool_calls": [{**call, "index": i} for i, call in enumerate(message["tool_calls"])]}))
        events += [chunk({}, finish, usage=usage), (None, "[DONE]")]
        return Response.of_events(events)


class OpenAIAdapter(BaseAdapter):
    """Chat completions and Responses."""

    logger = logging.getLogger(__name__)
    protocols = {"/v1/chat/completions": ChatCompletions(), "/v1/responses": Responses()}


def _translate_messages(messages):
    translated = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        role = {"developer": "system", "function": "tool"}.get(role, role)
        if role not in ("system", "user", "tool", "assistant"):
            known = "system, developer, user, assistant and tool"
            raise HttpProblem(400, f"a message of role {role!r}; {known} are known", param="messages")
        known = {"role": role, "content": flatten_content(message.get("content"))}
        if role == "tool":
            known.update((name, message[name]) for name in ("tool_call_id", "name") if isinstance(message.get(name), str))
        calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
        if role == "assistant" and calls:
            functions = [call.get("function") or call for call in calls]
            known["tool_calls"] = [
                tool_call_dict(each.get("name") or "tool", call_arguments(each.get("arguments")), call.get("id"))
                for call, each in zip(calls, functions)
            ]
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if role == "assistant" and isinstance(reasoning, str) and reasoning:
            known["reasoning_content"] = reasoning
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
