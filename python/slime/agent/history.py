"""Recognition of the engine's turns in the messages that a client sends back.

A session's messages are a tree; a path from its root is a prompt, and nodes with a turn are what the engine sampled. Clients
repeat turns in forms of their own: thoughts kept or dropped, arguments serialised anew, other ids, other white space, a text
and its call as two messages. A turn is the same when text and calls are, so far; anything else is somebody's message, which
begins a branch. Which tools a prompt offers, and other options of the template, are part of it: each has a tree of its own.
"""

import json
import re

from slime.agent.continuation import canonical_arguments

__all__ = ["History", "MessageNode", "Unit", "units_of"]

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_NOT_COMPARED = ("tool_calls", "reasoning_content", "reasoning", "content", "role", "tool_call_id", "name", "id")


class Unit:
    """Messages of one role that follow one another, as one. `end`: how many messages led to its end."""

    def __init__(self, messages, end):
        self.messages, self.end = messages, end
        self.role = messages[0].get("role")
        self.text = "\n".join(_text(message) for message in messages).strip()
        self.calls = tuple(call for message in messages for call in _calls(message))
        self.ids = tuple(call.get("id") for message in messages for call in message.get("tool_calls") or [])
        self.thoughts = "\n".join(message.get("reasoning_content") or "" for message in messages).strip()
        more = [_more(message) for message in messages]
        self.key = (self.role, self.text, self.calls, *more) if any(more) else (self.role, self.text, self.calls)

    def message(self):
        """The unit as one message of the chat template."""
        if len(self.messages) == 1:
            return self.messages[0]
        calls = [call for message in self.messages for call in message.get("tool_calls") or []]
        merged = {"role": self.role, "content": self.text}
        return {**merged, "tool_calls": calls} if calls else merged


def units_of(messages, apart=("tool",)):
    """The messages as units: those of one role that follow one another are one, but for the roles in `apart`."""
    units, run = [], []
    for i, message in enumerate(messages):
        role = message.get("role")
        if run and (run[-1].get("role") != role or role in apart):
            units.append(Unit(run, i))
            run = []
        run.append(message)
    return units + [Unit(run, len(messages))] if run else units


def _text(message):
    content = message.get("content")
    if content is None or isinstance(content, str):
        return (content or "").strip()
    return json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)


def _calls(message):
    for call in message.get("tool_calls") or []:
        function = call.get("function") or call
        yield function.get("name"), canonical_arguments(function.get("arguments"))


def _more(message):
    rest = {name: value for name, value in message.items() if name not in _NOT_COMPARED and value is not None}
    return json.dumps(rest, sort_keys=True, ensure_ascii=False, default=str) if rest else ""


def _said(text):
    """The words of a turn: no thoughts, one space between words."""
    return " ".join(_THOUGHT.sub(" ", text).rpartition("</think>")[2].split())


class MessageNode:
    """Of the tree. `turn` is set where the engine wrote it, `said` are the words that it may come back with; `call_ids` are
    those that the client got."""

    def __init__(self, unit=None, parent=None):
        self.unit, self.parent, self.children = unit, parent, []
        self.turn, self.said, self.call_ids = None, (), ()

    def add(self, unit):
        child = MessageNode(unit, self)
        self.children.append(child)
        return child

    def is_like(self, unit):
        if self.unit.role != unit.role or self.unit.calls != unit.calls:
            return False
        if self.turn is None:
            return self.unit.key == unit.key
        if not unit.text and unit.calls:
            return True  # a client that drops the text next to a call
        return _said(unit.text) in self.said

    def path(self):
        """The nodes from the first message to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def is_continued(self):
        return bool(self.children)


class History:
    """The trees of a session, one for each set of tools and template options."""

    def __init__(self):
        self._roots = {}

    @staticmethod
    def _offer(tools, options):
        return json.dumps([tools or None, options or {}], sort_keys=True, ensure_ascii=False, default=str)

    def find(self, messages, tools=None, options=None):
        """(node of the last turn that the engine wrote in `messages`, behind exactly those before it; its unit), or None."""
        root = self._roots.get(self._offer(tools, options))
        if root is None:
            return None
        # A turn may come back as two messages, and two turns may follow one another.
        found = [self._find(root, units_of(messages)), self._find(root, units_of(messages, ("tool", "assistant")))]
        return max(filter(None, found), key=lambda each: each[1].end, default=None)

    @staticmethod
    def _find(root, units):
        level, last = [root], None
        for unit in units:
            level = [child for node in level for child in node.children if child.is_like(unit)]
            if not level:
                break
            turns = [node for node in level if node.turn is not None]
            if turns:
                last = max(enumerate(turns), key=lambda each: _likeness(each[1], unit, each[0]))[1], unit
        return last

    def record(self, turn, messages, reply, *, tools=None, options=None, call_ids=(), behind=None, also_said=()):
        """Adds a turn. `behind`: what `find` gave for its prompt, if it was asked; otherwise it is asked again."""
        root = self._roots.setdefault(self._offer(tools, options), MessageNode())
        node, depth = root, 0
        found = behind if behind is not None else self.find(messages, tools, options)
        if found is not None:
            node, depth = found[0], found[1].end
        for unit in units_of(messages[depth:]) if depth else units_of(messages):
            like = next((child for child in node.children if child.turn is None and child.is_like(unit)), None)
            node = like or node.add(unit)
        leaf = node.add(Unit([{**reply, "role": "assistant"}], len(messages) + 1))
        leaf.turn, leaf.call_ids = turn, tuple(call_ids)
        leaf.said = {_said(text) for text in (leaf.unit.text, *also_said)}
        return leaf


def _likeness(node, unit, order):
    """Of several turns that say the same: the one with these ids, these thoughts, without a continuation, the latest."""
    has_ids = bool(node.call_ids) and node.call_ids == unit.ids
    has_thoughts = bool(unit.thoughts) and unit.thoughts == node.unit.thoughts
    return has_ids, has_thoughts, not node.is_continued(), order
