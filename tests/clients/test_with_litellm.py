"""litellm: the providers openai, hosted_vllm and anthropic."""

import json

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

litellm = pytest.importorskip("litellm", reason="litellm is not installed")
import pydantic  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀! How are you?",
    "thinks": thought("Who is it?", "Hello, friend."),
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo") + "\n" + call("now")),
    "weather": "It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
PROVIDERS = pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])


class Person(pydantic.BaseModel):
    name: str
    age: int


def complete(provider, url, messages, key=KEY, **fields):
    base = url if provider == "anthropic" else url + "/v1"
    return litellm.completion(f"{provider}/{MODEL}", messages=messages, api_base=base, api_key=key, max_tokens=200, num_retries=0, **fields)


def user(name):
    return [{"role": "user", "content": say(name)}]


def calls_of(message):
    return [(each.function.name, json.loads(each.function.arguments)) for each in message.tool_calls or []]


def play(provider, url, key=KEY):
    """A tool's call and the answer behind its result; the messages are sent back as litellm gives them."""
    messages = user("calls")
    for expected in ([("get_weather", {"city": "Oslo"}), ("now", {})], []):
        message = complete(provider, url, messages, key, tools=TOOLS).choices[0].message
        assert calls_of(message) == expected
        results = [{"role": "tool", "tool_call_id": each.id, "content": say("weather")} for each in message.tool_calls or []]
        messages += [message.model_dump(), *results]
    return message.content


@PROVIDERS
def test_chat(server, provider):  # noqa: F811
    answer = complete(provider, server.url, user("hello"))
    assert answer.choices[0].message.content == ANSWERS["hello"] and answer.usage.completion_tokens > 3


@PROVIDERS
def test_thoughts_are_apart(server, provider):  # noqa: F811
    message = complete(provider, server.url, user("thinks")).choices[0].message
    assert (message.content, message.reasoning_content.strip()) == ("Hello, friend.", "Who is it?")


@PROVIDERS
def test_stream(server, provider):  # noqa: F811
    chunks = list(complete(provider, server.url, user("calls"), tools=TOOLS, stream=True))
    message = litellm.stream_chunk_builder(chunks).choices[0].message
    assert calls_of(message) == [("get_weather", {"city": "Oslo"}), ("now", {})] and message.content.strip() == "I look."


@PROVIDERS
def test_tools_over_two_turns(server, provider):  # noqa: F811
    assert play(provider, server.url) == ANSWERS["weather"]


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_structured_output(grammars, provider):  # noqa: F811
    answer = complete(provider, grammars.url, user("person"), response_format=Person)
    assert Person.model_validate_json(answer.choices[0].message.content) == Person(name="Ada", age=36)


@PROVIDERS
def test_training_is_exact(training, provider):  # noqa: F811
    name = f"litellm-{provider}"
    training.open(name)
    assert play(provider, training.anthropic_url if provider == "anthropic" else training.openai_url, name) == ANSWERS["weather"]
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 1)
