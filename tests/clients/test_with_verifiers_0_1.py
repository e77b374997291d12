"""verifiers 0.1: environments over chat completions, Responses, Messages, and the token route (its renderer)."""

import importlib.metadata

import pytest
from served import KEY, MODEL, call, model, say, server, thought  # noqa: F401

vf = pytest.importorskip("verifiers", reason="verifiers is not installed")
if not importlib.metadata.version("verifiers").startswith("0.1."):
    pytest.skip("this is not verifiers 0.1", allow_module_level=True)
datasets = pytest.importorskip("datasets", reason="datasets is not installed")

ANSWERS = {
    "hello": "Good day!",
    "thinks": thought("Who is it?", "Good day!"),
    "calls": thought("I do not know.", "I look.\n" + call("get_weather", city="Oslo")),
    "weather": "It is 4 degrees in Oslo.",
}
CLIENTS = ["openai_chat_completions", "openai_responses", "anthropic_messages", "renderer"]


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city} {say('weather')}"


async def says_it(completion, answer) -> float:
    return float(completion[-1]["content"].endswith(answer))


def rows(name, answer):
    return datasets.Dataset.from_list([{"question": say(name), "answer": answer}])


def run(environment, url, model_dir, kind):
    base = url if kind == "anthropic_messages" else url + "/v1"
    fields = {"renderer": "qwen3", "renderer_model_name": str(model_dir)} if kind == "renderer" else {}
    config = vf.ClientConfig(client_type=kind, api_base_url=base, api_key_var="SLIME_TEST_KEY", max_retries=0, **fields)
    return environment.evaluate_sync(config, MODEL, {"max_tokens": 200}, rollouts_per_example=2, state_columns=["trajectory"])["outputs"]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("SLIME_TEST_KEY", KEY)


@pytest.mark.parametrize("kind", CLIENTS)
def test_single_turn(server, model, kind):  # noqa: F811
    outputs = run(vf.SingleTurnEnv(dataset=rows("thinks", "Good day!"), rubric=vf.Rubric(funcs=[says_it])), server.url, model, kind)
    assert [output["reward"] for output in outputs] == [1.0, 1.0]


@pytest.mark.parametrize("kind", CLIENTS)
def test_tools(server, model, kind):  # noqa: F811
    environment = vf.ToolEnv(dataset=rows("calls", ANSWERS["weather"]), tools=[get_weather], rubric=vf.Rubric(funcs=[says_it]), max_turns=3)
    outputs = run(environment, server.url, model, kind)
    assert [output["reward"] for output in outputs] == [1.0, 1.0]
    assert [len(output["trajectory"]) for output in outputs] == [2, 2]
    if kind == "renderer":
        for output in outputs:
            first, second = (step["tokens"] for step in output["trajectory"])
            assert len(first["completion_ids"]) == len(first["completion_logprobs"]) > 3
            sampled = [*first["prompt_ids"], *first["completion_ids"]]
            assert second["prompt_ids"][: len(sampled)] == sampled
