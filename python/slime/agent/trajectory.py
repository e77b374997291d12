"""From the turns of an agent to samples that train exactly the tokens that the engine sampled.

Turns of a session are kept twice. As messages (history.py), to recognise them in what a client sends back. As tokens: a turn
whose prompt begins with all tokens of an earlier one goes on from it, any other begins anew. Each path from the first turn to
a last one becomes a sample; a turn that several paths share is trained in the first, and context in the others. So every
turn is in exactly one sample, behind exactly the tokens it was sampled behind, whatever the messages say.

    prompt - turn 1 - tool - turn 2         one sample, two trained spans
                  \\ other - turn 3         another one: the client went back
"""

import dataclasses
import itertools
import logging
from typing import List

from slime.agent.history import History, MessageNode
from slime.agent.segments import (
    TokenSegment,
    TurnSegment,
    fan_out_sample_segments,
    make_turn_segment,
    merge_turn_segments,
    merge_turns,
    write_segment_to_sample,
)
from slime.utils.int_arrays import flat_int32
from slime.utils.number_table import flat_numbers
from slime.utils.types import Sample

__all__ = [
    "MessageNode",
    "Nuclei",
    "TokenSegment",
    "TrajectoryManager",
    "TurnRecord",
    "TurnSegment",
    "fan_out_sample_segments",
    "make_turn_segment",
    "merge_turn_segments",
    "merge_turns",
    "samples_of_turns",
    "write_segment_to_sample",
]

logger = logging.getLogger(__name__)


@dataclasses.dataclass
class Nuclei:
    """The ids among which each token was drawn: `ids` end to end, `counts` of them per token; `log_probs` of ids, or none."""

    ids: List[int] = dataclasses.field(default_factory=list)
    counts: List[int] = dataclasses.field(default_factory=list)
    log_probs: List[float] = dataclasses.field(default_factory=list)

    def add(self, other):
        self.ids += other.ids
        self.counts += other.counts
        self.log_probs += other.log_probs

    def add_tools(self, num_tokens):
        """Tokens that nobody drew, or that another sample trains, have none."""
        self.counts += [0] * num_tokens

    def fields_of(self, begin, end):
        """Those of Sample, of the tokens from `begin` to `end`."""
        offsets = list(itertools.accumulate(self.counts[begin:end], initial=0))
        first = sum(self.counts[:begin])
        last = first + offsets[-1]
        fields = {"rollout_top_p_token_ids": flat_int32(self.ids[first:last]), "rollout_top_p_token_offsets": flat_int32(offsets)}
        if self.log_probs and len(self.log_probs) == len(self.ids):
            fields["rollout_top_p_log_probs"] = flat_numbers(self.log_probs[first:last], "f")
        return fields


@dataclasses.dataclass(frozen=True)
class TurnRecord:
    """One call of the engine: what it read and what it sampled. `end`: the text of the token that ended it, "" when it was cut
    off, None when that is not known. `stop_text`: what its text ends with that the client is not shown, a stop string."""

    prompt_ids: List[int]
    output_ids: List[int]
    finish_reason: str
    output_log_probs: List[float] = dataclasses.field(default_factory=list)
    nuclei: "Nuclei | None" = None  # of output_ids, where the engine was asked for them (--rollout-top-p below 1)
    ill_formed: bool = False
    end: str | None = None
    stop_text: str = ""
    answer: dict | None = dataclasses.field(default=None, repr=False, compare=False)  # the engine's, as it is noted


class TokenNode:
    """A turn in the tree of tokens: `context`, which the engine read behind its parent, and `output`, which it sampled."""

    def __init__(self, parent, context, turn, message):
        self.parent, self.children = parent, []
        self.context, self.output = context, list(turn.output_ids)
        self.log_probs = list(turn.output_log_probs)
        self.nuclei = turn.nuclei
        self.ill_formed, self.end = turn.ill_formed, turn.end
        self.uses_tool = bool(message.get("tool_calls"))
        self.turn_index = None
        self.is_given_up = False
        self.is_cut_off = turn.finish_reason == "length"
        self.was_trained = False  # by an earlier path: later ones have it as context

    def path(self):
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def tokens(self):
        """All of them up to the end of the turn."""
        return [token for node in self.path() for part in (node.context, node.output) for token in part]

    def prompt(self):
        return _Prompt(self)

    def leaves(self):
        stack = self.children[::-1]
        while stack:
            node = stack.pop()
            if node.children:
                stack += node.children[::-1]
            else:
                yield node


class _Prompt:
    """What the engine read for a turn, without a copy of it."""

    def __init__(self, node):
        path = node.path()
        self._parts = [part for each in path[:-1] for part in (each.context, each.output)] + [node.context]
        self._length = sum(map(len, self._parts))

    def __len__(self):
        return self._length

    def is_prefix_of(self, tokens):
        begin = 0
        for part in self._parts:
            if tokens[begin : begin + len(part)] != part:
                return False
            begin += len(part)
        return True


class _Root(TokenNode):
    def __init__(self):
        self.parent, self.children, self.is_cut_off = None, [], False


class _Session:
    def __init__(self):
        self.root, self.history, self.num_turns = _Root(), History(), 0

    def parent_of(self, prompt_ids, recognised=None):
        """(the last turn all of whose tokens `prompt_ids` begins with, how many those are). Of turns with the same tokens the
        one that was `recognised`, then one that nothing goes on from."""
        if recognised is not None and not recognised.is_given_up:
            tokens = recognised.tokens()
            if prompt_ids[: len(tokens)] == tokens:
                return recognised, len(tokens)
        node, length = self.root, 0
        while True:
            for child in sorted(node.children, key=lambda each: bool(each.children)):
                middle = length + len(child.context)
                end = middle + len(child.output)
                if child.is_given_up or end > len(prompt_ids):
                    continue
                if prompt_ids[middle:end] == child.output and prompt_ids[length:middle] == child.context:
                    node, length = child, end
                    break
            else:
                return node, length


class Recording:
    """A turn that was recorded; `node` is None where there was nothing to record."""

    def __init__(self, node=None, leaf=None):
        self.node, self._leaf = node, leaf

    def forget(self):
        """Takes the turn back, while nothing goes on from it."""
        if self.node is not None and not self.node.children and not self._leaf.children:
            self.node.parent.children.remove(self.node)
            self._leaf.parent.children.remove(self._leaf)


class TrajectoryManager:
    """The turns of all sessions. `fork_threshold_tokens`: with a number above 0 a response of fewer tokens that came back in
    other tokens is given up, not trained, so that its history stays one sample; by default none is."""

    def __init__(self, *, fork_threshold_tokens=None):
        self._fork_threshold = fork_threshold_tokens or 0
        self._sessions = {}

    def has_session(self, sid):
        return sid in self._sessions

    def turn_count(self, sid):
        return self._sessions[sid].num_turns if sid in self._sessions else 0

    def drop_session(self, sid):
        self._sessions.pop(sid, None)

    def find(self, sid, messages, tools=None, options=None):
        """What History.find says of the session."""
        session = self._sessions.get(sid)
        return session.history.find(messages, tools, options) if session is not None else None

    def record_turn(
        self,
        sid,
        *,
        turn,
        prompt_messages,
        response_message,
        metadata=None,
        tools=None,
        options=None,
        call_ids=(),
        behind=None,
        also_said=(),
    ):
        """Adds a turn: what the client sent, what the engine answered. `response_message` is the message as the client got
        it; `also_said` are texts that it may have in its place. Returns a Recording."""
        if turn.output_log_probs and len(turn.output_log_probs) != len(turn.output_ids):
            raise ValueError(f"{len(turn.output_log_probs)} log-probs for {len(turn.output_ids)} tokens")
        if not prompt_messages:
            logger.warning("session %s: a turn without messages is not recorded", sid)
            return Recording()
        session = self._sessions.setdefault(sid, _Session())
        prompt_ids = list(turn.prompt_ids)
        parent, length = session.parent_of(prompt_ids, behind[0].turn if behind is not None else None)
        session.num_turns += 1
        if not turn.output_ids:  # no room for any: where it stopped was cut off
            parent.is_cut_off = turn.finish_reason == "length"
            return Recording()
        if self._fork_threshold > 0:
            parent, length = self._given_up(parent, length, prompt_ids)
        node = TokenNode(parent, prompt_ids[length:], turn, response_message)
        parent.children.append(node)
        node.turn_index = session.num_turns
        leaf = session.history.record(
            node,
            prompt_messages,
            response_message,
            tools=tools,
            options=options,
            call_ids=call_ids,
            behind=behind,
            also_said=also_said,
        )
        leaf.metadata = dict(metadata or {})

        return Recording(node, leaf)

    def _given_up(self, parent, length, prompt_ids):
        """Where the turn goes on when a short response is given up that came back otherwise, and there is no doubt which."""
        like = [
            child
            for child in parent.children
            if not child.children
            and not child.is_given_up
            and len(child.output) < self._fork_threshold
            and prompt_ids[length : length + len(child.context)] == child.context
        ]
        if len(like) != 1 or len(prompt_ids) <= length + len(like[0].context):
            return parent, length
        (child,) = like
        child.is_given_up = True
        child.output, child.log_probs = [], []
        return child, length + len(child.context)

    def get_trajectory(self, sid, *, base_sample, reward=0.0, extra_metadata=None, max_sample_tokens=0):
        """The session's samples, each with the whole reward, and the session is forgotten."""
        session = self._sessions.pop(sid, None)
        if session is None:
            return []
        return _samples_below(session.root, base_sample, reward, extra_metadata, max_sample_tokens)


def samples_of_turns(recorded, *, base_sample, reward=0.0, extra_metadata=None, max_sample_tokens=0):
    """(the engine's answers as turns.note takes them, samples) of the turns that a server recorded (docs/server.md), which
    are a tree of tokens already."""
    root, answers = _Root(), []
    nodes = {None: root}  # by id
    for each in recorded:
        turn = TurnRecord(
            [],
            each["output_ids"],
            "length" if each["is_cut_off"] else "stop",
            each["output_log_probs"],
            ill_formed=each["is_ill_formed"],
            nuclei=_nuclei_of(each),
        )
        if len(turn.output_log_probs) != len(turn.output_ids):
            raise ValueError(f"turn {each['id']}: {len(turn.output_log_probs)} log-probs, {len(turn.output_ids)} tokens")
        parent = nodes[each["parent"]]
        node = TokenNode(parent, each["context_ids"], turn, each["message"])
        node.turn_index = each["id"]
        parent.children.append(node)
        nodes[each["id"]] = node
        runs = [[run["version"], run["end"] - run["start"]] for run in each["weight_versions"]]
        answers.append({"output_ids": node.output, "meta_info": {"weight_version_runs": runs}, "prompt_ids": node.prompt()})
    return answers, _samples_below(root, base_sample, reward, extra_metadata, max_sample_tokens)


def _nuclei_of(turn):
    """Of a turn that a server recorded; None where its session was not asked to keep them."""
    if "output_top_p_token_counts" not in turn:
        return None
    nuclei = Nuclei(turn["output_top_p_token_ids"], turn["output_top_p_token_counts"], turn.get("output_top_p_log_probs", []))
    if len(nuclei.counts) != len(turn["output_ids"]) or sum(nuclei.counts) != len(nuclei.ids):
        raise ValueError(f"turn {turn['id']}: nuclei of {len(nuclei.counts)} tokens, {len(turn['output_ids'])} tokens")
    return nuclei


def _samples_below(root, base, reward, extra_metadata, limit):
    samples = (_sample_of(leaf.path(), base, reward, extra_metadata, limit) for leaf in root.leaves())
    return [sample for sample in samples if sample is not None]


def _sample_of(path, base, reward, extra_metadata, limit):
    """None when an earlier path has trained all of it."""
    tokens, mask, log_probs, nuclei = [], [], [], Nuclei()
    for node in path:
        is_trained = not (node.was_trained or node.is_given_up)
        node.was_trained = True
        tokens += node.context + node.output
        mask += [0] * len(node.context) + [int(is_trained)] * len(node.output)
        known = node.log_probs if is_trained and node.log_probs else [0.0] * len(node.output)
        log_probs += [0.0] * len(node.context) + known
        nuclei.add_tools(len(node.context))
        if is_trained and node.nuclei is not None:
            nuclei.add(node.nuclei)
        else:
            nuclei.add_tools(len(node.output))
    if not any(mask):
        return None
    written = [node for node in path if not node.is_given_up]
    is_truncated = written[-1].is_cut_off
    end = min(limit, len(tokens)) if limit else len(tokens)
    begin = min(len(path[0].context), end)
    return Sample(
        index=base.index,
        group_index=base.group_index,
        rollout_id=base.index if base.rollout_id is None else base.rollout_id,
        prompt=base.prompt,
        label=base.label,
        tokens=tokens[:end],
        response_length=end - begin,
        loss_mask=mask[begin:end],
        rollout_log_probs=log_probs[begin:end],
        **(nuclei.fields_of(begin, end) if any(node.nuclei is not None for node in path) else {}),
        reward=reward,
        status=Sample.Status.TRUNCATED if is_truncated else Sample.Status.COMPLETED,
        metadata={
            **(extra_metadata or {}),
            "truncated": is_truncated,
            "use_tool": any(node.uses_tool for node in written),
            "ill_formed": any(node.ill_formed for node in written),
        },
    )
