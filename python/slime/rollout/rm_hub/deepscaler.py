"""The rule `deepscaler`: the last box behind the thinking equals the label."""

from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["get_deepscaler_rule_based_reward"]


def get_deepscaler_rule_based_reward(response, label):
    """1 or 0; 0 without a label."""
    return 0 if label is None or label == "" else score_and_wait("deepscaler", response, str(label))
