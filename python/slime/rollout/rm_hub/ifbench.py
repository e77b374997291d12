"""The rule `ifbench`: all instructions are followed."""

from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["compute_ifbench_reward"]


def compute_ifbench_reward(response, label, metadata=None):
    """1 or 0; metadata has instruction_id_list and kwargs."""
    return score_and_wait("ifbench", response or "", label, metadata)
