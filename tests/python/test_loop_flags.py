"""Flags from what a script has at hand, and the reward of a script in either form."""

import argparse
from pathlib import Path

import pytest
from slime.loop.calls import Sample
from slime.loop.flags import flag_words
from slime.loop.reward_socket import as_group_reward


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


SAMPLES = [Sample(prompt="p", response="abc", label="1", metadata={"level": 2}, tokens=[1, 2, 3], response_length=2) for _ in range(2)]


@pytest.mark.parametrize(
    "reward",
    [
        lambda sample: len(sample.response),
        lambda prompts, completions: [len(each) for each in completions],
        lambda completions, **columns: [len(each) for each in completions] if columns["level"] == [2, 2] else [],
        lambda completion_ids, completions: [len(each) + 1 for each in completion_ids],
    ],
)
def test_a_reward_is_told_apart_by_its_parameters(reward):
    assert as_group_reward(reward)(SAMPLES) == [3.0, 3.0]


def test_an_async_reward_is_waited_for():
    async def reward(sample):
        return 0.5

    assert as_group_reward(reward)(SAMPLES) == [0.5, 0.5]


def test_numbers_of_another_count_are_refused():
    with pytest.raises(ValueError, match="gave 1 numbers for 2 completions"):
        as_group_reward(lambda completions: [1.0])(SAMPLES)
