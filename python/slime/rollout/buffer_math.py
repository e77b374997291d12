"""The built-in generator of a rollout buffer: one answer to each problem, scored by the rule of math problems."""

from slime.rollout.buffer_generator import BaseGenerator, query_single_turn
from slime.rollout.rm_hub.native import score_and_wait

TASK_TYPE = "math"


def _reward(item):
    return score_and_wait("deepscaler", item["messages"][-1]["content"], item["label"])


def is_valid_group(group, min_valid_group_size, task_type=TASK_TYPE):
    """Answers that are empty teach nothing."""
    answers = [item["messages"][-1]["content"] for item in group[1]]
    return sum(bool(answer and answer.strip()) for answer in answers) >= min_valid_group_size


def run_rollout(data):
    BaseGenerator.of(data).entry(data["input_file"], query_single_turn, _reward, int(data.get("num_epoch") or 1))
