"""What rollout and evaluation functions return."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from slime.utils.types import Sample

__all__ = ["RolloutFnTrainOutput", "RolloutFnEvalOutput", "call_rollout_fn"]


@dataclass
class RolloutFnTrainOutput:
    """Groups of samples; a member of a group may be a list (one execution that became several samples)."""

    samples: List[List[Sample]]
    metrics: Optional[Dict[str, Any]] = None


@dataclass
class RolloutFnEvalOutput:
    """By data set: `rewards`, and optionally `truncated` and `samples`, equally long."""

    data: Dict[str, Dict[str, Any]]
    metrics: Optional[Dict[str, Any]] = None


def call_rollout_fn(fn, *args, evaluation, **kwargs):
    """Calls it; bare lists (training) and dictionaries (evaluation) are wrapped."""
    output = fn(*args, **kwargs, evaluation=evaluation)
    if isinstance(output, (RolloutFnTrainOutput, RolloutFnEvalOutput)):
        return output
    return RolloutFnEvalOutput(data=output) if evaluation else RolloutFnTrainOutput(samples=output)
