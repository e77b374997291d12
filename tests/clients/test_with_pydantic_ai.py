"""pydantic-ai: OpenAI's and Anthropic's models, tools, three ways to structured output."""

import asyncio

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
import pydantic  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "only calls": thought("I do not know.", call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
    "a wrong person": call("final_result", name="Ada", age="old"),
    "person by a call": call("final_result", name="Ada", age=36),
}


class Person(pydantic.BaseModel):
    name: str
    age: int

    @pydantic.field_validator("age", mode="before")
    @classmethod
    def is_number(cls, value):
        if not isinstance(value, int):
            raise ValueError(f"age is a number {say('person by a call')}")
        return value


def chat(url, key=KEY):
    return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key=key))


def responses(url, key=KEY):
    return OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key=key))


def messages(url, key=KEY):
    pytest.importorskip("anthropic", reason="anthropic is not installed")
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key=key))


MODELS = pytest.mark.parametrize("to_model", [chat, responses, messages])


def agent(llm, **fields):
    made = pydantic_ai.Agent(llm, system_prompt="You help.", **fields)

    @made.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city} {say('weather')}"

    return made


@MODELS
def test_chat(server, to_model):  # noqa: F811
    assert agent(to_model(server.url)).run_sync(say("hello")).output == ANSWERS["hello"]


@MODELS
def test_tools(server, to_model):  # noqa: F811
    result = agent(to_model(server.url)).run_sync(say("calls"))
    assert result.output == ANSWERS["weather"] and result.usage.requests == 2


@MODELS
def test_stream(server, to_model):  # noqa: F811
    async def play():
        async with agent(to_model(server.url)).run_stream(say("only calls")) as result:  # it ends at the first text
            return [text async for text in result.stream_text(delta=True)]

    assert "".join(asyncio.run(play())) == ANSWERS["weather"]


@pytest.mark.parametrize("to_model", [chat, responses])  # it knows of no form of Messages for a model that is not Anthropic's
@pytest.mark.parametrize("form", [pydantic_ai.NativeOutput, pydantic_ai.PromptedOutput])
def test_structured_output(grammars, to_model, form):  # noqa: F811
    assert agent(to_model(grammars.url), output_type=form(Person)).run_sync(say("person")).output == Person(name="Ada", age=36)


@MODELS
def test_structured_output_by_a_call(grammars, to_model):  # noqa: F811
    assert agent(to_model(grammars.url), output_type=Person).run_sync(say("person by a call")).output == Person(name="Ada", age=36)


@pytest.mark.parametrize("to_model, url", [(chat, "openai_url"), (responses, "openai_url"), (messages, "anthropic_url")])
def test_training_is_exact(training, to_model, url):  # noqa: F811
    name = f"pydantic-ai-{to_model.__name__}"
    training.open(name)
    assert agent(to_model(getattr(training, url), name)).run_sync(say("calls")).output == ANSWERS["weather"]
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 1)
