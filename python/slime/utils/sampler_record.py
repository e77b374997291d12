"""What score centering wants to know of each token of the policy: the ids that the sampler could have drawn, or its
likeliest ones, and their log-probs there.

With --rollout-top-p below 1 that is the whole nucleus (meta_info's top_p_log_probs beside its ids), else the
--score-centering-top-k likeliest ids (output_topk_token_ids, output_topk_log_probs, output_topk_shape).
"""

import copy
import math
from array import array

from slime.utils.number_table import flat_numbers

__all__ = [
    "head_of",
    "head_of_others",
    "head_width",
    "lists_support",
    "of_evaluation",
    "request_fields",
    "support_log_probs",
]

_LARGEST_MASS = 1.0001
_HEAD = ("output_topk_token_ids", "output_topk_log_probs", "output_topk_shape")


def _centers(args):
    return bool(getattr(args, "use_score_centering", False))


def of_evaluation(args):
    """Arguments of an evaluation, which is not trained: nothing of the sampler is wanted."""
    if not _centers(args):
        return args
    own = copy.copy(args)
    own.use_score_centering = False
    return own


def lists_support(args):
    """Whether each token comes with its whole nucleus."""
    return _centers(args) and getattr(args, "rollout_top_p", 1.0) < 1


def head_width(args):
    """How many of the likeliest ids each token comes with; 0: none."""
    if not _centers(args) or lists_support(args):
        return 0
    return int(getattr(args, "score_centering_top_k", 128))


def request_fields(args, sampling_params):
    """What a request of /generate has more; its sampling_params are changed. Throws ValueError for a distribution that
    is not the one which is trained."""
    if not _centers(args):
        return {}
    problems = []
    for name, own in (("temperature", args.rollout_temperature), ("top_p", getattr(args, "rollout_top_p", 1.0))):
        if sampling_params.setdefault(name, own) != own:
            problems.append(f"{name} is {sampling_params[name]}, and --rollout-{name.replace('_', '-')} is {own}")
    if not sampling_params["temperature"] > 0:
        problems.append("temperature must be above 0: nothing is drawn otherwise")
    defaults = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    for name, default in {**defaults, "min_new_tokens": 0}.items():
        if sampling_params.get(name, default) not in (default, None):
            problems.append(f"{name} is {sampling_params[name]}, and must be {default}")
    for name in ("json_schema", "regex", "ebnf", "structural_tag", "logit_bias"):
        if sampling_params.get(name):
            problems.append(f"{name} changes what can be drawn")
    if problems:
        raise ValueError("--use-score-centering: " + "; ".join(problems))
    if lists_support(args):
        custom = sampling_params["custom_params"] = dict(sampling_params.get("custom_params") or {})
        custom.update(return_top_p_token_ids=True, return_top_p_log_probs=True)
        return {"return_logprob": True}
    return {"return_logprob": True, "top_logprobs_num": head_width(args)}


def support_log_probs(args, meta_info):
    """array('f') of all kept ids, or None where none came and none is needed."""
    if "score_centering_top_p" in meta_info:
        return flat_numbers(meta_info["score_centering_top_p"][2], "f")
    if meta_info.get("top_p_log_probs") is not None:
        return flat_numbers(meta_info["top_p_log_probs"], "f")
    if lists_support(args):
        raise ValueError(
            "--use-score-centering with --rollout-top-p below 1 needs the log-probs of each token's nucleus: send "
            "sampling_params.custom_params return_top_p_token_ids and return_top_p_log_probs"
        )
    return None


def head_of(meta_info, num_tokens, width):
    """(ids, log-probs) of the likeliest ids of each token, row by row: array('i'), array('f')."""
    if "score_centering_topk" in meta_info:
        ids, log_probs = meta_info["score_centering_topk"]
    elif "output_topk_shape" not in meta_info and meta_info.get("output_top_logprobs"):
        rows = meta_info["output_top_logprobs"]  # as servers of others say it
        ids = [entry[1] for row in rows for entry in row]
        log_probs = [entry[0] for row in rows for entry in row]
    elif missing := [name for name in _HEAD if meta_info.get(name) is None]:
        raise ValueError(
            f"--use-score-centering needs the sampler's {width} likeliest ids of each token, and meta_info has no "
            f"{', '.join(missing)}: send return_logprob and top_logprobs_num {width}"
        )
    elif list(meta_info["output_topk_shape"]) != [num_tokens, width]:
        raise ValueError(f"output_topk_shape is {meta_info['output_topk_shape']}, not {[num_tokens, width]}")
    else:
        ids, log_probs = meta_info["output_topk_token_ids"], meta_info["output_topk_log_probs"]
    ids, log_probs = flat_numbers(ids, "i"), flat_numbers(log_probs, "f")
    if len(ids) != num_tokens * width or len(log_probs) != num_tokens * width:
        raise ValueError(f"{len(ids)} likeliest ids and {len(log_probs)} log-probs for {num_tokens} tokens x {width}")
    for token in range(num_tokens):
        begin, end = token * width, (token + 1) * width
        own, numbers = ids[begin:end], log_probs[begin:end]
        if len(set(own)) != width or min(own) < 0:
            raise ValueError(f"the likeliest ids of token {token} must be distinct and not negative")
        if not all(math.isfinite(x) and x <= 0 for x in numbers) or sum(map(math.exp, numbers)) > _LARGEST_MASS:
            raise ValueError(f"the log-probs of the likeliest ids of token {token} are those of no distribution")
    return ids, log_probs


def head_of_others(num_tokens, width):
    """The same of tokens that the policy did not draw: there is nothing to know, and nothing reads it."""
    return array("i", range(width)) * num_tokens, array("f", [-math.log(width)]) * (num_tokens * width)
