"""LangGraph's agent on langchain-openai's model."""

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
prebuilt = pytest.importorskip("langgraph.prebuilt", reason="langgraph is not installed")
import pydantic  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo") + "\n" + call("get_weather", city="Rome")),
    "weather": "It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
    "person by a call": call("Person", name="Ada", age=36),
}


class Person(pydantic.BaseModel):
    """Who it is."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} {say('weather')}"


def chat_model(url, key=KEY, **fields):
    return langchain_openai.ChatOpenAI(base_url=url + "/v1", api_key=key, model=MODEL, max_retries=0, **fields)


def play(llm):
    agent = prebuilt.create_react_agent(llm, [get_weather])
    return agent.invoke({"messages": [("system", "You help."), ("user", say("calls"))]})["messages"]


def test_chat(server):  # noqa: F811
    assert chat_model(server.url).invoke(say("hello")).content == ANSWERS["hello"]


def test_stream(server):  # noqa: F811
    chunks = list(chat_model(server.url, stream_usage=True).stream(say("hello")))
    assert "".join(chunk.content for chunk in chunks) == ANSWERS["hello"]
    assert sum((chunk.usage_metadata or {}).get("output_tokens", 0) for chunk in chunks) > 3


@pytest.mark.parametrize("fields", [{}, {"streaming": True}, {"use_responses_api": True}], ids=["whole", "streamed", "responses"])
def test_agent_with_tools(server, fields):  # noqa: F811
    messages = play(chat_model(server.url, **fields))
    last = messages[-1].content
    assert (last if isinstance(last, str) else "".join(block.get("text", "") for block in last)) == ANSWERS["weather"]
    assert [each["args"] for each in messages[2].tool_calls] == [{"city": "Oslo"}, {"city": "Rome"}]


@pytest.mark.parametrize("method, name", [("json_schema", "person"), ("function_calling", "person by a call"), ("json_mode", "person")])
def test_structured_output(grammars, method, name):  # noqa: F811
    bound = chat_model(grammars.url).with_structured_output(Person, method=method)
    assert bound.invoke(f"As JSON: {say(name)}") == Person(name="Ada", age=36)


@pytest.mark.parametrize("fields", [{}, {"streaming": True}], ids=["whole", "streamed"])
def test_training_is_exact(training, fields):  # noqa: F811
    name = f"langgraph-{len(fields)}"
    training.open(name)
    assert play(chat_model(training.openai_url, key=name, **fields))[-1].content == ANSWERS["weather"]
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 1)
