"""Metrics of a rollout's samples, for logging functions that write the usual numbers beside their own.

    def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):
        numbers = dict_add_prefix(compute_metrics_from_samples(args, samples), "rollout/")
        log(args, {**numbers, "mine/tools": ...})
        return True      # the run writes none of its own of this rollout
"""

import math
import statistics

from slime.observability.metric_utils import compute_statistics, dict_add_prefix, has_repetition
from slime.utils.misc import group_by
from slime.utils.types import Sample

__all__ = ["compute_metrics_from_samples", "compute_perf_metrics_from_samples"]

# What an engine says of a request, in spans named sglang_generate: metric and attribute.
_OF_REQUESTS = {
    "request/e2e_latency": "e2e_latency",
    "request/queue_time": "queue_time",
    "decode/throughput": "decode_throughput",
    "prefill/transfer_speed_gb_s": "pd_transfer_speed_gb_s",
    "prefill/transfer_total_mb": "pd_transfer_total_mb",
    **{
        f"prefill/{name}": f"pd_prefill_{name}"
        for name in ("bootstrap_queue_duration", "bootstrap_duration", "alloc_wait_duration", "forward_duration", "transfer_queue_duration", "retry_count")
    },
    **{
        f"decode/{name}": f"pd_decode_{name}"
        for name in ("prealloc_duration", "bootstrap_duration", "alloc_wait_duration", "transfer_duration", "forward_duration")
    },
}


def compute_metrics_from_samples(args, samples):
    """Names without their prefix: response_len/mean, zero_std/count_1.0, truncated_ratio, ... {} of no samples."""
    if not samples:
        return {}
    return {
        **dict_add_prefix(compute_statistics([sample.effective_response_length for sample in samples]), "response_len/"),
        **_groups_without_spread(args, samples),
        **_of_speculation(args, samples),
        **_of_prefix_cache(samples),
        **_of_reward_category(args, samples),
        **_of_top_p(samples),
        "repetition_frac": statistics.fmean(has_repetition(sample.response) for sample in samples),
        "truncated_ratio": statistics.fmean(sample.status == Sample.Status.TRUNCATED for sample in samples),
    }


def compute_perf_metrics_from_samples(args, samples, rollout_time):
    """Names without their prefix: rollout_time, tokens_per_gpu_per_sec, longest_sample_tokens_per_sec, ..."""
    metrics = {"rollout_time": rollout_time}
    if not samples:
        return metrics
    waits = [sample.non_generation_time for sample in samples]
    if max(waits) > 0:
        metrics.update(dict_add_prefix(compute_statistics(waits), "non_generation_time/"))
    for kind, lengths in (
        ("", [sample.response_length for sample in samples]),
        ("effective_", [sample.effective_response_length for sample in samples]),
    ):
        metrics.update(_rates(args, kind, lengths, waits, rollout_time))
    values = {}
    for attributes in _requests(samples):
        for name, source in _OF_REQUESTS.items():
            value = attributes.get(source)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                values.setdefault(name, []).append(value)
    for name, each in values.items():
        metrics.update(dict_add_prefix(compute_statistics(each), f"{name}/"))
    return metrics


def _rates(args, kind, lengths, waits, seconds):
    longest = max(lengths)
    rates = {f"longest_{kind}sample_tokens_per_sec": longest / seconds}
    if getattr(args, "rollout_num_gpus", None):
        rates[f"{kind}tokens_per_gpu_per_sec"] = sum(lengths) / seconds / args.rollout_num_gpus
    if max(waits) > 0:
        wait = statistics.fmean(each for each, length in zip(waits, lengths) if length == longest)
        rates[f"longest_{kind}sample_non_generation_time"] = wait
        if seconds > wait:
            rates[f"longest_{kind}sample_tokens_per_sec_without_non_generation"] = longest / (seconds - wait)
    return rates


def _requests(samples):
    for sample in samples:
        for event in (getattr(sample, "trace", None) or {}).get("events") or ():
            if event.get("type") == "span_end" and event.get("name") == "sglang_generate":
                yield event.get("attrs") or {}


def _groups_without_spread(args, samples):
    """How many groups have one reward, by that reward. Records have none to compare, and PPO has no groups."""
    if getattr(args, "advantage_estimator", None) == "ppo":
        return {}
    counts = {}
    for group in group_by(samples, lambda sample: sample.group_index).values():
        rewards = [sample.get_reward_value(args) for sample in group]
        if isinstance(rewards[0], (int, float)) and all(reward == rewards[0] for reward in rewards):
            name = f"zero_std/count_{round(rewards[0], 1)}"
            counts[name] = counts.get(name, 0) + 1
    return counts


def _of_speculation(args, samples):
    """Nothing where no step was counted: engines that leave the algorithm out tell no counts."""
    infos = [sample.spec_info for sample in samples if sample.spec_info.spec_verify_ct > 0]
    if getattr(args, "sglang_speculative_algorithm", None) is None or not infos:
        return {}
    return {
        "spec_accept_rate": statistics.fmean(info.spec_accept_rate for info in infos),
        "spec_accept_length": statistics.fmean(info.spec_accept_length for info in infos),
    }


def _of_prefix_cache(samples):
    cached = sum(sample.prefix_cache_info.cached_tokens for sample in samples)
    read = sum(sample.prefix_cache_info.total_prompt_tokens for sample in samples)
    return {"prefix_cache_hit_rate": cached / read if read else 0.0, "avg_cached_tokens_per_sample": cached / len(samples)}


def _of_reward_category(args, samples):
    key = getattr(args, "log_reward_category", None)
    if not key:
        return {}
    groups = group_by(samples, lambda sample: sample.reward[key])
    return {f"error_cat/{category}": len(group) / len(samples) for category, group in groups.items()}


def _of_top_p(samples):
    """How many ids the sampler kept, on average over trained tokens."""
    kept = tokens = 0
    for sample in samples:
        offsets = sample.rollout_top_p_token_offsets
        if offsets is None or len(offsets) == 0 or sample.response_length == 0 or sample.remove_sample:
            continue
        mask = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
        if len(offsets) != sample.response_length + 1 or len(mask) != sample.response_length:
            raise ValueError(f"sample {sample.index}: {len(offsets)} offsets and {len(mask)} of its loss mask for {sample.response_length} tokens")
        kept += sum(int(offsets[i + 1]) - int(offsets[i]) for i, is_trained in enumerate(mask) if is_trained)
        tokens += sum(1 for is_trained in mask if is_trained)
    return {"top_p_kept_vocab_per_token": kept / tokens} if tokens else {}
