"""openai-agents: both of its model classes, tools, hand-offs, structured output."""

import asyncio

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

agents = pytest.importorskip("agents", reason="openai-agents is not installed")
import openai  # noqa: E402
import pydantic  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
    "to the other": call("transfer_to_other"),
    "other": "I am the other one.",
    "person": '{"name": "Ada", "age": 36}',
}
CLASSES = [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel]
agents.set_tracing_disabled(True)


class Person(pydantic.BaseModel):
    name: str
    age: int


@agents.function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} {say('weather')}"


def agent(model_class, url, key=KEY, **fields):
    client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
    return agents.Agent(**{"name": "helper", "instructions": "You help.", **fields}, model=model_class(MODEL, client))


def run(agent, name):
    return asyncio.run(agents.Runner.run(agent, say(name), max_turns=4))


@pytest.mark.parametrize("model_class", CLASSES)
def test_chat(server, model_class):  # noqa: F811
    assert run(agent(model_class, server.url), "hello").final_output == ANSWERS["hello"]


@pytest.mark.parametrize("model_class", CLASSES)
def test_tools(server, model_class):  # noqa: F811
    result = run(agent(model_class, server.url, tools=[get_weather]), "calls")
    assert result.final_output == ANSWERS["weather"] and len(result.raw_responses) == 2


@pytest.mark.parametrize("model_class", CLASSES)
def test_stream(server, model_class):  # noqa: F811
    async def play():
        result = agents.Runner.run_streamed(agent(model_class, server.url, tools=[get_weather]), say("calls"), max_turns=4)
        kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
        return result.final_output, kinds

    output, kinds = asyncio.run(play())
    assert output == ANSWERS["weather"] and "response.output_text.delta" in kinds and "response.function_call_arguments.delta" in kinds


def hand_over(model_class, url, key=KEY):
    # The tool's answer names the agent: so its name is what the model is asked to say next.
    other = agent(model_class, url, key, name=say("other"), instructions="You are the other one.")
    hand_off = agents.handoff(other, tool_name_override="transfer_to_other", tool_description_override="To the other one.")
    result = run(agent(model_class, url, key, handoffs=[hand_off]), "to the other")
    assert (result.final_output, result.last_agent.name) == (ANSWERS["other"], other.name)


@pytest.mark.parametrize("model_class", CLASSES)
def test_hand_off(server, model_class):  # noqa: F811
    hand_over(model_class, server.url)


@pytest.mark.parametrize("model_class", CLASSES)
def test_structured_output(grammars, model_class):  # noqa: F811
    assert run(agent(model_class, grammars.url, output_type=Person), "person").final_output == Person(name="Ada", age=36)


@pytest.mark.parametrize("model_class", CLASSES)
def test_training_is_exact(training, model_class):  # noqa: F811
    name = model_class.__name__
    training.open(name)
    assert run(agent(model_class, training.openai_url, key=name, tools=[get_weather]), "calls").final_output == ANSWERS["weather"]
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 1)


@pytest.mark.parametrize("model_class", CLASSES)
def test_training_of_two_agents_is_exact(training, model_class):  # noqa: F811
    name = "two-" + model_class.__name__
    training.open(name)
    hand_over(model_class, training.openai_url, name)
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 2)  # the other one has other instructions
