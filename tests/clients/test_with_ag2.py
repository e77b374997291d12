"""ag2 1: chat completions and Responses, tools, structured output. Its classic form is autogen's: test_with_autogen.py."""

import asyncio

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

ag2 = pytest.importorskip("ag2", reason="ag2 is not installed")
import pydantic  # noqa: E402
from ag2.config import OpenAIConfig, OpenAIResponsesConfig  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
}
CONFIGS = pytest.mark.parametrize("config", [OpenAIConfig, OpenAIResponsesConfig])


class Person(pydantic.BaseModel):
    name: str
    age: int


@ag2.tool
async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} {say('weather')}"


def ask(config, url, name, key=KEY, streaming=False, **fields):
    llm = config(model=MODEL, base_url=url + "/v1", api_key=key, streaming=streaming, max_retries=0)
    return asyncio.run(ag2.Agent("helper", prompt="You help.", config=llm, tools=[get_weather], **fields).ask(say(name)))


@CONFIGS
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name, answer", [("hello", "hello"), ("calls", "weather")], ids=["chat", "tools"])
def test_agent(server, config, streaming, name, answer):  # noqa: F811
    assert ask(config, server.url, name, streaming=streaming).body == ANSWERS[answer]


@CONFIGS
def test_structured_output(grammars, config):  # noqa: F811
    async def play():
        llm = config(model=MODEL, base_url=grammars.url + "/v1", api_key=KEY, max_retries=0)
        reply = await ag2.Agent("helper", config=llm, response_schema=Person).ask(say("person"))
        return await reply.content()

    assert asyncio.run(play()) == Person(name="Ada", age=36)


@CONFIGS
def test_training_is_exact(training, config):  # noqa: F811
    training.open(config.__name__)
    assert ask(config, training.openai_url, "calls", config.__name__).body == ANSWERS["weather"]
    figures = training.finish(config.__name__)
    assert (figures["turns"], figures["samples"]) == (2, 1)
