"""The rule `dapo`: 1 or -1 from the last "Answer:" line, or from the last box."""

from slime.rollout.rm_hub import math_utils
from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["compute_score", "last_boxed_only_string", "remove_boxed"]


def compute_score(solution_str, ground_truth, strict_box_verify=False, pause_tokens_index=None):
    """{"score": 1 or -1, "acc", "pred"}; strict_box_verify compares the last box letter by letter."""
    if pause_tokens_index is not None:
        raise NotImplementedError("pause_tokens_index: the program's rule reads the end of the whole solution")
    return score_and_wait("dapo_box" if strict_box_verify else "dapo", solution_str, str(ground_truth))


def last_boxed_only_string(string):
    return math_utils.last_boxed_only_string(string, commands=("\\boxed{",))


def remove_boxed(boxed):
    inside = math_utils.remove_boxed(boxed)
    if inside is None:
        raise ValueError(f"{boxed!r} is no box")
    return inside
