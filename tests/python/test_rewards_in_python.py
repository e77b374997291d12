"""Rewards of a script: forms told apart by their parameters, errors with the sample; advantages of a group."""

import asyncio
import json
import math

import pytest
import slime
from slime.loop.calls import Sample
from slime.loop.groups import read_rows
from slime.loop.passes import data_of
from slime.loop.rewards import as_group_reward


def sample_of(response="abc", **fields):
    return Sample({"prompt": "p", "response": response, "label": "1", "metadata": {"level": 2}, "tokens": [1, 2, 3], "response_length": 2, **fields})


SAMPLES = [sample_of(), sample_of()]


async def awaited_pair(response, label):
    await asyncio.sleep(0)
    return len(response)


async def awaited_lists(completions, **columns):
    return [len(each) for each in completions]


@pytest.mark.parametrize(
    "reward",
    [
        lambda sample: len(sample.response),
        lambda s: len(s["response"]),
        lambda response, label: len(response) if label == "1" else 0,
        lambda response: len(response),
        lambda args, sample: len(sample.response) if args == "args" else 0,
        lambda args, sample, **kwargs: len(sample.response),
        lambda args, samples: [len(each.response) for each in samples],
        lambda prompts, completions: [len(each) for each in completions],
        lambda completions, **columns: [len(each) for each in completions] if columns["level"] == [2, 2] else [],
        lambda completions, level, missing, other=7: [3 * (level == [2, 2] and missing == [None, None] and other == 7)] * 2,
        lambda completion_ids, completions: [len(each) + 1 for each in completion_ids],
        [lambda sample: 1, lambda response, label: 2],
        awaited_pair,
        awaited_lists,
    ],
)
def test_a_reward_is_told_apart_by_its_parameters(reward):
    assert as_group_reward(reward, "args")(SAMPLES) == [3.0, 3.0]


def test_completions_of_conversations_are_messages():
    messages = [{"role": "user", "content": "p"}]
    seen = []
    as_group_reward(lambda completions, prompts: seen.append((prompts, completions)) or [0])([sample_of(prompt=messages)])
    assert seen == [([messages], [[{"role": "assistant", "content": "abc"}]])]


def test_an_async_reward_is_waited_for_while_an_event_loop_runs():
    async def reward(sample):
        await asyncio.sleep(0)
        return 0.5

    async def notebook():
        return as_group_reward(reward)(SAMPLES)  # as a cell calls it

    assert asyncio.run(notebook()) == [0.5, 0.5]


def test_samples_of_an_async_reward_are_scored_together():
    async def reward(sample):
        waiting.append(sample)
        while len(waiting) < 2:
            await asyncio.sleep(0)
        return 1

    waiting = []
    assert as_group_reward(reward)(SAMPLES) == [1.0, 1.0]


def test_a_function_of_no_form_is_refused_with_the_forms():
    with pytest.raises(TypeError, match=r"reward function mine\(a, b\).*reward\(prompts, completions"):

        def mine(a, b):
            return 0

        as_group_reward(mine)
    with pytest.raises(TypeError, match="a function is needed"):
        as_group_reward(3)


@pytest.mark.parametrize("value", [None, "high", math.nan, math.inf])
def test_what_is_no_finite_number_is_refused_with_the_response(value):
    with pytest.raises(slime.RewardError, match="no finite number, for the response 'abc'"):
        as_group_reward(lambda sample: value)(SAMPLES)


def test_numbers_of_another_count_are_refused():
    with pytest.raises(ValueError, match="gave 1 numbers for 2 completions"):
        as_group_reward(lambda completions: [1.0])(SAMPLES)


def test_an_error_has_the_sample_and_the_line_of_the_function():
    async def reward(response, label):
        raise KeyError(response)  # here

    with pytest.raises(slime.RewardError) as error:
        as_group_reward(reward)([sample_of("x")])
    line = reward.__code__.co_firstlineno + 1
    assert f"test_rewards_in_python.py:{line}" in str(error.value) and "raise KeyError(response)  # here" in str(error.value)
    assert "response 'x'" in str(error.value) and "site-packages" not in str(error.value)
    assert error.value.sample.response == "x" and isinstance(error.value.__cause__, KeyError)


def test_advantages_of_a_group():
    assert slime.advantages_of([1.0, 0.0, 0.0, 0.0], "mean") == [0.75, -0.25, -0.25, -0.25]
    assert slime.advantages_of([1.0, 0.0], "rloo") == [1.0, -1.0]
    assert slime.advantages_of([2.0, 2.0]) == [0.0, 0.0]
    assert slime.advantages_of([1.0, 0.0])[0] == 0.5 / (math.sqrt(0.5) + 1e-6)
    with pytest.raises(ValueError, match="there are 'grpo'"):
        slime.advantages_of([1.0], "gae")


def test_rows_have_metadata_of_their_other_fields(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "1+1=", "label": 2, "level": 3, "metadata": {"x": 1}}\n\n')
    row = {"prompt": "1+1=", "label": 2, "metadata": {"x": 1, "level": 3}}
    assert read_rows(tmp_path / "a.jsonl") == [row] == read_rows([row])
    with pytest.raises(ValueError, match='no "prompt"; it has text'):
        read_rows([{"text": 1}])


def test_rows_of_a_file_end_at_line_feeds_alone(tmp_path):
    texts = ["a\u2028b", "c\u0085d", "e\x1ef"]
    lines = (json.dumps({"prompt": text}, ensure_ascii=False) for text in texts)
    (tmp_path / "a.jsonl").write_bytes("\r\n".join(lines).encode())
    assert [row["prompt"] for row in read_rows(tmp_path / "a.jsonl")] == texts


def test_the_data_of_a_pass():
    sample = sample_of(advantage=2.0, log_probs=[-1.0, -2.0], loss_mask=[0, 1], tokens=[5, 6, 7])
    [datum], divisor = data_of([sample], "policy", "mean")
    inputs = {name: each["data"] for name, each in datum["loss_fn_inputs"].items()}
    assert datum["model_input"]["chunks"][0]["tokens"] == [5, 6] and datum["num_scored"] == 2 and divisor == 1
    assert inputs == {"target_tokens": [6, 7], "logprobs": [-1, -2], "advantages": [2, 2], "weights": [0, 1], "mask": [0, 1]}
    with pytest.raises(ValueError, match="sample 0: advantage has 3 numbers for 2 response tokens"):
        data_of([sample_of(advantage=[1, 2, 3])], "policy", "mean")
