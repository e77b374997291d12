"""OpenAI's own client: chat completions, Responses, completions, models."""

import json

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

openai = pytest.importorskip("openai", reason="openai is not installed")
pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

OSLO = call("get_weather", city="Oslo")
ANSWERS = {
    "": "Nobody told me.",
    "hello": "Good day, ß 🚀! How are you?",
    "thinks": thought("Who is it?\nA friend.", "Hello, friend."),
    "calls": OSLO,
    "thinks_and_calls": thought("I do not know.", "I look.\n" + OSLO + "\n" + call("now")),
    "weather": "It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
    "refuses": "I would rather not say who that is.",
    "long": " ".join(f"{i} is a number." for i in range(60)),
    "cut": "alpha beta STOP gamma",
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
FUNCTIONS = [
    {"name": "get_weather", "description": "Weather of a city", "parameters": PARAMETERS},
    {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]


class Person(pydantic.BaseModel):
    name: str
    age: int


@pytest.fixture
def client(server):  # noqa: F811
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as made:
        yield made


def user(name):
    return [{"role": "user", "content": say(name)}]


def chat(client, name, **fields):
    return client.chat.completions.create(model=MODEL, messages=user(name), max_tokens=600, **fields)


def test_chat(client):
    answer = chat(client, "hello", logprobs=True)
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == (ANSWERS["hello"], "stop")
    assert answer.usage.completion_tokens == len(choice.logprobs.content)
    shown = b"".join(bytes(token.bytes) for token in choice.logprobs.content)
    assert shown.decode().removesuffix("<|im_end|>") == ANSWERS["hello"]


def test_stream(client):
    chunks = list(chat(client, "long", stream=True, stream_options={"include_usage": True}))
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert "".join(texts) == ANSWERS["long"] and len(texts) > 1
    assert chunks[-1].usage.completion_tokens > 60


def test_thoughts_are_apart(client):
    message = chat(client, "thinks").choices[0].message
    assert (message.reasoning_content.strip(), message.content) == ("Who is it?\nA friend.", "Hello, friend.")


def test_stop_string(client):
    choice = chat(client, "cut", stop=["STOP"]).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("alpha beta ", "stop")


def test_tools_over_two_turns(client):
    first = chat(client, "thinks_and_calls", tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content.strip() == "I look."
    calls = first.message.tool_calls
    assert [(each.function.name, json.loads(each.function.arguments)) for each in calls] == [("get_weather", {"city": "Oslo"}), ("now", {})]
    results = [{"role": "tool", "tool_call_id": each.id, "content": text} for each, text in zip(calls, ["4 degrees", say("weather")])]
    messages = [*user("thinks_and_calls"), first.message, *results]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    assert second.choices[0].message.content == ANSWERS["weather"]


def test_tools_in_a_stream(client):
    with client.chat.completions.stream(model=MODEL, messages=user("thinks_and_calls"), tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.done" in kinds
    assert [(each.function.name, json.loads(each.function.arguments)) for each in message.tool_calls] == [("get_weather", {"city": "Oslo"}), ("now", {})]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}], ids=["required", "named"])
def test_a_call_can_be_required(client, grammars, choice):  # noqa: F811
    message = chat(client, "calls", tools=TOOLS, tool_choice=choice).choices[0].message
    assert [(each.function.name, json.loads(each.function.arguments)) for each in message.tool_calls] == [("get_weather", {"city": "Oslo"})]


def test_a_model_that_would_not_call_has_to(client, grammars):  # noqa: F811
    now = {"type": "function", "function": {"name": "now"}}
    choice = chat(client, "hello", tools=TOOLS, tool_choice=now, parallel_tool_calls=False).choices[0]
    calls = choice.message.tool_calls
    assert [(each.function.name, json.loads(each.function.arguments)) for each in calls] == [("now", {})]


def test_structured_output(client, grammars):  # noqa: F811
    parsed = client.chat.completions.parse(model=MODEL, messages=user("person"), response_format=Person)
    assert parsed.choices[0].message.parsed == Person(name="Ada", age=36)


def test_structured_output_binds(client, grammars):  # noqa: F811
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "sure", "schema": schema, "strict": True}}
    choice = chat(client, "refuses", response_format=form).choices[0]
    assert choice.finish_reason == "stop" and isinstance(json.loads(choice.message.content)["sure"], bool)


def test_responses(client):
    answer = client.responses.create(model=MODEL, input=say("thinks"), instructions="Be brief.")
    assert answer.status == "completed" and answer.output_text == "Hello, friend."
    assert [item.type for item in answer.output] == ["reasoning", "message"]


def test_responses_stream(client):
    events = list(client.responses.create(model=MODEL, input=say("hello"), stream=True))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWERS["hello"]
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_responses_tools(client):
    tools = [{"type": "function", **function, "strict": False} for function in FUNCTIONS]
    first = client.responses.create(model=MODEL, input=say("thinks_and_calls"), tools=tools, store=False)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [(each.name, json.loads(each.arguments)) for each in calls] == [("get_weather", {"city": "Oslo"}), ("now", {})]
    results = [{"type": "function_call_output", "call_id": each.call_id, "output": say("weather")} for each in calls]
    items = [*user("thinks_and_calls"), *first.output, *results]
    second = client.responses.create(model=MODEL, input=items, tools=tools, store=False)
    assert second.output_text == ANSWERS["weather"]


def test_responses_structured_output(client, grammars):  # noqa: F811
    assert client.responses.parse(model=MODEL, input=say("person"), text_format=Person).output_parsed == Person(name="Ada", age=36)


def test_completions(client):
    answer = client.completions.create(model=MODEL, prompt=f"{say('hello')} and then:", max_tokens=60, temperature=0)
    assert answer.choices[0].text == ANSWERS["hello"]
    whole = "".join(chunk.choices[0].text for chunk in client.completions.create(model=MODEL, prompt=say("hello"), max_tokens=60, stream=True) if chunk.choices)
    assert whole == ANSWERS["hello"]


def test_models(client):
    assert [each.id for each in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_errors_are_the_clients(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 40000}])
    assert raised.value.code == "context_length_exceeded" and "maximum context length is 32768 tokens" in str(raised.value)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        chat(client, "hello", temperature=-1)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("there-is-no-such-model")
    with pytest.raises(openai.APIStatusError) as raised:
        client.embeddings.create(model=MODEL, input="x")
    assert 400 <= raised.value.status_code < 502 and "embed" in str(raised.value).lower()


def test_a_closed_stream_ends(client):
    stream = chat(client, "hello", stream=True)
    next(iter(stream))
    stream.close()
    assert chat(client, "weather").choices[0].message.content == ANSWERS["weather"]


def test_training_is_exact(training):  # noqa: F811
    training.open("openai")
    client = openai.OpenAI(base_url=training.openai_url + "/v1", api_key="openai", max_retries=0)
    messages = user("thinks_and_calls")
    for expected in ("I look.", ANSWERS["weather"]):
        message = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
        assert message.content.strip() == expected
        messages += [message, *({"role": "tool", "tool_call_id": each.id, "content": say("weather")} for each in message.tool_calls or [])]
    assert training.finish("openai") == {"turns": 2, "tokens": pytest.approx(60, abs=50), "samples": 1}
