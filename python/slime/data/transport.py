"""How slime 0.4 hands samples on. Here a function returns its samples, and the program's ledger keeps them: nothing needs
to be published, so each of these gives back what it got, and code that is written for a queue runs as it does without one.
"""

import copy

from slime.rollout.base_types import iter_samples

__all__ = [
    "DiskPayloadRef",
    "RawRolloutRef",
    "RolloutGroupRef",
    "TrainBatchRef",
    "accept_raw_rollout",
    "check_rollout_storage",
    "discard_rollout_group",
    "inherit_queue_context",
    "load_rollout_samples",
    "pack_rollout_group",
    "pack_rollout_payload",
    "publish_rollout_async",
    "rollout_store",
    "unpack_rollout_payload",
    "use_straw",
]

# What slime 0.4 sets on samples of its queue.
_CONTEXT = (
    "_queue_lease",
    "_queue_receipt",
    "_queue_source_positions",
    "_queue_resume_origin",
    "_queue_generation_start",
    "_queue_branch",
    "queue_policy_segments",
    "queue_generation_requests",
)
_OF_INPUT = ("_queue_lease", "_queue_receipt", "queue_generation_requests")  # kept whatever a hook returns


def use_straw(args) -> bool:
    """Whether functions have to publish their samples. Never: with --rollout-data-transport straw the program does."""
    return False


class DiskPayloadRef:
    """What samples may be behind in slime 0.4, for isinstance; there are none here."""

    def __init__(self, *args, **kwargs):
        raise TypeError("samples are handed on as they are here: return them")


class RolloutGroupRef(DiskPayloadRef):
    """As DiskPayloadRef."""


class RawRolloutRef(DiskPayloadRef):
    """As DiskPayloadRef."""


class TrainBatchRef(DiskPayloadRef):
    """As DiskPayloadRef."""


def rollout_store(args):
    raise RuntimeError("the package straw-queue has no store here: the run's ledger and rollout files are one (slime dump)")


def check_rollout_storage(args, *unused, **ignored) -> None:
    """Nothing: the program has tried its folders before it begins."""


def pack_rollout_payload(value, args, rollout_id, *, metadata=None, submission_id=None):
    """The value."""
    return value


def pack_rollout_group(group, args, rollout_id, *, controller=None):
    """The group."""
    return group


def unpack_rollout_payload(value):
    """The value."""
    return value


def load_rollout_samples(value):
    """The groups, in a list of its own."""
    return list(value)


async def publish_rollout_async(value, args, rollout_id, *, group=False, controller=None):
    """The value."""
    return value


def accept_raw_rollout(value, *unused, **ignored):
    """The value."""
    return value


def discard_rollout_group(group, args, reason="dynamic filter", *, controller=None) -> None:
    """Nothing: a group that is taken and not returned is in the ledger as lost, one that a filter drops as filtered."""


def inherit_queue_context(source, output):
    """Gives samples that a hook made what the sample it was given has of a queue; returns them."""
    for sample in iter_samples(output):
        for name in _CONTEXT:
            if not hasattr(source, name):
                continue
            own, value = getattr(sample, name, None), getattr(source, name)
            if name in ("_queue_lease", "_queue_receipt") and own not in (None, value):
                raise ValueError(f"a hook returned a sample with another {name}")
            if own is None or name in _OF_INPUT:
                setattr(sample, name, copy.deepcopy(value))
    return output
