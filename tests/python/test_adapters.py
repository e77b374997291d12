"""Adapters and trajectories: what is trained are the tokens that the engine drew."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest
from slime.agent.adapters import AnthropicAdapter, OpenAIAdapter
from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.agent.parsing import parse_model_output, parse_tool_uses
from slime.agent.trajectory import TrajectoryManager, TurnRecord
from slime.utils.types import Sample
from stub_engine import StubEngine

END = "<|im_end|>"


class Tokenizer:
    """One token for each character, and one for the end of a turn. Two tokens, 2000 and 97, are both "a": text does not
    tell which of them was drawn."""

    eos_token = END

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [1 if part == END else ord(part) for part in self._parts(text)]}

    def _parts(self, text):
        while text:
            part = END if text.startswith(END) else text[0]
            yield part
            text = text[len(part) :]

    def decode(self, ids, skip_special_tokens=False):
        return "".join(END if i == 1 else "a" if i == 2000 else chr(i) for i in ids)

    def apply_chat_template(self, messages, tools=None, tokenize=True, add_generation_prompt=False):
        text = "".join(f"<{tool['function']['name']}>" for tool in tools or [])
        for message in messages:
            calls = "".join(
                "<tool_call>" + json.dumps({"name": c["function"]["name"], "arguments": c["function"]["arguments"]})
                + "</tool_call>"
                for c in message.get("tool_calls", [])
            )
            text += f"{message['role']}:{message['content']}{calls}{END}\n"
        text += "assistant:" if add_generation_prompt else ""
        return self(text)["input_ids"] if tokenize else text


def http(url, body, key="s1", header="Authorization"):
    headers = {"Content-Type": "application/json", header: f"Bearer {key}" if header == "Authorization" else key}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
        return json.loads(text) if answer.headers["Content-Type"].startswith("application/json") else text


class Served:
    def __init__(self, kind, outputs, **options):
        self.engine = StubEngine(outputs)
        self.adapter = kind(tokenizer=Tokenizer(), sglang_url=self.engine.url + "/", **options)
        self.handle = run_app_in_thread(self.adapter.app, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{self.handle.port}"

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.handle.stop()
        self.engine.handle.stop()

    def finish(self, sid="s1"):
        base = Sample(index=7, group_index=3, prompt="p", label="l")
        return asyncio.run(self.adapter.finish_session(sid, base_sample=base, reward=0.5))


def drawn(text):
    return [2000 if token == ord("a") else token for token in Tokenizer()(text)["input_ids"]]


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>'


def test_openai_turns_with_a_tool_keep_the_tokens_that_were_drawn():
    first, second = drawn(CALL + END), drawn("a!" + END)
    with Served(OpenAIAdapter, [(first, "", "stop"), (second, "", "stop")], tool_parser="qwen25") as served:
        served.adapter.open_session("s1", sampling_defaults={"temperature": 0.5}, max_context_tokens=1000)
        messages = [{"role": "user", "content": "add"}]
        reply = http(served.url + "/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 50})
        message = reply["choices"][0]["message"]
        assert reply["choices"][0]["finish_reason"] == "tool_calls"
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": 1}
        messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "2"}]
        reply = http(served.url + "/v1/chat/completions", {"messages": messages, "tools": TOOLS})
        assert reply["choices"][0]["message"]["content"] == "a!"
        assert reply["usage"]["completion_tokens"] == len(second)

        asked = served.engine.requests
        assert asked[0]["sampling_params"]["temperature"] == 0.5
        assert asked[0]["sampling_params"]["max_new_tokens"] == 50
        prompt = asked[0]["input_ids"]
        assert asked[1]["input_ids"][: len(prompt) + len(first)] == prompt + first
        assert Tokenizer().decode(asked[1]["input_ids"][len(prompt + first) :]) == f"\ntool:2{END}\nassistant:"

        (sample,) = served.finish()
        assert sample.tokens == asked[1]["input_ids"] + second
        tail = len(asked[1]["input_ids"]) - len(prompt + first)
        assert sample.loss_mask == [1] * len(first) + [0] * tail + [1] * len(second)
        assert sample.response_length == len(sample.loss_mask) == len(sample.rollout_log_probs)
        assert sample.rollout_log_probs[:2] == [-0.5, -1.5] and sample.reward == 0.5
        assert (sample.index, sample.group_index, sample.rollout_id) == (7, 3, 7)
        assert sample.metadata == {"truncated": False, "use_tool": True, "ill_formed": False}
        assert served.finish() == []


def test_openai_streams_and_the_official_client():
    openai = pytest.importorskip("openai", reason="the package openai cannot be imported")
    with Served(OpenAIAdapter, [(drawn("hi" + END), "", "stop"), (drawn("ho" + END), "", "length")]) as served:
        served.adapter.open_session("s1")
        client = openai.OpenAI(base_url=served.url + "/v1", api_key="s1")
        messages = [{"role": "user", "content": "x"}]
        done = client.chat.completions.create(model="m", messages=messages)
        assert done.choices[0].message.content == "hi"
        chunks = list(client.chat.completions.create(model="m", messages=messages, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "ho"
        assert chunks[-1].choices[0].finish_reason == "length" and chunks[-1].usage.total_tokens > 0
        first, second = served.finish()  # the same question twice: two branches
        assert first.metadata["truncated"] is False and second.metadata["truncated"] is True


def test_anthropic_messages_blocks_and_streams():
    outputs = [(drawn("<think>hm</think>" + CALL + END), "", "stop"), (drawn("done" + END), "", "stop")]
    with Served(AnthropicAdapter, outputs, tool_parser="hermes", reasoning_parser="qwen3") as served:
        served.adapter.open_session("s1")
        tools = [{"name": "add", "input_schema": {"type": "object"}}]
        messages = [{"role": "user", "content": [{"type": "text", "text": "add"}]}]
        body = {"system": [{"type": "text", "text": "S"}], "messages": messages, "tools": tools, "max_tokens": 9}
        reply = http(served.url + "/v1/messages", body, header="x-api-key")
        thinking, use = reply["content"]
        assert thinking.pop("signature") and thinking == {"type": "thinking", "thinking": "hm"} and use["input"] == {"x": 1}
        assert reply["stop_reason"] == "tool_use"
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "2"}]}
        messages += [
            {"role": "assistant", "content": reply["content"]},
            {"role": "user", "content": [result]},
            {"role": "system", "content": "be quick"},
        ]
        text = http(served.url + "/v1/messages", {**body, "stream": True}, header="x-api-key")
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [event["type"] for event in events] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        assert events[2]["delta"]["text"] == "done"
        counted = http(served.url + "/v1/messages/count_tokens", body, header="x-api-key")
        (sample,) = served.finish()
        assert counted["input_tokens"] == len(served.engine.requests[1]["input_ids"])
        assert sample.tokens == served.engine.requests[1]["input_ids"] + outputs[1][0]
        assert "be quick" in Tokenizer().decode(sample.tokens)


def test_turns_are_limited_and_closed_sessions_refused():
    with Served(OpenAIAdapter, [(drawn("x" + END), "", "stop")], max_turns_per_sid=1) as served:
        served.adapter.open_session("s1")
        body = {"messages": [{"role": "user", "content": "x"}]}
        http(served.url + "/v1/chat/completions", body)
        with pytest.raises(urllib.error.HTTPError, match="429"):
            http(served.url + "/v1/chat/completions", body)
        assert len(served.finish()) == 1
        with pytest.raises(urllib.error.HTTPError, match="503"):
            http(served.url + "/v1/chat/completions", body)
        with pytest.raises(ValueError, match="s1"):
            served.adapter.open_session("s1")


def test_a_client_that_leaves_frees_the_engine():
    import socket
    import time

    with Served(OpenAIAdapter, []) as served:
        served.adapter.open_session("s1")
        body = json.dumps({"messages": [{"role": "user", "content": "x"}]})
        head = f"POST /sessions/s1/v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", served.handle.port)) as client:
            client.sendall((head + body).encode())
            end = time.monotonic() + 5
            while not served.engine.requests and time.monotonic() < end:
                time.sleep(0.01)
        while not (served.engine.num_cancelled and served.engine.aborts) and time.monotonic() < end:
            time.sleep(0.01)
        assert served.engine.num_cancelled == 1
        assert served.engine.aborts[0]["rid"] == served.engine.requests[0]["rid"]
        assert served.finish() == []


def turn(prompt, output, finish="stop"):
    return TurnRecord(prompt, output, finish, [-1.0] * len(output))


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def test_a_fork_trains_what_is_shared_once():
    manager = TrajectoryManager()
    manager.record_turn("s", turn=turn([1], [2]), prompt_messages=[user("a")], response_message=assistant("b"))
    history = [user("a"), assistant("b")]
    for text, token in (("c", 3), ("d", 4)):
        manager.record_turn(
            "s", turn=turn([1, 2, token], [9]), prompt_messages=history + [user(text)], response_message=assistant("z")
        )
    first, second = manager.get_trajectory("s", base_sample=Sample(index=1), reward=1.0)
    assert first.tokens == [1, 2, 3, 9] and first.loss_mask == [1, 0, 1]
    assert second.tokens == [1, 2, 4, 9] and second.loss_mask == [0, 0, 1]
    assert manager.get_trajectory("s", base_sample=Sample()) == [] and not manager.has_session("s")


def test_a_response_that_came_back_in_other_tokens_is_healed_or_forks():
    for threshold, expected in ((10, [([1, 7, 8, 3, 9], [0, 0, 0, 1])]), (1, [([1, 5, 6], [1, 1]), ([1, 7, 8, 3, 9], [1])])):
        manager = TrajectoryManager(fork_threshold_tokens=threshold)
        manager.record_turn("s", turn=turn([1], [5, 6]), prompt_messages=[user("a")], response_message=assistant("b"))
        history = [user("a"), assistant("b"), user("c")]
        manager.record_turn("s", turn=turn([1, 7, 8, 3], [9]), prompt_messages=history, response_message=assistant("z"))
        samples = manager.get_trajectory("s", base_sample=Sample(index=1))
        assert [(sample.tokens, sample.loss_mask) for sample in samples] == expected


def test_a_short_response_in_other_words_is_given_up_where_a_threshold_says_so_and_forks_otherwise():
    for threshold, expected in ((None, [([1, 5], [1]), ([1, 7, 3, 9], [1])]), (1024, [([1, 7, 3, 9], [0, 0, 1])])):
        manager = TrajectoryManager(fork_threshold_tokens=threshold)
        manager.record_turn("s", turn=turn([1], [5]), prompt_messages=[user("a")], response_message=assistant("b "))
        history = [user("a"), assistant("c"), user("c")]
        manager.record_turn("s", turn=turn([1, 7, 3], [9]), prompt_messages=history, response_message=assistant("z"))
        samples = manager.get_trajectory("s", base_sample=Sample(index=1))
        assert [(sample.tokens, sample.loss_mask) for sample in samples] == expected
        assert manager.turn_count("s") == 0


def test_samples_are_cut_at_the_limit_of_tokens():
    manager = TrajectoryManager()
    manager.record_turn("s", turn=turn([1], [5, 6, 7]), prompt_messages=[user("a")], response_message=assistant("b"))
    (sample,) = manager.get_trajectory("s", base_sample=Sample(index=1), max_sample_tokens=3)
    assert (sample.tokens, sample.loss_mask, sample.response_length) == ([1, 5, 6], [1, 1], 2)


@pytest.mark.parametrize(
    "parser, text, uses, bad",
    [
        ("qwen25", CALL, [{"name": "add", "input": {"x": 1}}], False),
        ("qwen25", "<tool_call>{broken</tool_call>", [], True),
        ("qwen25", '<tool_call>{"name": "add", "arguments": "{oops"}</tool_call>', [{"name": "add", "input": {"_raw_arguments": "{oops"}}], True),
        (None, "<tool_call><function=add><parameter=x>1</parameter></function></tool_call>", [{"name": "add", "input": {"x": "1"}}], False),
        (None, "<tool_call><function=other></function></tool_call>", [], False),
        ("glm45", "<tool_call>add\n<arg_key>x</arg_key>\n<arg_value>1</arg_value></tool_call>", [{"name": "add", "input": {"x": 1}}], False),
    ],
)
def test_calls_of_tools(parser, text, uses, bad):
    parsed = parse_model_output(text + END, tools_schema=TOOLS, tool_parser_name=parser, reasoning_parser_name=None)
    assert parsed.tool_uses == uses and parsed.ill_formed is bad
    if uses:
        assert parsed.text == ""


def test_arguments_in_xml_have_the_types_of_the_tools_schema_and_their_own_white_space():
    kinds = {"old": "string", "count": "integer", "all": "boolean", "opts": "object", "tag": "string", "bad": "integer"}
    schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items()}}
    tools = [{"type": "function", "function": {"name": "edit", "parameters": schema}}]
    texts = {"old": "    return x  \n", "count": "3", "all": "true", "opts": '{"k": [1]}', "tag": "007", "bad": "three", "more": " 1"}
    inside = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in texts.items())
    _, (use,), is_ill_formed = parse_tool_uses(f"<tool_call>\n<function=edit>\n{inside}</function>\n</tool_call>", tools, "qwen3_coder")
    assert use["input"] == {**texts, "count": 3, "all": True, "opts": {"k": [1]}} and not is_ill_formed


def test_a_mark_inside_of_a_calls_json_does_not_end_the_call():
    tools = [{"type": "function", "function": {"name": "write", "parameters": {}}}]
    call = json.dumps({"name": "write", "arguments": {"text": "a </tool_call> b <tool_call>"}})
    text, uses, is_ill_formed = parse_tool_uses(f"Ok.\n<tool_call>\n{call}\n</tool_call> on <tool_call>{call}</tool_call>", tools, "qwen25")
    assert [use["input"]["text"] for use in uses] == ["a </tool_call> b <tool_call>"] * 2
    assert text == "Ok.\n on " and not is_ill_formed
