"""Flags from what a script has at hand."""

import argparse
from pathlib import Path

import pytest
from slime.loop.flags import flag_words


def test_words_stay_as_they_are_and_keywords_come_last():
    assert flag_words(["train", "--lr", "1e-6"], {"lr": 2e-6}) == ["--lr", "1e-6", "--lr", "2e-06"]
    assert flag_words(["train-async", "--lr", "1"]) == ["--lr", "1", "--train-async"]


def test_a_namespace_gives_what_is_set():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompt-data", nargs="*")
    parser.add_argument("--partial-rollout", action="store_true")
    parser.add_argument("--fp32", action="store_true")
    parser.add_argument("--num-epoch", type=int)
    given = parser.parse_args(["--prompt-data", "a.jsonl", "b.jsonl", "--fp32"])
    assert flag_words(given) == ["--prompt-data", "a.jsonl", "b.jsonl", "--fp32"]


def test_a_text_is_the_model_and_records_are_json():
    words = flag_words("model", {"run_dir": Path("runs/a"), "apply_chat_template_kwargs": {"a": True}, "num_rollout": 3})
    assert words == ["--hf-checkpoint", "model", "--run-dir", "runs/a", "--apply-chat-template-kwargs", '{"a": true}', "--num-rollout", "3"]


def test_what_is_no_value_is_named():
    with pytest.raises(TypeError, match="--custom-rm-path: function is no value of a flag"):
        flag_words(None, {"custom_rm_path": lambda: None})
