"""What a rollout has to give for --use-score-centering: the sampler's log-probs of a head of K tokens, or of the whole
nucleus, at each response token. The objective is the trainer's (docs/spec/algorithms.md)."""

import math

from slime.utils.sampler_record import head_of
from slime.utils.sampler_record import request_fields as score_centering_request

__all__ = [
    "SAMPLER_TOPK_FIELDS",
    "SAMPLER_TOP_P_FIELDS",
    "extract_sampler_topk",
    "score_centering_request",
    "validate_sampler_top_p",
    "validate_sampler_topk",
]

SAMPLER_TOPK_FIELDS = ("rollout_topk_token_ids", "rollout_topk_log_probs")
SAMPLER_TOP_P_FIELDS = ("rollout_top_p_token_ids", "rollout_top_p_token_offsets", "rollout_top_p_log_probs")
_MOST_MASS = 1.0001


def extract_sampler_topk(meta_info, count, k):
    """(ids, log-probs) of the heads of an answer's `count` tokens, one array of each, row by row."""
    return head_of(meta_info, count, k)


def _rows(value):
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _is_trained(loss_mask, i):
    return loss_mask is None or bool(loss_mask[i])


def validate_sampler_topk(sample, k: int) -> None:
    """Throws ValueError unless each response token has K distinct ids with log-probs whose mass is at most 1."""
    ids, log_probs = (getattr(sample, name, None) for name in SAMPLER_TOPK_FIELDS)
    if ids is None or log_probs is None:
        raise ValueError(f"Score centering: sample {sample.index} has no {' and '.join(SAMPLER_TOPK_FIELDS)}")
    ids, log_probs = _rows(ids), _rows(log_probs)
    if len(ids) != sample.response_length or len(log_probs) != sample.response_length:
        raise ValueError(f"Score centering: {len(ids)} heads for {sample.response_length} response tokens")
    for i, (tokens, values) in enumerate(zip(ids, log_probs)):
        what = f"Score centering: the head of response token {i}"
        if len(tokens) != k or len(values) != k:
            raise ValueError(f"{what} has {len(tokens)} tokens; --score-centering-top-k is {k}")
        if len(set(tokens)) != k or min(tokens) < 0:
            raise ValueError(f"{what} has an id twice, or below 0")
        if any(not math.isfinite(value) or value > 0 for value in values):
            raise ValueError(f"{what} has a log-prob that is not finite, or above 0")
        if _is_trained(sample.loss_mask, i) and sum(map(math.exp, values)) > _MOST_MASS:
            raise ValueError(f"{what} has a mass of {sum(map(math.exp, values)):.4f}")


def validate_sampler_top_p(token_ids, offsets, log_probs, response_length: int, *, loss_mask=None) -> None:
    """Throws ValueError unless each trained response token has a nucleus whose probabilities add up to 1."""
    ids, offsets, log_probs = map(_rows, (token_ids, offsets, log_probs))
    if len(offsets) != response_length + 1 or offsets[0] != 0 or offsets[-1] != len(ids) or len(log_probs) != len(ids):
        raise ValueError(
            f"Score centering: {len(offsets)} offsets, {len(ids)} ids and {len(log_probs)} log-probs for {response_length} tokens"
        )
    for i, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        if begin == end and not _is_trained(loss_mask, i):
            continue
        mass = sum(map(math.exp, log_probs[begin:end]))
        if len(set(ids[begin:end])) != end - begin or abs(mass - 1) > 1e-4 + 1e-6:
            raise ValueError(f"Score centering: the nucleus of response token {i} has a mass of {mass:.5f}, or an id twice")
