"""`slime grammar`: which texts schemas, expressions and grammars accept, on JSON lines."""

import json
import lzma
import subprocess

from conftest import ROOT, SLIME

CASES = ROOT / "tests" / "fixtures" / "grammars" / "cases.jsonl.xz"


def grammar(*lines, arguments=()):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return subprocess.run([str(SLIME), "grammar", *arguments], input=text, capture_output=True, text=True, timeout=300)


def answers(*lines, arguments=()):
    done = grammar(*lines, arguments=arguments)
    assert done.returncode == 0, done.stderr
    return list(map(json.loads, done.stdout.splitlines()))


def source_of(case):
    if "src_repeat" not in case:
        return case["src"]
    before, middle, after, n = case["src_repeat"]
    return before * n + middle + after * n


def is_right(case, answer):
    if case.get("must_be_refused"):
        return not answer["compiled"]
    if not answer["compiled"]:
        name = case.get("may_be_refused_naming")
        return name is not None and name in answer["error"]
    accepted = [result["accepted"] for result in answer["results"]]
    groups = case.get("accept", [])
    for group in groups:
        if not any(accepted[: len(group)]):
            return False
        accepted = accepted[len(group):]
    return not any(accepted)


def test_the_published_cases():
    with lzma.open(CASES, "rt") as lines:
        cases = list(map(json.loads, lines))
    lines = [{"id": case["id"], "kind": case["kind"], "src": source_of(case),
              "texts": [text for group in case.get("accept", []) for text in group] + case.get("reject", [])} for case in cases]
    given = answers(*lines)
    assert [answer["id"] for answer in given] == [case["id"] for case in cases] and len(cases) == 129
    wrong = [case["id"] for case, answer in zip(cases, given) if not is_right(case, answer)]
    assert not wrong


def test_a_line_says_where_a_text_is_refused():
    schema, tag = answers(
        {"kind": "json_schema", "src": {"type": "array", "items": {"type": "integer"}}, "texts": ["[1, 2]", "[1, x]", "[1"]},
        {"kind": "json_object", "texts": ['{"a": 1}', "[]"], "max_whitespace": 0},
    )
    assert schema["results"] == [{"accepted": True, "refused_at": None}, {"accepted": False, "refused_at": 4},
                                 {"accepted": False, "refused_at": 2}]
    assert [result["accepted"] for result in tag["results"]] == [True, False]


def test_tokens_of_a_model_give_the_answer_of_bytes():
    model = ROOT / "tests" / "fixtures" / "tokenizers" / "tiny_qwen"
    first, second = answers(
        {"kind": "json_schema", "src": {"properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]},
         "texts": ['{"name": "Ada"}', '{"name": "Ada Lovelace"}', '{"name": 1}']},
        {"kind": "regex", "src": "[a-z ]+\\.", "texts": ["the cat sat.", "the cat sat", "The cat."]},
        arguments=["--model-path", str(model)],
    )
    for answer, expected in ((first, [True, False, False]), (second, [True, False, False])):
        assert answer["differs"] is False
        assert [result["by_tokens"] for result in answer["results"]] == expected


def test_a_wrong_line_is_refused_and_a_wrong_grammar_is_an_answer():
    done = grammar({"kind": "yaml", "src": "a"})
    assert done.returncode == 2 and "standard input, line 1: kind must be json_schema" in done.stderr
    assert grammar({"kind": "regex"}).returncode == 2
    (answer,) = answers({"kind": "regex", "src": "a(?=b)", "texts": ["a"]})
    assert answer["compiled"] is False and answer["error"] == "regex, position 2: lookahead is not supported"
