"""Numbers about lists of numbers, for logging functions of one's own."""

import importlib
import math
import statistics
from typing import Any, Dict, List

__all__ = [
    "compression_ratio",
    "compute_pass_rate",
    "compute_statistics",
    "dict_add_prefix",
    "estimate_pass_at_k",
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


def compute_pass_rate(flat_rewards: List[float], group_size: int, num_groups: int = None) -> Dict[str, float]:
    """pass@1, pass@2, pass@4, ... of groups of equal size, a reward of 1 being right."""
    if group_size <= 1:
        return {}
    num_groups = len(flat_rewards) // group_size if num_groups is None else num_groups
    if len(flat_rewards) != num_groups * group_size:
        raise ValueError(f"{len(flat_rewards)} rewards for {num_groups} groups of {group_size}")
    right = [
        sum(reward == 1 for reward in flat_rewards[begin : begin + group_size])
        for begin in range(0, len(flat_rewards), group_size)
    ]
    ks = [1 << power for power in range(group_size.bit_length()) if 1 << power <= group_size]
    return {f"pass@{k}": statistics.fmean(estimate_pass_at_k(group_size, count, k) for count in right) for k in ks}


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
