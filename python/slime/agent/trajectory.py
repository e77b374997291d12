"""From the turns of an agent to samples that train exactly the tokens that the engine drew.

Turns of a session are kept as a tree of messages: a prompt that goes on from an earlier one extends its branch, one that
differs (a sub-agent, a compacted history) forks. Each path from the root to a leaf becomes one sample, or several where a
prompt does not go on from the tokens before it. Nothing is tokenised here.

    system - user - assistant(turn 1) - tool - assistant(turn 2)         one sample, two trained spans
                 \\ assistant(turn 3)                                     another one: the client went back
"""

import dataclasses
import logging
from typing import List

from slime.utils.types import Sample

__all__ = ["TrajectoryManager", "TurnRecord", "MessageNode"]

logger = logging.getLogger(__name__)

DEFAULT_FORK_THRESHOLD = 1024


@dataclasses.dataclass(frozen=True)
class TurnRecord:
    """One call of the engine: what it read and what it drew."""

    prompt_ids: List[int]
    output_ids: List[int]
    finish_reason: str
    output_log_probs: List[float] = dataclasses.field(default_factory=list)
    ill_formed: bool = False


class MessageNode:
    """A message of the tree. `turn` is set where the engine wrote it; other messages only lead the way."""

    def __init__(self, message=None, parent=None):
        self.message = message
        self.role = (message or {}).get("role")
        self.parent = parent
        self.children = []
        self.metadata = {}
        self.turn = None
        self.turn_index = None
        self.was_trained = False  # by an earlier path: later ones have it as context

    def add_child(self, message):
        child = MessageNode(message, self)
        self.children.append(child)
        return child

    def child_like(self, message):
        return next((child for child in self.children if child.message == message), None)

    def path(self):
        """The nodes from the first message to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def leaves(self):
        for child in self.children:
            if child.children:
                yield from child.leaves()
            else:
                yield child


def _common_length(a, b):
    """Of the prefix that both have; compared piece by piece, the last one number by number."""
    step, limit, begin = 4096, min(len(a), len(b)), 0
    while begin < limit and a[begin : begin + step] == b[begin : begin + step]:
        begin += step
    begin = min(begin, limit)
    while begin < limit and a[begin] == b[begin]:
        begin += 1
    return begin


class _Segment:
    """Tokens of turns that follow one another, each prompt going on from what is here."""

    def __init__(self):
        self.tokens, self.mask, self.log_probs = [], [], []
        self.prompt_length = 0
        self.last_response = None  # where the last turn's output begins

    def _extend(self, tokens, trained, log_probs=None):
        self.tokens += tokens
        self.mask += [trained] * len(tokens)
        self.log_probs += log_probs if trained and log_probs else [0.0] * len(tokens)

    def append(self, turn, is_trained, fork_threshold):
        """False, and nothing done, when the turn does not go on from here."""
        agreed = _common_length(self.tokens, turn.prompt_ids)
        if agreed < len(self.tokens):
            # The last response came back in other tokens. A short continuation heals it: the response is kept as the
            # prompt has it, untrained. Anything earlier, or much that follows, is a sample of its own.
            if self.last_response is None or agreed < self.last_response or len(turn.output_ids) >= fork_threshold:
                return False
            for values in (self.tokens, self.mask, self.log_probs):
                del values[self.last_response :]
        self._extend(turn.prompt_ids[len(self.tokens) :], 0)
        if self.last_response is None:
            self.prompt_length = len(turn.prompt_ids)
        self.last_response = len(self.tokens)
        self._extend(list(turn.output_ids), int(is_trained), list(turn.output_log_probs))
        return True

    def is_trained(self):
        return any(self.mask[self.prompt_length :])

    def to_sample(self, base, metadata, reward, limit):
        end = len(self.tokens) if not limit else min(limit, len(self.tokens))
        begin = min(self.prompt_length, end)
        return Sample(
            index=base.index,
            group_index=base.group_index,
            rollout_id=base.index if base.rollout_id is None else base.rollout_id,
            prompt=base.prompt,
            label=base.label,
            tokens=self.tokens[:end],
            response_length=end - begin,
            loss_mask=self.mask[begin:end],
            rollout_log_probs=self.log_probs[begin:end],
            reward=reward,
            status=Sample.Status.COMPLETED,
            metadata=dict(metadata),
        )


class TrajectoryManager:
    """The trees of all sessions. `fork_threshold_tokens`: responses from this length on are never given up to keep a
    history in one piece; 0 never gives up any."""

    def __init__(self, *, fork_threshold_tokens=None):
        self._fork_threshold = DEFAULT_FORK_THRESHOLD if fork_threshold_tokens is None else fork_threshold_tokens
        self._roots = {}
        self._turns = {}

    def has_session(self, sid):
        return sid in self._roots

    def turn_count(self, sid):
        return self._turns.get(sid, 0)

    def drop_session(self, sid):
        self._roots.pop(sid, None)
        self._turns.pop(sid, None)

    def _walk(self, sid, messages):
        """(the deepest node of the messages' path, how many of them led there)"""
        node, depth = self._roots[sid], 0
        while depth < len(messages):
            child = node.child_like(messages[depth])
            if child is None:
                break
            node, depth = child, depth + 1
        return node, depth

    def longest_turn(self, sid, messages):
        """(turn, number of messages) of the last assistant message in `messages` that the engine wrote in this session,
        reached by the messages before it; None without one."""
        if sid not in self._roots:
            return None
        node, depth = self._walk(sid, messages)
        while node.parent is not None:
            if node.turn is not None:
                return node.turn, depth
            node, depth = node.parent, depth - 1
        return None

    def record_turn(self, sid, *, turn, prompt_messages, response_message, metadata=None):
        """Adds a turn: what the client sent, what the engine answered. `response_message` is the message as the client
        will repeat it."""
        if turn.output_log_probs and len(turn.output_log_probs) != len(turn.output_ids):
            raise ValueError(f"{len(turn.output_log_probs)} log-probs for {len(turn.output_ids)} tokens")
        if not prompt_messages:
            logger.warning("session %s: a turn without messages is not recorded", sid)
            return
        self._roots.setdefault(sid, MessageNode())
        node, depth = self._walk(sid, prompt_messages)
        rewritten = self._rewritten(node, prompt_messages, depth)
        if rewritten is not None:
            rewritten.metadata["merged_rewrite"] = {
                "abandoned_turn_index": rewritten.turn_index,
                "abandoned_response_tokens": len(rewritten.turn.output_ids),
            }
            rewritten.turn = rewritten.turn_index = None
            rewritten.message = prompt_messages[depth]
            node, depth = rewritten, depth + 1
        for message in prompt_messages[depth:]:
            node = node.add_child(message)
        leaf = node.add_child(response_message)
        leaf.role = "assistant"
        leaf.metadata = dict(metadata or {})
        leaf.turn = turn
        leaf.turn_index = self._turns[sid] = self._turns.get(sid, 0) + 1

    def _rewritten(self, node, messages, depth):
        """The short response that the client repeated in other words, when there is no doubt which one: it is given up
        rather than that its history falls in two."""
        if self._fork_threshold <= 0 or depth >= len(messages) or messages[depth].get("role") != "assistant":
            return None
        assistants = [child for child in node.children if child.role == "assistant"]
        if len(assistants) != 1:
            return None
        only = assistants[0]
        if only.children or only.turn is None or len(only.turn.output_ids) >= self._fork_threshold:
            return None
        return only

    def get_trajectory(self, sid, *, base_sample, reward=0.0, extra_metadata=None, max_sample_tokens=0):
        """The session's samples, each with the whole reward, and the session is forgotten."""
        root = self._roots.get(sid)
        self.drop_session(sid)
        samples = []
        for leaf in root.leaves() if root is not None else ():
            written = [node for node in leaf.path() if node.turn is not None]
            metadata = {
                **(extra_metadata or {}),
                "truncated": bool(written) and written[-1].turn.finish_reason == "length",
                "use_tool": any((node.message or {}).get("tool_calls") for node in written),
                "ill_formed": any(node.turn.ill_formed for node in written),
            }
            for segment in self._segments(written):
                if segment.is_trained():
                    samples.append(segment.to_sample(base_sample, metadata, reward, max_sample_tokens))
        return samples

    def _segments(self, nodes):
        segments = []
        for node in nodes:
            is_trained, node.was_trained = not node.was_trained, True
            if segments and segments[-1].append(node.turn, is_trained, self._fork_threshold):
                continue
            segments.append(_Segment())
            segments[-1].append(node.turn, is_trained, self._fork_threshold)
        return segments
