"""Responses: POST /v1/responses, plain and streamed, with the whole history in each request. Nothing is stored, so
previous_response_id is refused."""

import json
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
from slime.agent.http_app import HttpProblem, Response

__all__ = ["Responses", "ResponsesAdapter", "openai_error"]

_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
# Tools of OpenAI's own machines. Clients list them always; the model is not shown what nobody here can run.
_HOSTED = ("web_search", "web_search_preview", "file_search", "image_generation", "code_interpreter", "mcp", "tool_search")


def openai_error(problem):
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    return {"error": {"message": str(problem), "type": kind, "param": problem.param, "code": problem.code}}


class Responses(Protocol):
    max_token_keys = ("max_output_tokens",)
    stop_keys = ("stop",)
    acted_on = ("text", "reasoning")

    def session_names(self, request, body):
        metadata = body.get("metadata")
        return key_of(request), metadata.get("session_id") if isinstance(metadata, dict) else None, body.get("user")

    def error(self, problem):
        return openai_error(problem)

    def translate(self, body):
        items = body.get("input")
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        if not isinstance(items, list):
            raise HttpProblem(400, "input is a text or a list of items", param="input")
        messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        return messages + _messages_of(items), _tools_of(body.get("tools")) or None

    def build_reply(self, parsed, raw_finish, body):
        known = {"role": "assistant", "content": parsed.text}
        output, ids = [], []
        offered = {name: (tool, namespace) for tool, namespace, name in _flat(body.get("tools"))}
        if parsed.reasoning:
            known["reasoning_content"] = parsed.reasoning
            content = [{"type": "reasoning_text", "text": parsed.reasoning}]
            output.append({"id": _id("rs"), "type": "reasoning", "summary": [], "content": content, "status": "completed"})
        if parsed.text or not (output or parsed.tool_uses):
            content = [{"type": "output_text", "text": parsed.text, "annotations": [], "logprobs": []}]
            output.append(
                {"id": _id("msg"), "type": "message", "role": "assistant", "status": "completed", "content": content}
            )
        for use in parsed.tool_uses:
            ids.append(_id("call"))
            output.append(_call_item(use, ids[-1], *offered.get(use["name"], ({}, None))))
        if parsed.tool_uses:
            known["tool_calls"] = [tool_call_dict(use["name"], use["input"]) for use in parsed.tool_uses]
        is_cut_off = raw_finish == "length" and not parsed.tool_uses
        return Reply(known, (output, is_cut_off), tuple(ids))

    def render(self, adapter, body, reply, turn, stream):
        output, is_cut_off = reply.wire
        num_read, num_sampled = len(turn.prompt_ids), len(turn.output_ids)
        answer = {
            "id": _id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "incomplete" if is_cut_off else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut_off else None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "model": body.get("model", "slime-actor"),
            "output": output,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "store": False,
            "temperature": body.get("temperature"),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools") or [],
            "top_p": body.get("top_p"),
            "truncation": "disabled",
            "usage": {
                "input_tokens": num_read,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": num_sampled,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": num_read + num_sampled,
            },
        }
        return Response.of_events(_events(answer)) if stream else Response.of_json(answer)


class ResponsesAdapter(BaseAdapter):
    """Responses alone; OpenAIAdapter has them too."""

    protocols = {"/v1/responses": Responses()}


def _id(kind):
    return f"{kind}_{secrets.token_hex(12)}"


def _call_item(use, call_id, tool, namespace):
    call = {"call_id": call_id, "name": tool.get("name", use["name"]), "status": "completed"}
    if namespace is not None:
        call["namespace"] = namespace
    if tool.get("type") == "custom":
        text = use["input"].get("input")
        text = text if isinstance(text, str) else json.dumps(use["input"], ensure_ascii=False)
        return {"id": _id("ctc"), "type": "custom_tool_call", **call, "input": text}
    arguments = json.dumps(use["input"], ensure_ascii=False, sort_keys=True)
    return {"id": _id("fc"), "type": "function_call", **call, "arguments": arguments}


def _messages_of(items):
    """An answer's items, its reasoning, text and calls, are one message."""
    messages, reasoning = [], ""

    def assistant():
        """The answer that is being collected."""
        nonlocal reasoning
        if not messages or messages[-1]["role"] != "assistant" or reasoning:
            messages.append({"role": "assistant", "content": ""})
        if reasoning:
            messages[-1]["reasoning_content"], reasoning = reasoning, ""
        return messages[-1]

    for i, item in enumerate(items):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            role = {"developer": "system"}.get(item.get("role"), item.get("role"))
            if role not in ("system", "user", "assistant"):
                raise HttpProblem(400, f"a message of role {role!r}", param=f"input[{i}].role")
            text = flatten_content(item.get("content"))
            if role == "assistant":
                message = assistant()
                message["content"] = "\n".join(filter(None, (message["content"], text)))
            else:
                messages.append({"role": role, "content": text})
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary") or []
            reasoning = flatten_content([{"type": "text", "text": part.get("text")} for part in parts])
        elif kind in _CALLS:
            arguments = {"input": item.get("input") or ""} if kind == "custom_tool_call" else item.get("arguments")
            name = item.get("name") or "tool"
            name = f"{item['namespace']}__{name}" if item.get("namespace") else name
            call = tool_call_dict(name, call_arguments(arguments), item.get("call_id"))
            assistant().setdefault("tool_calls", []).append(call)
        elif kind in _RESULTS:
            text = flatten_content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": str(item.get("call_id")), "content": text})
        else:
            raise HttpProblem(400, f"an item of type {kind!r} is not known here", param=f"input[{i}].type")
    return messages


def _flat(tools):
    """(tool, namespace or None, the name that the model sees) of each; a namespace is a list of tools."""
    for tool in tools or []:
        if tool.get("type") == "namespace":
            for inner in tool.get("tools") or []:
                yield inner, tool.get("name"), f"{tool.get('name')}__{inner.get('name')}"
        else:
            yield tool, None, tool.get("name")


def _tools_of(tools):
    shown = []
    for tool, _, name in _flat(tools):
        kind = tool.get("type")
        if kind == "function" and name:
            shown.append(tool_dict(name, tool.get("description") or "", tool.get("parameters")))
        elif kind == "custom" and name:
            parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
            shown.append(tool_dict(name, tool.get("description") or "", parameters))
        elif kind not in _HOSTED:
            raise HttpProblem(400, f"a tool of type {kind!r} is not known here", param="tools")
    return shown


def _events(answer):
    """The stream of an answer that is there already: each item begins, comes in one piece and ends."""
    events = []

    def event(kind, /, **fields):
        events.append((kind, {"type": kind, "sequence_number": len(events), **fields}))

    begun = {**answer, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    event("response.created", response=begun)
    event("response.in_progress", response=begun)
    for i, item in enumerate(answer["output"]):
        place = {"item_id": item["id"], "output_index": i}
        part_field = {"message": "content", "reasoning": "content"}.get(item["type"])
        text_field = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
        empty = {**item, "status": "in_progress", part_field or text_field: [] if part_field else ""}
        event("response.output_item.added", output_index=i, item=empty)
        if part_field:
            (part,) = item["content"]
            kind, more = part["type"], {"logprobs": []} if part["type"] == "output_text" else {}
            place["content_index"] = 0
            event("response.content_part.added", **place, part={**part, "text": ""})
            event(f"response.{kind}.delta", **place, delta=part["text"], **more)
            event(f"response.{kind}.done", **place, text=part["text"], **more)
            event("response.content_part.done", **place, part=part)
        else:
            name = "function_call_arguments" if text_field == "arguments" else "custom_tool_call_input"
            event(f"response.{name}.delta", **place, delta=item[text_field])
            event(f"response.{name}.done", **place, name=item["name"], **{text_field: item[text_field]})
        event("response.output_item.done", output_index=i, item=item)
    event(f"response.{answer['status']}", response=answer)
    return events
