"""The Responses protocol of the agents' endpoint: items become turns that are trained, and come back as items."""

import json

import pytest
from agent_world import World
from trained_once import assert_each_token_is_trained_once

TOOL = {"type": "function", "name": "look", "description": "d", "parameters": {"type": "object"}}
PATH = "/v1/responses"
CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Paris"}}\n</tool_call>'
END = "<|im_end|>"


def begin(monkeypatch, **options):
    world = World(monkeypatch, reasoning_parser="qwen3", **options)
    world.adapter.open_session("s")
    return world


def test_items_that_come_back_are_the_turn_that_they_were(monkeypatch):
    world = begin(monkeypatch)
    items = [{"role": "user", "content": [{"type": "input_text", "text": "weather?"}]}]
    body = {"instructions": "You help.", "tools": [TOOL, {"type": "web_search"}], "store": False}
    for text in ("<think>\na thought\n</think>\n\nI look." + CALL + CALL, CALL, "It is sunny."):
        status, answer = world.ask({**body, "input": items}, (text, END), path=PATH)
        assert status == 200 and answer["status"] == "completed"
        items = items + answer["output"]
        items += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
            for item in answer["output"]
            if item["type"] == "function_call"
        ]
    kinds = [item.get("type") for item in items]
    assert kinds[1:7] == ["reasoning", "message", "function_call", "function_call", *["function_call_output"] * 2]
    assert answer["output"][-1]["content"][0]["text"] == "It is sunny."
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 1 and "web_search" not in world.tokenizer.decode(samples[0].tokens)


def test_a_client_that_drops_reasoning_items_has_one_history(monkeypatch):
    world = begin(monkeypatch)
    items = [{"role": "user", "content": "x"}]
    for _ in range(3):
        _, answer = world.ask({"input": items}, ("<think>\nhm\n</think>\n\nan answer", END), path=PATH)
        items = items + [item for item in answer["output"] if item["type"] != "reasoning"]
        items += [{"role": "user", "content": "on"}]
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 1


def test_custom_tools_take_one_text(monkeypatch):
    world = begin(monkeypatch)
    tools = [{"type": "custom", "name": "look", "description": "d", "format": {"type": "text"}}]
    text = '<tool_call>{"name": "look", "arguments": {"input": "ls\\n"}}</tool_call>'
    _, answer = world.ask({"input": "x", "tools": tools}, (text, END), path=PATH)
    (item,) = answer["output"]
    assert item["type"] == "custom_tool_call" and item["input"] == "ls\n"
    items = [{"role": "user", "content": "x"}, item]
    items += [{"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "a file"}]
    world.ask({"input": items, "tools": tools}, ("done", END), path=PATH)
    assert len(world.finish()) == 1


def test_tools_of_a_namespace_keep_it(monkeypatch):
    world = begin(monkeypatch)
    tools = [{"type": "namespace", "name": "files", "description": "d", "tools": [TOOL]}]
    text = '<tool_call>{"name": "files__look", "arguments": {}}</tool_call>'
    _, answer = world.ask({"input": "x", "tools": tools}, (text, END), path=PATH)
    (item,) = answer["output"]
    assert (item["namespace"], item["name"]) == ("files", "look")
    items = [{"role": "user", "content": "x"}, item]
    items += [{"type": "function_call_output", "call_id": item["call_id"], "output": "a file"}]
    world.ask({"input": items, "tools": tools}, ("done", END), path=PATH)
    assert len(world.finish()) == 1


def test_a_stream_has_the_items_whole_and_numbers_without_gaps(monkeypatch):
    world = begin(monkeypatch)
    text = "<think>\nhm\n</think>\n\nI look." + CALL
    _, stream = world.ask({"input": "x", "tools": [TOOL], "stream": True}, (text, END), path=PATH)
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert events[-1]["type"] == "response.completed" and events[-1]["response"]["output"] == done
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert deltas == "I look." and json.loads(done[2]["arguments"]) == {"city": "Paris"}


def test_a_turn_that_was_cut_off_is_incomplete(monkeypatch):
    world = begin(monkeypatch)
    _, answer = world.ask({"input": "x", "max_output_tokens": 3}, ("it ", None), path=PATH)
    assert answer["status"] == "incomplete" and answer["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    "more, param",
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": 3}, "input"),
        ({"tools": [{"type": "computer"}]}, "tools"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(monkeypatch, more, param):
    world = begin(monkeypatch)
    status, answer = world.ask({"input": "x", **more}, path=PATH)
    assert status == 400 and answer["error"]["param"] == param
