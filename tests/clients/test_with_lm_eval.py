"""lm-evaluation-harness: answers over chat completions, choices by the log-probs of a prompt over completions."""

import json

import pytest
from served import KEY, MODEL, model, say, server  # noqa: F401

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed")
pytest.importorskip("transformers", reason="lm-eval's tokenizers need transformers, which is not installed")

# A letter alone is a byte, and so the token that lm-eval asks about.
ANSWERS = {"42": "The answer is 42.", **{letter: letter for letter in "ABCD"}}


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    file = tmp_path / "rows.json"
    lines = [{"question": say(letter), "right": "ABCD".index(letter), "text": say("42")} for letter in "ABCDAB"]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test"}


def evaluate(kind, url, task, **fields):
    arguments = {"model": MODEL, "base_url": url, "num_concurrent": 2, "max_retries": 1, **fields.pop("model_args")}
    results = lm_eval.simple_evaluate(model=kind, model_args=arguments, tasks=[task], bootstrap_iters=0, log_samples=False, **fields)
    return results["results"][task["task"]]


def test_generation_over_chat(server, rows):  # noqa: F811
    task = {**rows, "task": "says", "doc_to_text": "{{text}}", "doc_to_target": "The answer is 42.", "output_type": "generate_until"}
    task |= {"generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 50}, "metric_list": [{"metric": "exact_match"}]}
    found = evaluate("local-chat-completions", server.url + "/v1/chat/completions", task, apply_chat_template=True, model_args={})
    assert found["exact_match,none"] == 1.0


def test_choices_by_log_probs(server, model, rows):  # noqa: F811
    task = {**rows, "task": "chooses", "doc_to_text": "{{question}}\nAnswer:", "doc_to_target": "right", "doc_to_choice": list("ABCD")}
    task |= {"target_delimiter": "", "output_type": "multiple_choice", "metric_list": [{"metric": "acc"}]}
    found = evaluate("local-completions", server.url + "/v1/completions", task, model_args={"tokenizer_backend": "huggingface", "tokenizer": str(model)})
    assert found["acc,none"] == 1.0
