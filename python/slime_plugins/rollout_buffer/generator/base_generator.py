"""What generators import."""

from slime.rollout.buffer_generator import BaseGenerator, query_single_turn
from slime.rollout.buffer_math import TASK_TYPE, is_valid_group, run_rollout

__all__ = ["BaseGenerator", "TASK_TYPE", "is_valid_group", "query_single_turn", "run_rollout"]
