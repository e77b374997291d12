"""`slime.grpo`: prompts and a reward of the script, an iterator of steps."""

import asyncio
import random

import pytest
import slime
from conftest import SLIME, mean

QUIET = {"output": False, "program": str(SLIME), "device": "cpu", "fp32": True, "num_threads": 1, "lr_decay_style": "constant"}
SMALL = {"groups": 4, "samples": 8, "max_tokens": 6, "use_dynamic_batch_size": True, "max_tokens_per_gpu": 512}


def prompts():
    draw = random.Random(3)
    return [f"{draw.randint(10, 99)}+{draw.randint(10, 99)}=" for _ in range(64)]


def capitals(text):
    return float(any(letter.isupper() for letter in text))


def test_the_reward_of_a_lambda_rises_in_twenty_steps(work, tmp_path):
    rewards = []
    for step in slime.grpo(work / "model", prompts(), lambda sample: capitals(sample.response), steps=25, lr=3e-3,
                           run_dir=tmp_path / "run", **SMALL, **QUIET):  # fmt: skip
        rewards.append(step.reward)
        assert step.index == len(rewards) - 1 and step.loss == step.metrics["train/loss"]
    assert len(rewards) == 25
    assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.15, rewards
    assert (tmp_path / "run" / "latest" / "model.safetensors").exists()


def test_a_reward_over_lists_gets_the_columns_of_the_rows(work, tmp_path):
    seen = []

    async def reward(prompts, completions, level, label, **columns):
        seen.append((prompts, level, label, sorted(columns)))
        return [capitals(each) for each in completions]

    rows = [{"prompt": prompt, "label": "x", "level": number} for number, prompt in enumerate(prompts())]
    steps = slime.grpo(work / "model", rows, reward, steps=3, run_dir=tmp_path / "run", **SMALL, **QUIET)
    first = next(steps)
    [sample] = first.rollout.samples(0, 1)
    assert sample.metadata["level"] == int(sample.metadata["level"])
    first.save()
    steps.close()  # as a break does it
    assert len(seen) >= 4
    prompts_of_one, levels, labels, rest = seen[0]
    assert len(set(prompts_of_one)) == 1 and len(prompts_of_one) == 8 and len(set(levels)) == 1 and set(labels) == {"x"}
    assert "completion_ids" in rest
    # The same call goes on behind the checkpoint.
    assert next(slime.grpo(work / "model", rows, reward, steps=3, run_dir=tmp_path / "run", **SMALL, **QUIET)).index == 1


def test_an_error_of_the_reward_is_the_error_of_the_loop(work, tmp_path):
    def reward(sample):
        raise ZeroDivisionError("mine")

    with pytest.raises(slime.RewardError, match="mine") as error:
        for _ in slime.grpo(work / "model", prompts(), reward, steps=3, run_dir=tmp_path / "run", **SMALL, **QUIET):
            pass
    assert isinstance(error.value.__cause__, ZeroDivisionError) and error.value.sample.response is not None


def test_a_reward_of_another_length_says_both_numbers(work, tmp_path):
    with pytest.raises(ValueError, match="the reward gave 1 numbers for 8 completions"):
        next(slime.grpo(work / "model", prompts(), lambda completions: [1.0], steps=3, run_dir=tmp_path / "run", **SMALL, **QUIET))


def test_awaited_it_is_the_same(work, tmp_path):
    async def main():
        steps = slime.agrpo(work / "model", prompts(), lambda response: capitals(response), steps=3, run_dir=tmp_path / "run", **SMALL, **QUIET)
        assert [step.index async for step in steps] == [0, 1, 2]

    asyncio.run(main())


def test_a_keyword_of_another_system_is_refused_with_the_name_here(work, tmp_path):
    with pytest.raises(slime.Error) as error:
        next(slime.grpo(work / "model", ["1+1="], lambda sample: 0.0, output=False, learning_rate=3, temperature=0.1))
    assert "here it is --lr" in str(error.value) and "here it is --rollout-temperature" in str(error.value)
