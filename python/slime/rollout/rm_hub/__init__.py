"""Rewards: `await async_rm(args, sample)`. The rules are the program's own; nothing is scored here."""

import asyncio
import logging
import random

from slime.rollout.rm_hub.deepscaler import get_deepscaler_rule_based_reward
from slime.rollout.rm_hub.f1 import f1_score
from slime.rollout.rm_hub.gpqa import compute_gpqa_reward
from slime.rollout.rm_hub.math_dapo_utils import compute_score as compute_score_dapo
from slime.rollout.rm_hub.math_utils import extract_answer as extract_boxed_answer
from slime.rollout.rm_hub.math_utils import grade_answer_verl
from slime.rollout.rm_hub.native import score
from slime.rollout.other_forms import reward_of
from slime.utils.http_utils import can_succeed_later, post

__all__ = [
    "async_rm",
    "batched_async_rm",
    "compute_gpqa_reward",
    "compute_score_dapo",
    "extract_boxed_answer",
    "f1_score",
    "get_deepscaler_rule_based_reward",
    "grade_answer_verl",
    "remote_rm",
]

logger = logging.getLogger(__name__)

RULES = ("math", "dapo", "dapo_box", "deepscaler", "f1", "gpqa", "gsm8k", "ifbench")


async def remote_rm(args, sample, max_retries=10):
    """What the server at --rm-url answers to prompt, response and label; later and later after failures."""
    payload = {"prompt": sample.prompt, "response": sample.response, "label": sample.label}
    timeout = getattr(args, "reward_timeout_seconds", None) or 120
    for attempt in range(max_retries):
        try:
            return await asyncio.wait_for(post(args.rm_url, payload, max_retries=1), timeout)
        except Exception as error:
            if attempt + 1 >= max_retries or not can_succeed_later(error):
                raise
            logger.warning("%s: %s; call %d of %d failed", args.rm_url, error or type(error).__name__, attempt + 1, max_retries)
        await asyncio.sleep(min(2**attempt, 30) + random.random())


async def async_rm(args, sample, **kwargs):
    """The reward of a sample: by its own function, the run's (--custom-rm-path), or the rule of its metadata's rm_type or
    of --rm-type, in this order."""
    path = sample.custom_rm_path or args.custom_rm_path
    if path:
        return await reward_of(path, args)(args, sample, **kwargs)
    metadata = sample.metadata if isinstance(sample.metadata, dict) else {}
    rule = (metadata.get("rm_type") or args.rm_type or "").strip()
    is_boxed = rule.startswith("boxed_")
    name = rule[len("boxed_") :] if is_boxed else rule
    if name == "remote_rm":
        return await remote_rm(args, sample)
    if name == "random":
        return random.randint(0, 1)
    if not name:
        raise NotImplementedError("no reward: set --rm-type, a row's metadata.rm_type, or --custom-rm-path")
    if name not in RULES:
        raise NotImplementedError(f"no rule {rule!r}; there are {', '.join(RULES)}, random and remote_rm")
    return await score(rule, sample.response, sample.label, metadata)


async def batched_async_rm(args, samples, **kwargs):
    """Rewards in the order of `samples`. A function of --custom-rm-path gets them all in one call."""
    if args.custom_rm_path is not None:
        return await reward_of(args.custom_rm_path, args)(args, samples, **kwargs)
    return list(await asyncio.gather(*(async_rm(args, sample, **kwargs) for sample in samples)))
