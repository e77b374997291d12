"""Numbers about lists of numbers, for logging functions of one's own."""

import importlib
import math
import statistics
from typing import Any, Dict, List

__all__ = [
    "compression_ratio",
    "compute_pass_rate",
    "compute_rollout_step",
    "compute_statistics",
    "dict_add_prefix",
    "estimate_pass_at_k",
    "has_repetition",
]


def dict_add_prefix(d: Dict[str, Any], prefix: str) -> Dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in d.items()}


def compute_statistics(values: List[float]) -> Dict[str, float]:
    """mean, median, max and min; {} of nothing."""
    values = [float(value) for value in values]
    if not values:
        return {}
    return {"mean": statistics.fmean(values), "median": statistics.median(values), "max": max(values), "min": min(values)}


def estimate_pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that one of k samples drawn out of `num_samples` is right."""
    wrong = num_samples - num_correct
    return 1.0 if wrong < k else 1.0 - math.comb(wrong, k) / math.comb(num_samples, k)


def compute_pass_rate(flat_rewards: List[float], group_size: int, num_groups: int = None, group_ids: List = None) -> Dict[str, float]:
    """pass@1, pass@2, pass@4, ... of groups, a reward of 1 being right. Groups are equally large and follow one another; with
    `group_ids`, one for each reward, they are what those say, and pass@k is of the groups with at least k."""
    if group_size <= 1:
        return {}
    if group_ids is None:
        num_groups = len(flat_rewards) // group_size if num_groups is None else num_groups
        if len(flat_rewards) != num_groups * group_size:
            raise ValueError(f"{len(flat_rewards)} rewards for {num_groups} groups of {group_size}")
        group_ids = [index // group_size for index in range(len(flat_rewards))]
    elif len(group_ids) != len(flat_rewards):
        raise ValueError(f"{len(flat_rewards)} rewards and {len(group_ids)} group_ids")
    right = {}
    for group, reward in zip(group_ids, flat_rewards):
        right.setdefault(group, []).append(reward == 1)
    rates = {}
    for k in (1 << power for power in range(group_size.bit_length())):
        estimates = [estimate_pass_at_k(len(each), sum(each), k) for each in right.values() if len(each) >= k]
        if k <= group_size and estimates:
            rates[f"pass@{k}"] = statistics.fmean(estimates)
    return rates


def compute_rollout_step(args, rollout_id: int) -> int:
    """The x axis of a rollout's numbers: with --wandb-always-use-train-step the optimizer steps before it."""
    if getattr(args, "wandb_always_use_train_step", False):
        return rollout_id * args.rollout_batch_size * args.n_samples_per_prompt // args.global_batch_size
    return rollout_id


def has_repetition(text: str) -> bool:
    """Whether the last 10,000 characters of a longer text compress to less than a tenth."""
    return len(text) > 10_000 and compression_ratio(text[-10_000:])[0] > 10


def compression_ratio(data, *, encoding: str = "utf-8", algorithm: str = "zlib", level: int = 9):
    """(bytes before for each byte behind, per cent saved) of a text or bytes: high where a response repeats itself."""
    raw = data.encode(encoding) if isinstance(data, str) else bytes(data)
    if algorithm not in ("zlib", "gzip", "bz2", "lzma"):
        raise ValueError(f"algorithm {algorithm!r}: zlib, gzip, bz2 or lzma")
    if not raw:
        return math.inf, 0.0
    module = importlib.import_module(algorithm)
    packed = module.compress(raw, preset=level) if algorithm == "lzma" else module.compress(raw, level)
    return len(raw) / len(packed), 100.0 * (1.0 - len(packed) / len(raw))
