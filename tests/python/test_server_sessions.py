"""Turns that a server recorded become samples, and are noted for the function that waits for them."""

import asyncio
import contextvars
import json

import pytest
from slime import turns
from slime.agent import server_sessions
from slime.agent.server_sessions import ServerSessions
from slime.agent.trajectory import samples_of_turns
from slime.utils.http_utils import HttpStatusError
from slime.utils.types import Sample


def turn(number, parent, context, output, **more):
    length = len(context)
    fields = {"is_cut_off": False, "is_ill_formed": False, "message": {"role": "assistant", "content": "x"}, **more}
    runs = [{"start": 0, "end": len(output), "version": "3"}]
    log_probs = [-number - i / 8 for i in range(len(output))]
    return {
        "id": number,
        "parent": parent,
        "num_prompt_tokens": length,
        "context_ids": context,
        "output_ids": output,
        "output_log_probs": log_probs,
        "weight_versions": runs,
        **fields,
    }


RECORDED = [
    turn(1, None, [1, 2], [3, 4]),
    turn(2, 1, [5], [6], message={"role": "assistant", "content": "", "tool_calls": [{}]}),
    turn(4, 1, [7], [8], is_cut_off=True),
    turn(5, None, [9], [9], is_ill_formed=True),
]


def test_paths_are_samples_and_what_they_share_is_trained_once():
    answers, samples = samples_of_turns(RECORDED, base_sample=Sample(index=7), reward=0.5)
    assert [sample.tokens for sample in samples] == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8], [9, 9]]
    assert [sample.loss_mask for sample in samples] == [[1, 1, 0, 1], [0, 0, 0, 1], [1]]
    assert samples[0].rollout_log_probs == [-1.0, -1.125, 0.0, -2.0]
    assert [sample.status.value for sample in samples] == ["completed", "truncated", "completed"]
    assert [sample.metadata["use_tool"] for sample in samples] == [True, False, False]
    assert [sample.metadata["ill_formed"] for sample in samples] == [False, False, True]
    assert {sample.rollout_id for sample in samples} == {7} and {sample.reward for sample in samples} == {0.5}
    assert [answer["output_ids"] for answer in answers] == [[3, 4], [6], [8], [9]]


def test_nuclei_of_turns_stand_beside_the_tokens_that_are_trained():
    """As --rollout-top-p below 1 wants them; tokens of tools, and those that another sample trains, have none."""
    drawn = [(1, [3, 8, 4], [2, 1]), (2, [6], [1]), (4, [8, 9], [2]), (5, [9], [1])]
    nuclei = {number: {"output_top_p_token_ids": ids, "output_top_p_token_counts": counts} for number, ids, counts in drawn}
    _, samples = samples_of_turns([{**each, **nuclei[each["id"]]} for each in RECORDED], base_sample=Sample())
    assert [list(sample.rollout_top_p_token_ids) for sample in samples] == [[3, 8, 4, 6], [8, 9], [9]]
    assert [list(sample.rollout_top_p_token_offsets) for sample in samples] == [[0, 2, 3, 3, 4], [0, 0, 0, 0, 2], [0, 1]]
    assert samples[0].rollout_top_p_log_probs is None
    plain = samples_of_turns(RECORDED, base_sample=Sample())[1][0]
    assert plain.rollout_top_p_token_ids is None and plain.rollout_top_p_token_offsets is None
    with pytest.raises(ValueError, match="turn 1: nuclei of 1 tokens, 2 tokens"):
        samples_of_turns([{**RECORDED[0], "output_top_p_token_ids": [3], "output_top_p_token_counts": [1]}], base_sample=Sample())


def test_a_turn_without_a_log_prob_for_each_token_is_refused():
    with pytest.raises(ValueError, match="turn 1: 1 log-probs, 2 tokens"):
        samples_of_turns([{**RECORDED[0], "output_log_probs": [-1.0]}], base_sample=Sample())


def finished(monkeypatch, ended, noted):
    async def answer(method, url):
        assert (method, url) == ("DELETE", "http://engine/sessions/a%3A1?wait_seconds=2")
        return 200, json.dumps(ended).encode()

    async def text_of(url, asked, max_retries):
        assert url == "http://engine/detokenize" and not asked["skip_special_tokens"]
        return {"text": " ".join(map(str, asked["tokens"]))}

    monkeypatch.setattr(server_sessions, "request", answer)
    monkeypatch.setattr(server_sessions, "post", text_of)

    def finish():
        turns.watch(noted)  # as the host of a generate function does
        return asyncio.run(ServerSessions("http://engine/").finish("a:1", base_sample=Sample(), wait_timeout=2.0))

    return contextvars.copy_context().run(finish)


def test_the_function_that_waits_is_told_of_every_turn_and_of_answers_that_nobody_read(monkeypatch):
    noted = []
    samples = finished(monkeypatch, {"turns": RECORDED, "num_forgotten_tokens": 11}, noted)
    rows = [(list(each.tokens), len(each.tokens) - each.response_length, each.loss_mask) for each in samples]
    assert sum(len(ids) for ids, _, _ in noted) == 5 + 11
    assert turns.untrained_tokens(rows, noted) == 11
    (first, *_) = samples
    assert first.response == "3 4 5 6"
    runs = turns.version_runs(first.tokens[2:], noted, prompt=first.tokens[:2], is_alone=False)
    assert runs == [[3, 2], [-1, 1], [3, 1]]


def test_an_error_of_the_server_is_the_callers(monkeypatch):
    async def refuse(method, url):
        return 404, b'{"error": {"message": "no session is open under the name a"}}'

    monkeypatch.setattr(server_sessions, "request", refuse)
    with pytest.raises(HttpStatusError, match="no session is open"):
        asyncio.run(ServerSessions("http://engine").finish("a", base_sample=Sample()))
    asyncio.run(ServerSessions("http://engine").drop("a"))
