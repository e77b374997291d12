"""The agent kit of early 0.3: turns of one conversation merged into a segment, and a sample for each segment.

`slime.agent.trajectory` has the same names. TrajectoryManager is the newer way: it trains a turn that several paths share once.
"""

import copy
import dataclasses
import logging
from typing import Any

from slime.utils.types import Sample

__all__ = [
    "TokenSegment",
    "TurnSegment",
    "fan_out_sample_segments",
    "make_turn_segment",
    "merge_turn_segments",
    "merge_turns",
    "write_segment_to_sample",
]

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TokenSegment:
    """What becomes one sample. Of the response's tokens those with mask 1 were sampled; the others have log-prob 0."""

    prompt_ids: list[int]
    response_ids: list[int]
    loss_mask: list[int]
    rollout_log_probs: list[float] = dataclasses.field(default_factory=list)
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TurnSegment:
    """Turns that belong into one segment."""

    turns: list
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


def make_turn_segment(turns, *, kind="", metadata=None):
    """A copy of the list. Metadata that is not given: `segment_kind` where there is one, `finish_reason` of the last turn."""
    known = {"segment_kind": kind} if kind else {}
    known["finish_reason"] = turns[-1].finish_reason if turns else ""
    return TurnSegment(turns=list(turns), metadata={**known, **(metadata or {})})


def _log_probs_of(turn):
    if len(turn.output_log_probs) == len(turn.output_ids):
        return list(turn.output_log_probs)
    logger.warning("a turn of %d tokens has %d log-probs; 0 is used", len(turn.output_ids), len(turn.output_log_probs))
    return [0.0] * len(turn.output_ids)


def _num_equal(one, other):
    """How many tokens at the beginning are the same."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


class _Response:
    """What stands behind the segment's prompt so far: tokens, masks and log-probs side by side."""

    def __init__(self):
        self.tokens, self.mask, self.log_probs = [], [], []
        self.outputs = []  # of each turn: where its tokens begin and end

    def add_context(self, tokens):
        self.tokens += tokens
        self.mask += [0] * len(tokens)
        self.log_probs += [0.0] * len(tokens)

    def add_output(self, turn):
        self.outputs.append((len(self.tokens), len(self.tokens) + len(turn.output_ids)))
        self.tokens += turn.output_ids
        self.mask += [1] * len(turn.output_ids)
        self.log_probs += _log_probs_of(turn)

    def cut(self, length):
        """Down to its first tokens. A turn that is cut in two was not what the model said: none of it is trained."""
        for begin, end in self.outputs:
            if begin < length < end:
                self.mask[begin:length] = [0] * (length - begin)
        del self.tokens[length:], self.mask[length:], self.log_probs[length:]
        self.outputs = [(begin, min(end, length)) for begin, end in self.outputs if begin < length]


def merge_turns(turns, *, metadata=None):
    """One segment of TurnRecords in their order, or None without any. A turn goes on behind what its prompt has in common with the segment
    so far; where it does not begin with the segment's prompt, the segment begins anew with it."""
    if not turns:
        return None
    prompt, response = list(turns[0].prompt_ids), _Response()
    for index, turn in enumerate(turns):
        given = list(turn.prompt_ids)
        if index > 0 and given[: len(prompt)] != prompt:
            logger.warning("turn %d has another prompt: the segment begins anew with it", index)
            prompt, response = given, _Response()
        elif index > 0:
            behind = given[len(prompt) :]
            length = _num_equal(response.tokens, behind)
            if length < len(response.tokens):
                logger.warning("turn %d leaves out the last %d tokens so far", index, len(response.tokens) - length)
                response.cut(length)
            response.add_context(behind[length:])
        response.add_output(turn)
    return TokenSegment(
        prompt_ids=prompt,
        response_ids=response.tokens,
        loss_mask=response.mask,
        rollout_log_probs=[value if is_trained else 0.0 for value, is_trained in zip(response.log_probs, response.mask)],
        metadata=dict(metadata or {}),
    )


def merge_turn_segments(segments):
    """A TokenSegment of each TurnSegment, but for those without a response."""
    merged = [merge_turns(each.turns, metadata=each.metadata) for each in segments]
    return [each for each in merged if each is not None and each.response_ids]


def write_segment_to_sample(sample, segment, reward, tokenizer):
    sample.tokens = list(segment.prompt_ids) + list(segment.response_ids)
    sample.response_length = len(segment.response_ids)
    sample.loss_mask = list(segment.loss_mask)
    sample.rollout_log_probs = list(segment.rollout_log_probs)
    sample.response = tokenizer.decode(segment.response_ids, skip_special_tokens=False)
    sample.reward = float(reward)
    sample.status = Sample.Status.COMPLETED


def fan_out_sample_segments(sample, segments, reward, tokenizer, *, metadata=None, rollout_id=None):
    """A sample of each segment, the first of them `sample` itself. They share the reward in equal parts, and `rollout_id` (the sample's
    index where none is given), so that a mean over rollouts counts them once."""
    shared = sample.index if rollout_id is None else rollout_id
    base = {**(sample.metadata or {}), **(metadata or {})}
    samples = [sample, *(copy.copy(sample) for _ in segments[1:])][: len(segments)]
    for index, (each, segment) in enumerate(zip(samples, segments)):
        write_segment_to_sample(each, segment, float(reward) / len(segments), tokenizer)
        each.rollout_id = shared
        each.metadata = {**base, **(segment.metadata or {}), "segment_idx": index, "num_segments": len(segments)}
    return samples
