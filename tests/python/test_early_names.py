"""Names of early 0.3: numbers worked out by hand."""

from argparse import Namespace

import pytest
from slime.agent.trajectory import (
    TokenSegment,
    TurnRecord,
    fan_out_sample_segments,
    make_turn_segment,
    merge_turn_segments,
    merge_turns,
)
from slime.backends.megatron_utils.cp_utils import get_logits_and_tokens_offset_with_cp
from slime.rollout.sglang_rollout import _call_dynamic_filter, _MetricGatherer
from slime.utils.http_utils import get_sglang_client_concurrency
from slime.utils.types import Sample


def turn(prompt, output, log_probs=None):
    return TurnRecord(prompt, output, "stop", [-0.5] * len(output) if log_probs is None else log_probs)


def test_turns_that_go_on_are_one_segment_whose_context_is_not_trained():
    merged = merge_turns([turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 9], [5])], metadata={"a": 1})
    assert merged == TokenSegment([1, 2], [3, 4, 9, 5], [1, 1, 0, 1], [-0.5, -0.5, 0.0, -0.5], {"a": 1})


def test_a_turn_that_was_cut_in_two_is_context():
    turns = [turn([1], [2, 3, 4]), turn([1, 2, 3, 7], [5, 6]), turn([1, 2, 3, 7, 5, 6, 8], [9])]
    merged = merge_turns(turns)
    assert merged.response_ids == [2, 3, 7, 5, 6, 8, 9]
    assert merged.loss_mask == [0, 0, 0, 1, 1, 0, 1]
    assert merged.rollout_log_probs == [0.0, 0.0, 0.0, -0.5, -0.5, 0.0, -0.5]


def test_a_whole_turn_that_is_left_out_does_not_touch_the_one_before():
    merged = merge_turns([turn([1], [2, 3]), turn([1, 2, 3, 8], [4]), turn([1, 2, 3, 9], [5])])
    assert (merged.response_ids, merged.loss_mask) == ([2, 3, 9, 5], [1, 1, 0, 1])


def test_another_prompt_begins_anew_and_missing_log_probs_are_zero():
    merged = merge_turns([turn([1, 2], [3]), turn([1, 5], [6, 7], [-0.1])])
    assert merged == TokenSegment([1, 5], [6, 7], [1, 1], [0.0, 0.0], {})
    assert merge_turns([]) is None


def test_segments_become_samples_that_share_the_reward():
    segments = merge_turn_segments(
        [make_turn_segment([turn([1], [2])], kind="main"), make_turn_segment([]), make_turn_segment([turn([1, 2], [])])]
        + [make_turn_segment([turn([4], [5, 6])], metadata={"finish_reason": "length"})]
    )
    assert [each.metadata for each in segments] == [
        {"segment_kind": "main", "finish_reason": "stop"},
        {"finish_reason": "length"},
    ]
    sample = Sample(index=7, metadata={"task": "t"})
    tokenizer = Namespace(decode=lambda ids, skip_special_tokens: f"{ids} {skip_special_tokens}")
    samples = fan_out_sample_segments(sample, segments, 3, tokenizer, metadata={"b": 2})
    assert samples[0] is sample and len(samples) == 2
    assert [(each.reward, each.rollout_id, each.tokens, each.response_length) for each in samples] == [
        (1.5, 7, [1, 2], 1),
        (1.5, 7, [4, 5, 6], 2),
    ]
    assert samples[1].response == "[5, 6] False" and samples[1].status == Sample.Status.COMPLETED
    assert samples[1].metadata == {"task": "t", "b": 2, "finish_reason": "length", "segment_idx": 1, "num_segments": 2}
    assert fan_out_sample_segments(sample, [], 1, tokenizer) == []


@pytest.mark.parametrize(
    "rank, expected",
    [  # 10 tokens, 4 of them the response, on two ranks: pieces of 3 tokens
        (0, (3, ((0, 3), (9, 12)), ((0, 0), (0, 0)), ((0, 0), (0, 0)))),
        (1, (3, ((3, 6), (6, 9)), ((5, 6), (6, 9)), ((6, 7), (7, 10)))),
    ],
)
def test_offsets_of_context_parallel_ranks(rank, expected):
    assert get_logits_and_tokens_offset_with_cp(10, 4, cp_rank=rank, cp_size=2) == expected


def test_offsets_of_one_rank_are_the_whole_response():
    _, _, logits, tokens = get_logits_and_tokens_offset_with_cp(7, 3)
    assert (logits, tokens) == (((3, 4), (4, 6)), ((4, 5), (5, 7)))
    assert get_logits_and_tokens_offset_with_cp(5, 2, "bshd", 16)[0] == 8


def test_requests_at_a_time():
    args = Namespace(rollout_num_gpus=8, rollout_num_gpus_per_engine=2, sglang_server_concurrency=512)
    assert get_sglang_client_concurrency(args) == 2048
    args.sglang_max_running_requests = 64
    assert get_sglang_client_concurrency(args) == 256


def test_a_filter_may_answer_with_a_truth_value_and_drops_are_counted_by_reason():
    assert _call_dynamic_filter(None, 1).keep and not _call_dynamic_filter(lambda args: False, 1).keep
    counts = _MetricGatherer()
    for reason in ("zero_std", None, "zero_std"):
        counts.on_dynamic_filter_drop(reason)
    assert counts.collect() == {"rollout/dynamic_filter/drop_zero_std": 2}
