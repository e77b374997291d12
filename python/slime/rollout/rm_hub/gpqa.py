"""The rule `gpqa`: the right letter, or its text."""

from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["compute_gpqa_reward"]


def compute_gpqa_reward(response, label, metadata=None):
    """1 or 0; metadata may have choices, correct_letter and valid_letters."""
    return 0.0 if response is None else score_and_wait("gpqa", response, label, metadata)
