"""Anthropic's own client: messages, streams, tools, counting."""

import pytest
from served import KEY, MODEL, call, model, say, server, thought, training  # noqa: F401

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")

OSLO = call("get_weather", city="Oslo")
ANSWERS = {
    "hello": "Good day, ß 🚀! How are you?",
    "thinks_and_calls": thought("I do not know.", "I look.\n" + OSLO + "\n" + call("now")),
    "weather": "It is 4 degrees in Oslo.",
    "long": " ".join(f"{i} is a number." for i in range(60)),
    "cut": "alpha beta STOP gamma",
}
TOOLS = [
    {"name": "get_weather", "description": "Weather of a city", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"name": "now", "description": "The time", "input_schema": {"type": "object", "properties": {}}},
]
BOTH = [("get_weather", {"city": "Oslo"}), ("now", {})]


@pytest.fixture
def client(server):  # noqa: F811
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as made:
        yield made


def user(name):
    return [{"role": "user", "content": say(name)}]


def send(client, messages, **fields):
    return client.messages.create(model=MODEL, max_tokens=200, system="Be brief.", messages=messages, **fields)


def calls_of(message):
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


def results_of(message, text):
    blocks = [{"type": "tool_result", "tool_use_id": block.id, "content": text} for block in message.content if block.type == "tool_use"]
    return {"role": "user", "content": blocks}


def test_message(client):
    message = send(client, user("hello"))
    assert ([block.text for block in message.content], message.stop_reason) == ([ANSWERS["hello"]], "end_turn")
    assert message.usage.output_tokens > 3 and message.usage.input_tokens + message.usage.cache_read_input_tokens > 10


def test_stream(client):
    with client.messages.stream(model=MODEL, max_tokens=600, messages=user("long")) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(texts) == ANSWERS["long"] == final.content[0].text and len(texts) > 1
    assert final.stop_reason == "end_turn" and final.usage.output_tokens > 60


def test_stop_sequence(client):
    message = send(client, user("cut"), stop_sequences=["STOP"])
    assert (message.content[0].text, message.stop_reason, message.stop_sequence) == ("alpha beta ", "stop_sequence", "STOP")


def test_tools_over_two_turns(client):
    first = send(client, user("thinks_and_calls"), tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"] and first.stop_reason == "tool_use"
    assert first.content[0].thinking.strip() == "I do not know." and calls_of(first) == BOTH
    history = [*user("thinks_and_calls"), {"role": "assistant", "content": first.content}, results_of(first, say("weather"))]
    assert send(client, history, tools=TOOLS).content[-1].text == ANSWERS["weather"]


def test_tools_in_a_stream(client):
    with client.messages.stream(model=MODEL, max_tokens=200, messages=user("thinks_and_calls"), tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and "input_json" in kinds
    assert calls_of(final) == BOTH and final.stop_reason == "tool_use"


def test_count_tokens(client):
    counted = client.messages.count_tokens(model=MODEL, messages=user("hello")).input_tokens
    usage = client.messages.create(model=MODEL, max_tokens=1, messages=user("hello")).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_are_the_clients(client):
    with pytest.raises(anthropic.BadRequestError, match="maximum context length|prompt is too long"):
        send(client, [{"role": "user", "content": "x" * 40000}])
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        send(client, user("hello"), extra_body={"temperature": -1})


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_training_is_exact(training, is_streamed):  # noqa: F811
    name = f"anthropic-{is_streamed}"
    training.open(name)
    client = anthropic.Anthropic(base_url=training.anthropic_url, api_key=name, max_retries=0)
    messages = user("thinks_and_calls")
    for is_last in (False, True):
        if is_streamed:
            with client.messages.stream(model=MODEL, max_tokens=200, messages=messages, tools=TOOLS) as stream:
                message = stream.get_final_message()
        else:
            message = send(client, messages, tools=TOOLS)
        assert calls_of(message) == ([] if is_last else BOTH)
        messages += [{"role": "assistant", "content": message.content}, results_of(message, say("weather"))]
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 1)
