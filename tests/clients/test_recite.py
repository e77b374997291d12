"""The model that recites says what it is told, and refuses texts that it could not keep apart."""

import pytest
from recite import QWEN_MARKS, Script
from served import MODEL, call, model, say, server, thought  # noqa: F401

ANSWERS = {
    "": "Nobody told me.",
    "words": "One two, one two, one two: é ß 🚀 " * 4,
    "letter": "B",
    "call": call("f", x=1),
    "the same call": call("f", x=1),
    "calls": thought("Why?", "Two.\n" + call("f", x=1) + "\n" + call("g") + "\n" + call("f", x=1)),
    "nothing": "",
}
LONG = "x" * 3000


def script():
    return Script(ANSWERS, QWEN_MARKS, "<|im_end|>")


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("rest", ["", LONG], ids=["short", "long"])
def test_an_answer_is_recited_token_by_token(server, name, rest):  # noqa: F811
    text = f"<|im_start|>user\n{rest}{say(name) if name else ''} {rest}<|im_end|>\n<|im_start|>assistant\n"
    expected = script().answers[name]
    status, answer = server.post("/generate", {"text": text, "return_logprob": True, "sampling_params": {"max_new_tokens": 400, "temperature": 1.0}})
    assert status == 200, answer
    assert answer["output_ids"] == expected
    assert max(abs(entry[0]) for entry in answer["meta_info"]["output_token_logprobs"]) < 1e-6


def test_the_last_name_counts_wherever_it_stands(server):  # noqa: F811
    messages = [{"role": "system", "content": say("letter")}, {"role": "user", "content": f"{say('words')} {say('')}"}]
    answer = server.post("/v1/chat/completions", {"model": MODEL, "messages": messages})[1]
    assert answer["choices"][0]["message"]["content"] == "B"


def test_answers_are_cut_into_tokens_of_their_own():
    made = script()
    pieces = [token for tokens in made.answers.values() for token in tokens if made.vocabulary.is_piece(token)]
    assert len(pieces) == len(set(pieces))
    assert {made.vocabulary.ids["<tool_call>"], made.vocabulary.ids["</tool_call>"]} <= set(made.answers["calls"])


REFUSED = [{"a": "<think>" * 8}, {"a": "<think></think><tool_call></tool_call>"}, {"a": "\n\n\n", "b": "yx<think></think>\n\n\n<think>z"}]


@pytest.mark.parametrize("answers", REFUSED)
def test_what_cannot_be_told_apart_is_refused(answers):
    with pytest.raises(ValueError, match=f"answer '{list(answers)[-1]}'"):
        Script(answers, QWEN_MARKS, "<|im_end|>")
