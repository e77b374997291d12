"""AutoGen's AgentChat."""

import asyncio

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

pytest.importorskip("autogen_agentchat", reason="autogen-agentchat is not installed")
pytest.importorskip("autogen_ext.models.openai", reason="autogen-ext[openai] is not installed")
import pydantic  # noqa: E402
from autogen_agentchat.agents import AssistantAgent  # noqa: E402
from autogen_ext.models.openai import OpenAIChatCompletionClient  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
}
ABILITIES = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"}


class Person(pydantic.BaseModel):
    name: str
    age: int


async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} {say('weather')}"


def run(url, name, key=KEY, **fields):
    async def play():
        client = OpenAIChatCompletionClient(model=MODEL, base_url=url + "/v1", api_key=key, model_info=ABILITIES, max_retries=0)
        agent = AssistantAgent("helper", client, system_message="You help.", **{"tools": [get_weather], "reflect_on_tool_use": True, **fields})
        result = await agent.run(task=say(name))
        await client.close()
        return result.messages[-1].content

    return asyncio.run(play())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name, answer", [("hello", "hello"), ("calls", "weather")], ids=["chat", "tools"])
def test_agent(server, stream, name, answer):  # noqa: F811
    assert run(server.url, name, model_client_stream=stream) == ANSWERS[answer]


def test_structured_output(grammars):  # noqa: F811
    fields = {"tools": [], "reflect_on_tool_use": False, "output_content_type": Person}
    assert run(grammars.url, "person", **fields) == Person(name="Ada", age=36)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_training_is_exact(training, stream):  # noqa: F811
    name = f"autogen-{stream}"
    training.open(name)
    assert run(training.openai_url, "calls", name, model_client_stream=stream) == ANSWERS["weather"]
    figures = training.finish(name)
    # The request that reflects on a tool's result has no tools, so another prompt: two samples.
    assert (figures["turns"], figures["samples"]) == (2, 2)
