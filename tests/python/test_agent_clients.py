"""What published agent frameworks send back (tests/fixtures/agent_requests) is recognised as what was sampled."""

import json
from pathlib import Path

import pytest
from agent_world import World
from trained_once import assert_each_token_is_trained_once

FILE = Path(__file__).resolve().parents[1] / "fixtures" / "agent_requests" / "clients.jsonl"
CLIENTS = [json.loads(line) for line in FILE.read_text().split("\n") if line]
# The system's message tells the number of the step.
NEW_PROMPTS = ["pydantic_ai_dynamic_instructions_think"]


def sampled_text(message):
    """What a model may have sampled for the message that the client shows: a thought and a text more than it keeps."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    calls = [{"name": each["name"], "arguments": each["input"]} for each in blocks if each["type"] == "tool_use"]
    for each in message.get("tool_calls") or []:
        calls.append({"name": each["function"]["name"], "arguments": json.loads(each["function"]["arguments"])})
    text = "".join(each.get("text", "") for each in blocks if each["type"] == "text")
    if calls and not text.strip() and not isinstance(content, list):
        text = "I look at that.\n"
    shown = "".join(f"<tool_call>\n{json.dumps(each)}\n</tool_call>" for each in calls)
    return f"<think>\na thought\n</think>\n\n{text}{shown}"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client["client"])
def test_the_second_request_of_a_client_goes_on_from_what_was_sampled(monkeypatch, client):
    world = World(monkeypatch, kind=client["protocol"], reasoning_parser="qwen3")
    world.adapter.open_session("s")
    said = client["second"]["messages"][len(client["first"]["messages"])]
    for request, text in ((client["first"], sampled_text(said)), (client["second"], "an end")):
        status, answer = world.ask(request, (text, "<|im_end|>"))
        assert status == 200, answer
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == (2 if client["client"] in NEW_PROMPTS else 1)
