"""Constrained decoding over the routes of `slime serve`, with an untrained model: whatever it draws keeps the grammar.

    python -m pytest tests/http/test_constrained.py
"""

import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from server_process import ROOT, Server

SCRATCH = tempfile.TemporaryDirectory()
ASK = [{"role": "user", "content": "hi"}]
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"enum": [1, 2]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOW = {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": NOW}]
# White space is the model's choice, and this one would choose much of it.
SCHEMA = {"enum": [{"a": [1, 2]}, {"b": None}]}


def make_model(name, chat_template=None):
    folder = Path(SCRATCH.name) / name
    template = []
    if chat_template:
        path = Path(SCRATCH.name) / f"{name}.jinja"
        path.write_text(chat_template)
        template = ["--chat-template", str(path)]
    subprocess.run([sys.executable, ROOT / "tools/tiny_model.py", folder, *template], check=True)
    return str(folder)


def setUpModule():
    global SERVER
    SERVER = Server(make_model("model"), "--served-model-name", "m", "--tool-call-parser", "qwen25")


def tearDownModule():
    SERVER.stop()
    SCRATCH.cleanup()


class Test(unittest.TestCase):
    def post(self, path, body, status=200, server=None):
        got, answer = (server or SERVER).request("POST", path, body)
        self.assertEqual(got, status, answer)
        return answer

    def chat(self, **fields):
        return self.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 300, **fields})["choices"][0]

    def refused(self, **fields):
        body = {"messages": ASK, "max_tokens": 300, **fields}
        return self.post("/v1/chat/completions", body, 400)["error"]["message"]


class Forms(Test):
    def test_each_sampling_parameter_of_generate_binds_the_text(self):
        cases = [
            ({"regex": "(cat|dog)s? [0-9]{3}"}, r"(cat|dog)s? [0-9]{3}"),
            ({"ebnf": 'root ::= ("ab" | "cd") "-" [0-9]{2}'}, r"(ab|cd)-[0-9]{2}"),
            ({"json_schema": json.dumps({"enum": ["x", "y"]})}, r'"[xy]"'),
            ({"json_schema": {"enum": ["x", "y"]}}, r'"[xy]"'),
            (
                {
                    "structural_tag": {
                        "type": "structural_tag",
                        "format": {"type": "tag", "begin": "<f>", "content": {"type": "regex", "pattern": "[ab]"}, "end": "</f>"},
                    }
                },
                r"<f>[ab]</f>",
            ),
        ]
        for params, pattern in cases:
            body = {"text": "a", "sampling_params": {"max_new_tokens": 60, **params}}
            answer = self.post("/generate", body)
            self.assertRegex(answer["text"], f"^(?:{pattern})$")
            meta = answer["meta_info"]
            self.assertEqual(meta["finish_reason"]["type"], "stop")
            self.assertTrue(meta["constrained"])
            self.assertEqual(meta["num_constrained_tokens"], meta["completion_tokens"])

    def test_a_batch_has_a_grammar_for_each_prompt_and_none_for_others(self):
        params = [{"max_new_tokens": 9, "regex": "yes|no"}, {"max_new_tokens": 9}, {"max_new_tokens": 9, "regex": "a{3}"}]
        answers = self.post("/generate", {"text": ["a", "b", "c"], "sampling_params": params})
        self.assertIn(answers[0]["text"], ("yes", "no"))
        self.assertNotIn("constrained", answers[1]["meta_info"])
        self.assertEqual(answers[2]["text"], "aaa")

    def test_every_protocol_takes_its_own_form_and_ebnf(self):
        ebnf = {"ebnf": 'root ::= "a \\"b\\"\\n" [cd]'}
        schema_format = {"type": "json_schema", "name": "n", "schema": SCHEMA}

        def completion(fields):
            return self.post("/v1/completions", {"prompt": "x", "max_tokens": 90, **fields})["choices"][0]["text"]

        def responses(fields):
            body = {"model": "m", "input": "x", "max_output_tokens": 90, **fields}
            return self.post("/v1/responses", body)["output"][-1]["content"][0]["text"]

        def messages(fields):
            body = {"model": "m", "max_tokens": 90, "messages": ASK, **fields}
            return self.post("/v1/messages", body)["content"][-1]["text"]

        def chat(fields):
            return self.chat(**fields)["message"]["content"]

        chat_format = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}
        forms = [
            (chat, chat_format),
            (chat, {"structured_outputs": {"json": SCHEMA}}),
            (chat, {"guided_json": SCHEMA}),
            (completion, chat_format),
            (responses, {"text": {"format": schema_format}}),
            (messages, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        ]
        for ask, fields in forms:
            self.assertIn(json.loads(ask(fields)), SCHEMA["enum"], fields)
        for ask in (chat, completion, responses, messages):
            self.assertRegex(ask(ebnf), '^a "b"\n[cd]$')
        tokens = self.post("/inference/v1/generate", {"token_ids": [65], "sampling_params": {"structured_outputs": {"choice": ["a", "bb"]}}})
        choice = tokens["choices"][0]
        self.assertIn(bytes(choice["token_ids"][:-1]), (b"a", b"bb"))  # a byte's id is the byte; the last one ends
        self.assertEqual(choice["num_constrained_tokens"], len(choice["token_ids"]))

    def test_streams_and_several_choices_are_bound_alike(self):
        answer = self.post("/v1/chat/completions", {"messages": ASK, "n": 3, "max_tokens": 9, "regex": "yes|no"})
        self.assertLessEqual({choice["message"]["content"] for choice in answer["choices"]}, {"yes", "no"})

    def test_log_probs_are_of_the_bound_distribution_and_on_request_of_the_free_one(self):
        body = {
            "text": "a",
            "return_logprob": True,
            "return_free_logprobs": True,
            "sampling_params": {"max_new_tokens": 9, "regex": "yes|no"},
        }
        meta = self.post("/generate", body)["meta_info"]
        bound, free = meta["output_token_logprobs"], meta["output_token_free_logprobs"]
        self.assertEqual([token[1] for token in bound], [token[1] for token in free])
        # The first token is one of two, the others are certain: but not to the model.
        self.assertGreater(bound[0][0], math.log(0.2))
        self.assertTrue(all(abs(token[0]) < 1e-6 for token in bound[1:]))
        self.assertTrue(all(token[0] < -3 for token in free))

    def test_what_is_wrong_is_named(self):
        as_format = lambda schema: {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        cases = [
            ({"response_format": as_format({"type": "strng"})}, "response_format.json_schema.schema"),
            ({"response_format": as_format({"type": "string", "not": {"const": "x"}})}, "not"),
            ({"response_format": as_format({"$ref": "https://example.org/x.json"})}, "response_format"),
            ({"regex": "(ab"}, "regex"),
            ({"ebnf": "root ::= foo"}, "ebnf"),
            ({"regex": "a", "ebnf": 'root ::= "a"'}, "regex, ebnf are 2 grammars"),
            ({"structural_tag": "{"}, "structural_tag"),
            ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}], "tool_choice": "required"}, "tools"),
        ]
        for fields, words in cases:
            self.assertIn(words, self.refused(**fields))
        answer = self.post("/v1/messages", {"model": "m", "max_tokens": 9, "messages": ASK, "regex": "("}, 400)
        self.assertEqual(answer["error"]["type"], "invalid_request_error")
        answer = self.post("/generate", {"text": "a", "sampling_params": {"regex": "("}}, 400)
        self.assertIn("regex", json.dumps(answer))
        deep = {}
        for _ in range(80):
            deep = {"type": "array", "items": deep}
        self.assertIn("deep", self.refused(response_format=as_format(deep)))
        self.assertEqual(self.chat(regex="fine")["message"]["content"], "fine")


class Calls(Test):
    def forced(self, **fields):
        for seed in range(5):
            choice = self.chat(tools=TOOLS, seed=seed, **fields)
            if choice["finish_reason"] != "length":
                self.assertEqual(choice["finish_reason"], "tool_calls")
                self.assertIsNone(choice["message"]["content"])
                return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"]["tool_calls"]]
        self.fail("five answers were cut off by length")

    def test_a_required_call_has_the_tools_schema(self):
        for name, arguments in self.forced(tool_choice="required"):
            self.assertIn(name, ("get_weather", "now"))
            self.assertTrue(arguments == {} if name == "now" else arguments["city"] in ("Oslo", "Rome"))

    def test_a_named_tool_is_called(self):
        choice = {"type": "function", "function": {"name": "now"}}
        self.assertEqual(self.forced(tool_choice=choice, parallel_tool_calls=False), [("now", {})])

    def test_messages_and_responses_force_calls_too(self):
        tool = {"name": "now", "input_schema": NOW["parameters"]}
        answer = self.post(
            "/v1/messages",
            {"model": "m", "max_tokens": 200, "messages": ASK, "tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        )
        self.assertEqual([(block["name"], block["input"]) for block in answer["content"]], [("now", {})])
        tool = {"type": "function", **NOW}
        answer = self.post(
            "/v1/responses",
            {"model": "m", "input": "x", "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 200},
        )
        self.assertEqual([(item["type"], item["name"]) for item in answer["output"]], [("function_call", "now")])

    def test_a_format_beside_tools_is_calls_or_the_answer(self):
        seen = set()
        for seed in range(12):
            choice = self.chat(tools=TOOLS, seed=seed, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [7]}}})
            if choice["finish_reason"] == "stop":
                self.assertEqual(choice["message"]["content"], "7")
            seen.add(choice["finish_reason"])
        self.assertIn("stop", seen)
        self.assertTrue(seen & {"tool_calls", "length"})

    def test_a_strict_tool_binds_whatever_call_comes(self):
        strict = [{"type": "function", "function": {**WEATHER, "strict": True}}]
        meta = self.chat(tools=strict, max_tokens=20, ignore_eos=True, return_meta_info=True)["meta_info"]
        self.assertGreater(meta["completion_tokens"], 0)  # fewer than 20 where a call is complete
        self.assertEqual(meta["num_constrained_tokens"], meta["completion_tokens"])
        self.assertNotIn("constrained", self.chat(tools=TOOLS, max_tokens=20, return_meta_info=True)["meta_info"])
        with_grammar = self.chat(tools=strict, ebnf='root ::= "a client\'s own wins"')
        self.assertEqual(with_grammar["message"]["content"], "a client's own wins")


class Servers(Test):
    def test_thoughts_that_the_prompt_opens_are_free(self):
        template = (
            "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
            "{{- '<|im_start|>assistant\\n<think>\\n' }}"
        )
        with Server(make_model("thinks", template), "--reasoning-parser", "qwen3") as server:
            body = {"messages": ASK, "max_tokens": 40, "regex": "yes|no", "seed": 1, "return_meta_info": True}
            choice = self.post("/v1/chat/completions", body, server=server)["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")  # it thinks on
            self.assertIsNone(choice["message"]["content"])
            self.assertEqual(choice["meta_info"]["num_constrained_tokens"], 40)  # it may not end in there

    def test_white_space_and_the_whole_can_be_switched_off(self):
        with Server(make_model("small"), "--constrained-json-disable-any-whitespace") as server:
            body = {"text": "a", "sampling_params": {"max_new_tokens": 90, "json_schema": {"enum": [{"a": [1, 2]}]}}}
            self.assertEqual(self.post("/generate", body, server=server)["text"], '{"a":[1,2]}')
        with Server(make_model("none"), "--grammar-backend", "none") as server:
            body = {"text": "a", "sampling_params": {"max_new_tokens": 9, "regex": "a"}}
            self.assertIn("regex", json.dumps(self.post("/generate", body, 400, server=server)))

    def test_the_examples_of_the_documentation_run(self):
        text = (ROOT / "docs/server.md").read_text()
        section = text[text.index("## How do I get JSON") :]
        section = section[: section.index("\n## ", 3)]
        examples = re.findall(r"curl http://127.0.0.1:30000(\S+) -H 'Content-Type: application/json' -d '(.*?)'\n```", section, re.S)
        self.assertEqual(len(examples), 4)
        texts = []
        for path, body in examples:
            answer = self.post(path, json.loads(body))
            choice = answer if "text" in answer else answer["choices"][0]
            texts.append(choice["message"]["content"] if "message" in choice else choice["text"])
        self.assertIsInstance(json.loads(texts[0])["sure"], bool)
        self.assertRegex(texts[1], r"^\d{4}-\d{2}-\d{2}$")
        self.assertIn(texts[2], ("red", "green"))
        self.assertTrue(texts[3])  # what it leaves out: test_token_lists.py


if __name__ == "__main__":
    unittest.main()
