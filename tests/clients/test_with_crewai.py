"""CrewAI: its own provider of OpenAI's protocol, with native tool calls and with ReAct in text."""

import os

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

os.environ.update({"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"})
crewai = pytest.importorskip("crewai", reason="crewai is not installed")
import pydantic  # noqa: E402
from crewai.tools import tool  # noqa: E402

REACT = 'Thought: I look.\nAction: get_weather\nAction Input: {"city": "Oslo"}\n'
ANSWERS = {
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
    "react": REACT,
    "react done": "Thought: I now know the final answer\nFinal Answer: It is 4 degrees in Oslo.",
    "person": '{"name": "Ada", "age": 36}',
}
NEXT = {"calls": "weather", "react": "react done"}


class Person(pydantic.BaseModel):
    name: str
    age: int


def run(url, name, key=KEY, has_native_calls=True, **fields):
    @tool("get_weather")
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city} {say(NEXT[name])}"

    llm = crewai.LLM(model=f"openai/{MODEL}", base_url=url + "/v1", api_key=key, max_retries=0)
    if not has_native_calls:
        object.__setattr__(llm, "supports_function_calling", lambda: False)
    tools = [get_weather] if name in NEXT else []
    agent = crewai.Agent(role="helper", goal="help", backstory="You help.", tools=tools, llm=llm, max_iter=4)
    task = crewai.Task(description=say(name), expected_output="one sentence", agent=agent, **fields)
    return crewai.Crew(agents=[agent], tasks=[task]).kickoff()


@pytest.mark.parametrize("name, has_native_calls", [("calls", True), ("react", False)], ids=["calls", "react"])
def test_agent(server, name, has_native_calls):  # noqa: F811
    assert run(server.url, name, has_native_calls=has_native_calls).raw == ANSWERS["weather"]


def test_structured_output(grammars):  # noqa: F811
    assert run(grammars.url, "person", output_pydantic=Person).pydantic == Person(name="Ada", age=36)


@pytest.mark.parametrize("name, has_native_calls", [("calls", True), ("react", False)], ids=["calls", "react"])
def test_training_is_exact(training, name, has_native_calls):  # noqa: F811
    training.open(f"crewai-{name}")
    assert run(training.openai_url, name, f"crewai-{name}", has_native_calls).raw == ANSWERS["weather"]
    assert training.finish(f"crewai-{name}")["turns"] == 2
