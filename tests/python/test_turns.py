"""Which weights made which tokens: answers of an engine laid over the response that came of them."""

import asyncio
import urllib.request

import pytest

from slime import turns
from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.agent.http_app import Application, Response
from slime.turns import untrained_tokens, version_runs


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
    assert version_runs(response, [(*turn, None) for turn in noted], start) == expected


def test_what_another_agent_said_is_no_turn_of_a_response():
    # Guesser [7, 9], keeper [3, 9] and so on; behind 0 each hears what the other one said. Prompts are [1] and [2, 7, 9].
    guesser, keeper = [7, 9, 0, 3, 9, 0, 7, 9], [3, 9, 0, 7, 9, 0, 3, 9]
    turns = [
        ([7, 9], [[5, 2]], [1]),
        ([3, 9], [[5, 2]], [2, 7, 9]),
        ([7, 9], [[6, 2]], [1, *guesser[:6]]),
        ([3, 9], [[6, 2]], [2, 7, 9, *keeper[:6]]),
    ]
    expected = [[5, 2], [-1, 4], [6, 2]]
    assert version_runs(guesser, turns, prompt=[1], is_alone=False) == expected
    assert version_runs(keeper, turns, prompt=[2, 7, 9], is_alone=False) == expected
    # Without prompts, because the function asked by text: not among what was heard.
    turns = [(ids, runs, None) for ids, runs, _ in turns]
    assert version_runs(guesser, turns, loss_mask=[1, 1, 0, 0, 0, 0, 1, 1], is_alone=False) == expected


def test_a_turn_is_where_its_prompt_ends():
    response, turns = [4, 4, 4, 4], [([4, 4], [[5, 2]], [1, 4, 4])]
    assert version_runs(response, turns, prompt=[1]) == [[-1, 2], [5, 2]]
    assert version_runs(response, turns, prompt=[2]) == [[5, 2], [-1, 2]]  # another prompt: it is looked for


@pytest.mark.parametrize(
    "samples, turns, expected",
    [
        # Behind 1 two tokens were sampled, behind those and a tool's 9 one more.
        ([([1, 5, 6, 9, 7], 1, [1, 1, 0, 1])], [([5, 6], [1]), ([7], [1, 5, 6, 9])], 0),
        ([([1, 5, 6], 1, None)], [([5, 6], [1]), ([7], [1, 5, 6, 9])], 1),
        ([([1, 5, 6], 1, [1, 0])], [([5, 6], [1])], 1),
        # Encoded again, it stands behind another prompt.
        ([([1, 8, 8, 9, 7], 1, [1, 1, 0, 1])], [([5, 6], [1]), ([7], [1, 5, 6, 9])], 3),
        # Two branches share a turn; the first has it.
        ([([1, 5, 2, 3], 1, [1, 0, 1]), ([1, 5, 4, 6], 1, [0, 0, 1])], [([5], [1]), ([3], [1, 5, 2]), ([6], [1, 5, 4])], 0),
        # Sampled twice, returned once.
        ([([1, 5], 1, None)], [([5], [1]), ([5], [1])], 1),
        ([([1, 5], 1, None), ([1, 5], 1, None)], [([5], [1]), ([5], [1])], 0),
        # Asked by text: looked for.
        ([([1, 5, 6], 1, None)], [([5, 6], None), ([6, 6], None)], 2),
        ([], [([5, 6], [1])], 2),
    ],
)
def test_tokens_that_no_sample_trains_are_counted(samples, turns, expected):
    assert untrained_tokens(samples, [(ids, [[3, len(ids)]], asked) for ids, asked in turns]) == expected


def answer(ids, **meta):
    return {"output_ids": ids, "meta_info": {"weight_version": "5", **meta}}


def test_answers_are_noted_for_the_task_that_watches_and_those_that_it_starts():
    async def conversation(noted, ids):
        turns.watch(noted)
        turns.note(answer(ids))

        async def beside():
            turns.note([answer([9]), answer([8], weight_version_runs=[["5", 0], ["6", 1]])])

        await asyncio.gather(beside())

    async def two():
        first, second = [], []
        await asyncio.gather(conversation(first, [1]), conversation(second, [2]))
        turns.note(answer([3]))  # of nobody who watches
        return first, second

    first, second = asyncio.run(two())
    beside = [([9], [[5, 1]], None), ([8], [[5, 0], [6, 1]], None)]
    assert first == [([1], [[5, 1]], None), *beside] and second == [([2], [[5, 1]], None), *beside]


def test_what_is_no_answer_of_an_engine_is_passed_over():
    noted = []
    turns.watch(noted)
    for other in ("text", 3, None, {}, [1], answer([]), answer("ids"), {"output_ids": [1], "meta_info": {}}):
        turns.note(other)
    turns.note(answer([1], weight_version="a name"))
    turns.watch(None)
    assert noted == []


def test_what_an_application_serves_is_not_of_the_call_in_which_it_began():
    noted = []
    app = Application()

    async def serve(request):
        turns.note({"output_ids": [5], "meta_info": {"weight_version": "4"}})
        return Response.of_json({})

    async def begin():
        turns.watch(noted)
        return run_app_in_thread(app, host="127.0.0.1")

    app.add("GET", "/", serve)
    handle = asyncio.run(begin())
    try:
        assert urllib.request.urlopen(f"http://127.0.0.1:{handle.port}/", timeout=10).status == 200
    finally:
        handle.stop()
    assert noted == []
