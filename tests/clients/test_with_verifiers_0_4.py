"""verifiers 0.4: its client for training, over the token route, and the one for evaluation, over chat completions."""

import asyncio
import importlib.metadata

import pytest
from served import KEY, MODEL, call, model, say, server, thought  # noqa: F401

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
if importlib.metadata.version("verifiers").startswith("0.1."):
    pytest.skip("this is verifiers 0.1", allow_module_level=True)
from verifiers.v1.dialects import AnthropicDialect, ChatDialect, ResponsesDialect  # noqa: E402
from verifiers.v1.types import SamplingConfig  # noqa: E402

ANSWERS = {
    "hello": "Good day, ß 🚀!",
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": PARAMETERS}}]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("SLIME_TEST_KEY", KEY)


def ask(config, body, dialect=None):
    async def play():
        client = vf.resolve_client(config)
        try:
            return await client.get_response(dialect or ChatDialect(), {"model": MODEL, **body}, SamplingConfig(max_tokens=200, temperature=1.0), "session-1")
        finally:
            await client.close()

    return asyncio.run(play())


def test_tokens_and_log_probs(server, model):  # noqa: F811
    config = vf.TrainClientConfig(
        base_url=server.url + "/v1", api_key_var="SLIME_TEST_KEY", renderer={"name": "qwen3"}, renderer_model_name=str(model)
    )
    messages = [{"role": "user", "content": say("calls")}]
    first = ask(config, {"messages": messages, "tools": TOOLS})
    assert [(each.name, each.arguments) for each in first.message.tool_calls] == [("get_weather", '{"city": "Oslo"}')]
    assert first.message.reasoning_content.strip() == "I do not know."
    assert len(first.tokens.completion_ids) == len(first.tokens.completion_logprobs) == first.usage.completion_tokens > 5
    assert all(abs(each) < 1e-6 for each in first.tokens.completion_logprobs)
    message = first.raw["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": say("weather")}
    second = ask(config, {"messages": [*messages, message, result], "tools": TOOLS})
    assert second.message.content == ANSWERS["weather"]


BODIES = [
    (ChatDialect, {"messages": [{"role": "user", "content": say("hello")}], "max_tokens": 200}),
    (ResponsesDialect, {"input": say("hello"), "max_output_tokens": 200}),
    (AnthropicDialect, {"messages": [{"role": "user", "content": say("hello")}], "max_tokens": 200}),
]


@pytest.mark.parametrize("dialect, body", BODIES, ids=lambda value: getattr(value, "__name__", ""))
def test_evaluation(server, dialect, body):  # noqa: F811
    config = vf.EvalClientConfig(base_url=server.url + "/v1", api_key_var="SLIME_TEST_KEY")
    assert ask(config, body, dialect()).message.content == ANSWERS["hello"]
