"""Which weights made which tokens: answers of an engine laid over the response that came of them."""

import asyncio

import pytest

from slime import turns
from slime.turns import version_runs


@pytest.mark.parametrize(
    "response, noted, start, expected",
    [
        ([1, 2, 3], [([1, 2, 3], [[5, 3]])], 0, [[5, 3]]),
        # A tool's two tokens between two turns; the second turn saw an update.
        ([1, 2, 9, 9, 3, 4], [([1, 2], [[5, 2]]), ([3, 4], [[5, 1], [6, 1]])], 0, [[5, 2], [-1, 2], [5, 1], [6, 1]]),
        # One that was thrown away, and one that the function cut.
        ([1, 2, 3], [([7, 8], [[4, 2]]), ([1, 2, 3], [[5, 3]])], 0, [[5, 3]]),
        ([1, 2], [([1, 2, 3], [[5, 3]])], 0, None),
        ([1, 2], [], 0, None),
        # The same tokens twice are two turns.
        ([1, 1, 1, 1], [([1, 1], [[5, 2]]), ([1, 1], [[6, 2]])], 0, [[5, 2], [6, 2]]),
        # A beginning that looks like it.
        ([1, 3, 1, 2], [([1, 2], [[5, 2]])], 0, [[-1, 2], [5, 2]]),
        # What an earlier call drew is not looked at.
        ([1, 2, 1, 2], [([1, 2], [[6, 2]])], 2, [[-1, 2], [6, 2]]),
    ],
)
def test_turns_are_found_in_their_order(response, noted, start, expected):
    assert version_runs(response, noted, start) == expected


def answer(ids, **meta):
    return {"output_ids": ids, "meta_info": {"weight_version": "5", **meta}}


def test_answers_are_noted_for_the_task_that_watches_and_those_that_it_starts():
    async def conversation(noted, ids):
        turns.watch(noted)
        turns.note(answer(ids))

        async def beside():
            turns.note([answer([9]), answer([8], weight_version_runs=[[5, 0], [6, 1]])])

        await asyncio.gather(beside())

    async def two():
        first, second = [], []
        await asyncio.gather(conversation(first, [1]), conversation(second, [2]))
        turns.note(answer([3]))  # of nobody who watches
        return first, second

    first, second = asyncio.run(two())
    beside = [([9], [[5, 1]]), ([8], [[5, 0], [6, 1]])]
    assert first == [([1], [[5, 1]]), *beside] and second == [([2], [[5, 1]]), *beside]


def test_what_is_no_answer_of_an_engine_is_passed_over():
    noted = []
    turns.watch(noted)
    for other in ("text", 3, None, {}, [1], answer([]), answer("ids"), {"output_ids": [1], "meta_info": {}}):
        turns.note(other)
    turns.note(answer([1], weight_version="a name"))
    turns.watch(None)
    assert noted == []
