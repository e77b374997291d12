"""Metrics of samples for logging functions of one's own: numbers by hand."""

from argparse import Namespace

import pytest
from slime.observability.metric_utils import compute_pass_rate, compute_rollout_step, has_repetition
from slime.ray.rollout import compute_metrics_from_samples, compute_perf_metrics_from_samples
from slime.utils.types import Sample

ARGS = Namespace(advantage_estimator="grpo", reward_key=None, log_reward_category=None, rollout_num_gpus=2)


def one(group, length, reward, **more):
    return Sample(group_index=group, response="x", response_length=length, reward=reward, **more)


def test_lengths_are_of_trained_tokens_and_groups_without_spread_are_counted_by_reward():
    samples = [
        one(0, 4, 1.0, status=Sample.Status.TRUNCATED),
        one(0, 2, 1.0, loss_mask=[0, 1]),
        one(1, 3, 0.0),
        one(1, 3, 1),
        one(2, 5, 0.04, status=Sample.Status.COMPLETED),
    ]
    metrics = compute_metrics_from_samples(ARGS, samples)
    assert metrics == {
        "response_len/mean": 16 / 5,
        "response_len/median": 3.0,
        "response_len/max": 5.0,
        "response_len/min": 1.0,
        "zero_std/count_1.0": 1,
        "zero_std/count_0.0": 1,
        "prefix_cache_hit_rate": 0.0,
        "avg_cached_tokens_per_sample": 0.0,
        "repetition_frac": 0.0,
        "truncated_ratio": 0.2,
    }
    without_groups = compute_metrics_from_samples(Namespace(**{**vars(ARGS), "advantage_estimator": "ppo"}), samples)
    assert not any(name.startswith("zero_std") for name in without_groups)
    assert compute_metrics_from_samples(ARGS, []) == {}


def test_records_are_told_apart_by_category_and_have_no_spread():
    args = Namespace(**{**vars(ARGS), "log_reward_category": "why"})
    samples = [one(0, 1, {"score": 1, "why": why}) for why in ("right", "right", "late", "late", "late")]
    metrics = compute_metrics_from_samples(args, samples)
    assert metrics["error_cat/right"] == 0.4 and metrics["error_cat/late"] == 0.6
    assert not any(name.startswith("zero_std") for name in metrics)


def test_cached_tokens_and_kept_ids():
    first = one(0, 2, 1.0, rollout_top_p_token_offsets=[0, 3, 4], loss_mask=[1, 0])
    second = one(1, 1, 1.0, rollout_top_p_token_offsets=[0, 5])
    removed = one(2, 1, 1.0, rollout_top_p_token_offsets=[0, 100], remove_sample=True)
    first.prefix_cache_info.add({"cached_tokens": 6, "prompt_tokens": 8})
    second.prefix_cache_info.add({"cached_tokens": 0, "prompt_tokens": 8})
    metrics = compute_metrics_from_samples(ARGS, [first, second, removed])
    assert metrics["top_p_kept_vocab_per_token"] == 4.0  # 3 of the trained token, 5 of the other sample's
    assert metrics["prefix_cache_hit_rate"] == 0.375 and metrics["avg_cached_tokens_per_sample"] == 2.0
    with pytest.raises(ValueError, match="sample 7: 4 offsets and 2 of its loss mask for 2 tokens"):
        compute_metrics_from_samples(ARGS, [one(0, 2, 1.0, index=7, rollout_top_p_token_offsets=[0, 1, 2, 3])])


def test_drafts_are_means_over_samples_that_have_some():
    args = Namespace(**{**vars(ARGS), "sglang_speculative_algorithm": "NGRAM"})
    samples = [one(0, 4, 1.0), one(0, 6, 0.0), one(1, 1, 0.0)]
    assert "spec_accept_rate" not in compute_metrics_from_samples(args, samples)
    samples[0].spec_info.add({"spec_accept_token_num": 2, "spec_draft_token_num": 4, "spec_verify_ct": 2, "completion_tokens": 4})
    samples[1].spec_info.add({"spec_num_correct_drafts": 2, "spec_num_proposed_drafts": 8, "spec_verify_ct": 4, "completion_tokens": 6})
    metrics = compute_metrics_from_samples(args, samples)
    assert metrics["spec_accept_rate"] == (0.5 + 0.25) / 2 and metrics["spec_accept_length"] == (2 + 1.5) / 2
    assert "spec_accept_rate" not in compute_metrics_from_samples(ARGS, samples)


def test_rates_are_by_gpu_and_of_the_longest_sample():
    samples = [one(0, 10, 1.0, loss_mask=[1] * 6 + [0] * 4), one(0, 20, 0.0, non_generation_time=1.0)]
    samples[1].trace = {"events": [{"type": "span_end", "name": "sglang_generate", "attrs": {"e2e_latency": 0.5, "queue_time": True}}]}
    metrics = compute_perf_metrics_from_samples(ARGS, samples, 5.0)
    assert metrics["rollout_time"] == 5.0 and metrics["non_generation_time/max"] == 1.0
    assert metrics["tokens_per_gpu_per_sec"] == 3.0 and metrics["effective_tokens_per_gpu_per_sec"] == 2.6
    assert metrics["longest_sample_tokens_per_sec"] == 4.0
    assert metrics["longest_sample_non_generation_time"] == 1.0
    assert metrics["longest_sample_tokens_per_sec_without_non_generation"] == 5.0
    assert metrics["request/e2e_latency/mean"] == 0.5 and "request/queue_time/mean" not in metrics


def test_pass_rates_of_uneven_groups_and_the_axis_of_steps():
    assert compute_pass_rate([1, 0, 1, 0, 0], 4, group_ids=["a", "a", "b", "b", "b"]) == pytest.approx({"pass@1": 5 / 12, "pass@2": 5 / 6})
    with pytest.raises(ValueError, match="5 rewards for 1 groups of 4"):
        compute_pass_rate([1, 0, 1, 0, 0], 4)
    args = Namespace(wandb_always_use_train_step=True, rollout_batch_size=4, n_samples_per_prompt=8, global_batch_size=16)
    assert compute_rollout_step(args, 3) == 6 and compute_rollout_step(Namespace(), 3) == 3
    assert has_repetition("again " * 2000) and not has_repetition("again " * 1000)
