"""Inspect: the providers vllm, openai-api and anthropic, its agent, scores by log-probs of choices."""

import os

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought, training  # noqa: F401

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
import pydantic  # noqa: E402
from inspect_ai.agent import react  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402
from inspect_ai.tool import tool  # noqa: E402
from inspect_ai.util import json_schema  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": call("submit", answer="4 degrees"),
    "person": '{"name": "Ada", "age": 36}',
}


class Person(pydantic.BaseModel):
    name: str
    age: int


@tool
def get_weather():
    async def execute(city: str) -> str:
        """The weather of a city.

        Args:
            city: a city
        """
        return f"4 degrees in {city} {say('weather')}"

    return execute


def llm(provider, url, key=KEY):
    os.environ["SLIME_API_KEY"] = key
    name = {"vllm": f"vllm/{MODEL}", "openai-api": f"openai-api/slime/{MODEL}", "anthropic": f"anthropic/{MODEL}"}[provider]
    base = url if provider == "anthropic" else url + "/v1"
    return get_model(name, base_url=base, api_key=key, memoize=False, config=GenerateConfig(max_retries=0, max_tokens=400))


def run(folder, llm, name, target, solver, **fields):
    task = inspect_ai.Task(dataset=[Sample(input=say(name), target=target)], solver=solver, scorer=includes(), **fields)
    log = inspect_ai.eval(task, model=llm, log_dir=str(folder), display="none", message_limit=12)[0]
    assert log.status == "success", log.error
    return log.samples[0]


PROVIDERS = pytest.mark.parametrize("provider", ["vllm", "openai-api", "anthropic"])


@PROVIDERS
def test_chat(server, tmp_path, provider):  # noqa: F811
    sample = run(tmp_path, llm(provider, server.url), "hello", "Good day", generate())
    assert sample.output.completion == ANSWERS["hello"] and sample.scores["includes"].value == "C"


@PROVIDERS
def test_agent_with_tools(server, tmp_path, provider):  # noqa: F811
    sample = run(tmp_path, llm(provider, server.url), "calls", "4 degrees", react(tools=[get_weather()]))
    assert sample.scores["includes"].value == "C" and [m.role for m in sample.messages].count("tool") == 1


@pytest.mark.parametrize("provider", ["vllm", "openai-api"])
def test_structured_output(grammars, tmp_path, provider):  # noqa: F811
    config = GenerateConfig(response_schema=ResponseSchema(name="person", json_schema=json_schema(Person)))
    sample = run(tmp_path, llm(provider, grammars.url), "person", "Ada", generate(), config=config)
    assert Person.model_validate_json(sample.output.completion) == Person(name="Ada", age=36)


@pytest.mark.parametrize("provider", ["openai-api", "anthropic"])
def test_training_is_exact(training, tmp_path, provider):  # noqa: F811
    name = f"inspect-{provider}"
    training.open(name)
    url = training.anthropic_url if provider == "anthropic" else training.openai_url
    sample = run(tmp_path, llm(provider, url, name), "calls", "4 degrees", react(tools=[get_weather()]))
    assert sample.scores["includes"].value == "C"
    figures = training.finish(name)
    assert (figures["turns"], figures["samples"]) == (2, 1)
