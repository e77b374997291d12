"""Tools through templates of other families than Qwen3's: Llama 3.1's JSON, Mistral's list, DeepSeek V3's marks. The server chooses the parser by
the template; the client is plain HTTP, and sends the server's own message back. The templates are small ones in the published ones' manner."""

import json
import tempfile

import pytest
from recite import write_model
from served import MODEL, Server, say

CITY = {"city": "Oslo"}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
LLAMA = """{{- '<|begin_of_text|>' }}{%- for tool in tools or [] %}{{- tool | tojson }} Answer in the form {"name": function name, "parameters": dictionary of argument name and its value}.{%- endfor %}
{%- for m in messages %}{{- '<|start_header_id|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\\n\\n' }}
{%- if m.tool_calls %}{%- if m.tool_calls | length != 1 %}{{- raise_exception('one call at once') }}{%- endif %}{%- set f = m.tool_calls[0].function %}
{{- '{"name": "' + f.name + '", "parameters": ' + (f.arguments | tojson) + '}' }}{%- else %}{{- m.content }}{%- endif %}{{- '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
MISTRAL = """{{- '<s>' }}{%- for m in messages %}{%- if m.role == 'user' %}{%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
{%- endif %}{{- '[INST]' + m.content + '[/INST]' }}{%- elif m.role == 'tool' %}{%- if m.tool_call_id | length != 9 %}{{- raise_exception('nine characters') }}{%- endif %}
{{- '[TOOL_RESULTS]' + ({'content': m.content, 'call_id': m.tool_call_id} | tojson) + '[/TOOL_RESULTS]' }}{%- elif m.tool_calls %}{{- '[TOOL_CALLS][' }}
{%- for c in m.tool_calls %}{%- if c.id | length != 9 %}{{- raise_exception('nine characters') }}{%- endif %}{{- '{"name": "' + c.function.name + '", "arguments": ' }}
{{- (c.function.arguments if c.function.arguments is string else c.function.arguments | tojson) + ', "id": "' + c.id + '"}' }}{{- ', ' if not loop.last }}{%- endfor %}
{{- ']</s>' }}{%- else %}{{- m.content + '</s>' }}{%- endif %}{%- endfor %}"""
DEEPSEEK = """{{- '<｜begin▁of▁sentence｜>' }}{%- for m in messages %}{%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}{%- elif m.role == 'tool' %}
{{- '<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜><｜tool▁outputs▁end｜>' }}{%- elif m.role == 'assistant' %}
{{- '<｜Assistant｜>' }}{%- if m.tool_calls %}{{- '<｜tool▁calls▁begin｜>' }}{%- for c in m.tool_calls %}{{- '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' }}
{{- c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{%- endfor %}{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
{%- else %}{{- m.content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %}"""

# name: template, marks (the first one pads), the one that ends an answer, the call as the model writes it
FAMILIES = {
    "llama3": (LLAMA, ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|eot_id|>",
               '{"name": "get_weather", "parameters": {"city": "Oslo"}}'),
    "mistral": (MISTRAL, ["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"], "</s>",
                '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]'),
    "deepseek_v3": (DEEPSEEK, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                               "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>",
                               "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"], "<｜end▁of▁sentence｜>",
                    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Oslo"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    template, marks, end, call = FAMILIES[request.param]
    answers = {"": "Nobody told me.", "calls": call, "weather": "It is 4 degrees in Oslo.", "words": "Good day, é 🚀!"}
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, answers, template=template, marks=[(mark, True) for mark in marks], end=end)
        with Server(folder, "--served-model-name", MODEL, "--kv-cache-gib", "0.5", env={"OMP_NUM_THREADS": "1"}) as server:
            yield server


def ask(server, messages, path="", **fields):
    status, answer = server.post(path + "/v1/chat/completions", {"model": MODEL, "messages": messages, "tools": TOOLS, "max_tokens": 200, **fields})
    assert status == 200, answer
    return answer["choices"][0]


def streamed(server, messages):
    message = {"content": "", "arguments": "", "names": [], "finish": None}
    for frame in server.frames("/v1/chat/completions", {"model": MODEL, "messages": messages, "tools": TOOLS, "max_tokens": 200, "stream": True}):
        choice = frame["choices"][0]
        message["content"] += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls") or []:
            message["arguments"] += call["function"].get("arguments") or ""
            message["names"] += [call["function"]["name"]] if call["function"].get("name") else []
        message["finish"] = choice["finish_reason"] or message["finish"]
    return message


def user(name):
    return {"role": "user", "content": say(name)}


def test_words_come_whole_and_without_marks(family):
    choice = ask(family, [user("words")])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Good day, é 🚀!", "stop")
    assert streamed(family, [user("words")])["content"] == "Good day, é 🚀!"


def test_a_call_goes_through_two_turns_of_a_session_as_one_sample(family):
    name = "s-1"
    assert family.post("/sessions", {"name": name})[0] == 200
    first = ask(family, [user("calls")], path="/sessions/" + name)
    assert first["finish_reason"] == "tool_calls" and not first["message"]["content"]
    (call,) = first["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather" and json.loads(call["function"]["arguments"]) == CITY
    result = {"role": "tool", "tool_call_id": call["id"], "content": say("weather")}
    second = ask(family, [user("calls"), first["message"], result], path="/sessions/" + name)
    assert second["message"]["content"] == "It is 4 degrees in Oslo."
    status, session = family.request("DELETE", "/sessions/" + name)
    assert status == 200
    one, two = session["turns"]
    assert (one["parent"], two["parent"]) == (None, one["id"])
    assert two["num_prompt_tokens"] == len(one["context_ids"]) + len(one["output_ids"]) + len(two["context_ids"])


def test_the_deltas_of_a_call_are_the_call(family):
    message = streamed(family, [user("calls")])
    assert message["names"] == ["get_weather"] and json.loads(message["arguments"]) == CITY
    assert (message["content"], message["finish"]) == ("", "tool_calls")


def test_a_forced_call_has_the_familys_form_and_the_tools_schema(family):
    forced = ask(family, [user("words")], tool_choice="required")
    assert forced["message"]["tool_calls"], forced
    (call,) = forced["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather" and set(json.loads(call["function"]["arguments"])) == {"city"}
