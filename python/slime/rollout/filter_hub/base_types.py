"""What a dynamic filter answers, and how its answer is read."""

from dataclasses import dataclass
from typing import Optional

__all__ = ["DynamicFilterOutput", "MetricGatherer", "call_dynamic_filter", "should_drop_dynamic_filter_output"]


@dataclass
class DynamicFilterOutput:
    """Whether a group is trained. `reason` is counted when it is not; one that is dropped may still be kept when there
    would be too few groups without it."""

    keep: bool
    reason: Optional[str] = None
    keep_when_insufficient: bool = False

    def __bool__(self):
        """For code that takes a filter's answer as a truth value."""
        return bool(self.keep)


def should_drop_dynamic_filter_output(output, *, remaining_batch_size, target_data_size):
    if output.keep:
        return False
    return not (output.keep_when_insufficient and remaining_batch_size <= target_data_size)


def call_dynamic_filter(fn, *args, **kwargs):
    """Calls it; a bare truth value is wrapped, no filter keeps everything."""
    output = DynamicFilterOutput(keep=True) if fn is None else fn(*args, **kwargs)
    return output if isinstance(output, DynamicFilterOutput) else DynamicFilterOutput(keep=output)


class MetricGatherer:
    """Counts dropped groups by reason."""

    def __init__(self):
        self._dropped = {}

    def on_dynamic_filter_drop(self, reason):
        if reason:
            self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def collect(self):
        return {f"rollout/dynamic_filter/drop_{reason}": count for reason, count in self._dropped.items()}
