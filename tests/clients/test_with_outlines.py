"""outlines on a server: as OpenAI's, SGLang's and vLLM's."""

import typing

import pytest
from served import KEY, MODEL, grammars, model, say, server  # noqa: F401

outlines = pytest.importorskip("outlines", reason="outlines is not installed")
import openai  # noqa: E402
import pydantic  # noqa: E402

ANSWERS = {"hello": "Good day, ß 🚀!", "person": '{"name": "Ada", "age": 36}', "refuses": "I would rather not say."}
KINDS = pytest.mark.parametrize("kind", [outlines.from_openai, outlines.from_sglang, outlines.from_vllm])


class Person(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: str
    age: int


def llm(kind, url):
    return kind(openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0), MODEL)


@KINDS
def test_chat(server, kind):  # noqa: F811
    assert llm(kind, server.url)(say("hello")) == ANSWERS["hello"]


@KINDS
def test_stream(server, kind):  # noqa: F811
    assert "".join(llm(kind, server.url).stream(say("hello"))) == ANSWERS["hello"]


@KINDS
def test_structured_output(grammars, kind):  # noqa: F811
    assert Person.model_validate_json(llm(kind, grammars.url)(say("person"), Person)) == Person(name="Ada", age=36)


@pytest.mark.parametrize("kind", [outlines.from_sglang, outlines.from_vllm])
def test_choice(grammars, kind):  # noqa: F811
    assert llm(kind, grammars.url)(say("refuses"), typing.Literal["yes", "no"]) in ("yes", "no")


@pytest.mark.parametrize("kind", [outlines.from_sglang, outlines.from_vllm])
def test_regular_expression(grammars, kind):  # noqa: F811
    assert llm(kind, grammars.url)(say("refuses"), outlines.regex("[ab]{3}")).strip("ab") == ""
