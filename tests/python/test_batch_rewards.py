"""Rewards of prompts and responses: whose they are, and what happens when nobody knows."""

import asyncio

import pytest
from slime.rollout.other_forms import as_reward
from slime.utils.types import Sample


class Judge:
    def __init__(self, compute):
        self.compute, self.batches = compute, []

    def compute_reward(self, prompts, responses):
        self.batches.append(list(responses))
        return self.compute(responses)


def answers(judge, *responses):
    """Of samples that wait together."""
    reward = as_reward(judge)

    async def ask():
        samples = [Sample(prompt="p", response=response) for response in responses]
        return await asyncio.gather(*(reward(None, sample) for sample in samples), return_exceptions=True)

    return asyncio.run(ask())


def test_each_sample_gets_its_own():
    judge = Judge(lambda responses: [len(each) for each in responses])
    assert answers(judge, "a", "bbb", "cc") == [1, 3, 2]
    assert judge.batches == [["a", "bbb", "cc"]]


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_another_number_of_rewards_fails_the_batch_and_names_both_numbers(number):
    judge = Judge(lambda responses: [1.0] * number)
    got = answers(judge, "a", "bbb", "cc")
    assert [str(each) for each in got] == [f"compute_reward returned {number} rewards for 3 responses; it is a list with one for each"] * 3
    assert len(judge.batches) == 1


def test_an_exception_is_that_of_the_sample_that_makes_it():
    judge = Judge(lambda responses: [1 / len(each) for each in responses])
    first, empty, last = answers(judge, "a", "", "cc")
    assert (first, last) == (1.0, 0.5) and isinstance(empty, ZeroDivisionError)
