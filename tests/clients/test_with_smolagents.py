"""smolagents: an agent that writes code, and one that calls tools."""

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

smolagents = pytest.importorskip("smolagents", reason="smolagents is not installed")

CODE = "Thought: I look.\n<code>\nprint(get_weather(city='Oslo'))\n</code>"
DONE = "Thought: I know.\n<code>\nfinal_answer('It is 4 degrees.')\n</code>"
ANSWERS = {
    "code": thought("Code it is.", CODE),
    "code done": DONE,
    "calls": call("get_weather", city="Oslo"),
    "call done": call("final_answer", answer="It is 4 degrees."),
}
NEXT = {"code": "code done", "calls": "call done"}


def weather_tool(name):
    @smolagents.tool
    def get_weather(city: str) -> str:
        """The weather.

        Args:
            city: a city
        """
        return f"4 degrees in {city} {say(NEXT[name])}"

    return get_weather


def llm(url, key=KEY):
    return smolagents.OpenAIModel(model_id=MODEL, api_base=url + "/v1", api_key=key, client_kwargs={"max_retries": 0})


def run(kind, url, name, key=KEY, **fields):
    return kind(tools=[weather_tool(name)], model=llm(url, key), max_steps=3, verbosity_level=0, **fields).run(say(name))


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_agent_that_writes_code(server, is_streamed):  # noqa: F811
    assert run(smolagents.CodeAgent, server.url, "code", stream_outputs=is_streamed) == "It is 4 degrees."


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_agent_that_calls_tools(grammars, is_streamed):  # noqa: F811
    """Each of its requests has tool_choice "required"."""
    assert run(smolagents.ToolCallingAgent, grammars.url, "calls", stream_outputs=is_streamed) == "It is 4 degrees."


def test_training_is_exact(training):  # noqa: F811
    training.open("smolagents")
    assert run(smolagents.CodeAgent, training.openai_url, "code", "smolagents") == "It is 4 degrees."
    figures = training.finish("smolagents")
    # It sends its own words for what the model said: two samples.
    assert (figures["turns"], figures["samples"]) == (2, 2)
