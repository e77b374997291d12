"""instructor: each of its modes for servers of OpenAI's protocol, and a retry after what did not validate."""

import pytest
from served import KEY, MODEL, call, grammars, model, say, server, thought  # noqa: F401

instructor = pytest.importorskip("instructor", reason="instructor is not installed")
import openai  # noqa: E402
import pydantic  # noqa: E402

PERSON = '{"name": "Ada", "age": 36}'
ANSWERS = {
    "fenced": thought("Who?", f"Here it is.\n```json\n{PERSON}\n```"),
    "json": PERSON,
    "calls": call("Person", name="Ada", age=36),
    "child": call("Person", name="Ada", age=3),
    "grown up": call("Person", name="Ada", age=36),
}


ADA = {"name": "Ada", "age": 36}


class Person(pydantic.BaseModel):
    name: str
    age: int

    @pydantic.field_validator("age")
    @classmethod
    def is_grown_up(cls, age):
        if age < 18:
            raise ValueError(f"too young {say('grown up')}")
        return age


def ask(url, mode, name, **fields):
    client = instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0), mode=mode)
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": say(name)}], response_model=Person, **fields).model_dump()


def test_json_in_a_text(server):  # noqa: F811
    assert ask(server.url, instructor.Mode.MD_JSON, "fenced") == ADA


@pytest.mark.parametrize(
    "mode, name",
    [("JSON", "json"), ("JSON_SCHEMA", "json"), ("TOOLS", "calls"), ("TOOLS_STRICT", "calls")],
)
def test_structured_output(grammars, mode, name):  # noqa: F811
    assert ask(grammars.url, instructor.Mode[mode], name) == ADA


def test_retry(grammars):  # noqa: F811
    assert ask(grammars.url, instructor.Mode.TOOLS, "child", max_retries=1) == ADA
