"""Filters that drop groups whose samples all scored the same: such a group has no gradient."""

import math

from slime.rollout.filter_hub.base_types import DynamicFilterOutput

__all__ = ["check_reward_nonzero_std", "check_reward_nonzero_std_with_fallback"]


def _leaves(samples):
    for sample in samples:
        if isinstance(sample, (list, tuple)):
            yield from _leaves(sample)
        else:
            yield sample


def _executions(samples):
    """Lists of samples: a member that became several counts once, as do samples that share a rollout id."""
    by_id = {}
    for place, member in enumerate(samples):
        for leaf in _leaves([member]):
            number = getattr(leaf, "rollout_id", None)
            by_id.setdefault(("member", place) if number is None else ("id", number), []).append(leaf)
    return list(by_id.values())


def check_reward_nonzero_std(args, samples, **kwargs):
    """Keeps a group whose rewards have a standard deviation above 1e-6; of one execution there is none, so it goes.
    A member that became several samples counts once, with their mean."""
    executions = _executions(samples)
    rewards = [math.fsum(float(leaf.get_reward_value(args)) for leaf in each) / len(each) for each in executions]
    first = next(_leaves(samples)).get_reward_value(args) if rewards else 0
    mean = math.fsum(rewards) / max(len(rewards), 1)
    variance = math.fsum((reward - mean) ** 2 for reward in rewards) / max(len(rewards) - 1, 1)
    keep = len(rewards) > 1 and math.sqrt(variance) > 1e-6
    return DynamicFilterOutput(keep=keep, reason=None if keep else f"zero_std_{round(first, 1)}")


def check_reward_nonzero_std_with_fallback(args, samples, **kwargs):
    """The same, but rather such a group than another round of sampling."""
    output = check_reward_nonzero_std(args, samples, **kwargs)
    output.keep_when_insufficient = True
    return output
