"""What rollout and evaluation functions return."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from slime.utils.types import Sample

__all__ = [
    "RolloutFnEvalOutput",
    "RolloutFnTrainOutput",
    "apply_rollout_sample_filter",
    "call_rollout_fn",
    "finalize_rollout_groups",
    "iter_samples",
]


@dataclass
class RolloutFnTrainOutput:
    """Groups of samples; a member of a group may be a list (one execution that became several samples)."""

    samples: List[List[Sample]]
    metrics: Optional[Dict[str, Any]] = None
    on_accepted: Optional[Callable[[], Any]] = None  # called without arguments when the program has taken the groups
    sample_refs: Optional[List[Any]] = None  # where the samples lie elsewhere; not read: the samples themselves travel


@dataclass
class RolloutFnEvalOutput:
    """By data set: `rewards`, and optionally `truncated` and `samples`, equally long."""

    data: Dict[str, Dict[str, Any]]
    metrics: Optional[Dict[str, Any]] = None


def call_rollout_fn(fn, *args, evaluation: bool, **kwargs):
    """Calls it; bare lists (training) and dictionaries (evaluation) are wrapped. Throws TypeError for anything else."""
    output = fn(*args, **kwargs, evaluation=evaluation)
    if isinstance(output, (RolloutFnTrainOutput, RolloutFnEvalOutput)):
        return output  # whoever called looks at which of them it is
    if evaluation and isinstance(output, dict):
        return RolloutFnEvalOutput(data=output)
    if not evaluation and isinstance(output, (list, tuple)):
        return RolloutFnTrainOutput(samples=list(output))
    wanted = "RolloutFnEvalOutput or a dictionary" if evaluation else "RolloutFnTrainOutput or a list of groups"
    raise TypeError(f"the rollout function returned {type(output).__name__}; it is {wanted}")


def iter_samples(value):
    """The samples of a group, a list of groups, or deeper ones, in their order."""
    if isinstance(value, (list, tuple)):
        for member in value:
            yield from iter_samples(member)
    else:
        yield value


def apply_rollout_sample_filter(args, samples) -> None:
    """Calls the function of --rollout-sample-filter-path, where there is one."""
    path = getattr(args, "rollout_sample_filter_path", None)
    if path is not None:
        from slime.utils.misc import load_function

        load_function(path)(args, samples)


def finalize_rollout_groups(args, rollout_id, groups, metrics=None, *, controller=None):
    """The output of a rollout function for finished groups: sorted by the index of their first sample and passed through
    the sample filter. `controller`, of a queue outside, is not needed: the program keeps account itself."""
    groups = sorted(groups, key=lambda group: next(iter_samples(group)).index or 0)
    apply_rollout_sample_filter(args, groups)
    return RolloutFnTrainOutput(samples=groups, metrics=metrics)
